package asm

import (
	"bytes"
	"debug/elf"
)

// A coroutine has no caller: glibc's makecontext and Boost's make_fcontext put the address of
// code of their own where its first function finds its return address. That code does not follow
// a call. It moves SP to where the link to the next context is stored, and switches to that
// context or exits.
//
// CFI does not show this: a return address is looked up at the byte before it, which here belongs to
// other code.

// IsContextEnd reports whether a coroutine ends at addr.
func (c *Code) IsContextEnd(addr uint64) bool {
	b := bytes.TrimPrefix(c.bytes(addr), endbr[c.layout.Machine])
	for _, want := range contextEnds[c.layout.Machine] {
		if bytes.HasPrefix(b, want) {
			return true
		}
	}
	switch c.layout.Machine {
	case elf.EM_X86_64:
		return isFinish(b) && c.findCall(addr) == notCall
	case elf.EM_386:
		return c.isFinish386(addr)
	}
	return false
}
