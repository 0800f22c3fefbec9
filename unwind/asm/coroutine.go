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

// contextEnds are the first bytes of that code: __start_context on x86-64
// (sysdeps/unix/sysv/linux/x86_64/__start_context.S), and a part of makecontext on i386
// (sysdeps/unix/sysv/linux/i386/makecontext.S). No function that is called can begin like this.
var contextEnds = map[elf.Machine][][]byte{
	elf.EM_X86_64: {
		// mov %rbx,%rsp; mov (%rsp),%rdi; test %rdi,%rdi
		{0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff},
		// Older versions: mov %rbx,%rsp; pop %rdi; test %rdi,%rdi
		{0x48, 0x89, 0xdc, 0x5f, 0x48, 0x85, 0xff},
	},
	elf.EM_386: {
		{0x8d, 0x24, 0x9c, 0x83, 0x3c, 0x24, 0x00}, // lea (%esp,%ebx,4),%esp; cmpl $0,(%esp)
	},
}

// endbr64 and endbr32 may come first.
var endbr = map[elf.Machine][]byte{
	elf.EM_X86_64: {0xf3, 0x0f, 0x1e, 0xfa},
	elf.EM_386:    {0xf3, 0x0f, 0x1e, 0xfb},
}

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

// finishes are the first bytes of the code that a coroutine of Boost.Context returns to: finish in
// libs/context/src/asm/make_x86_64_sysv_elf_gas.S. A call of _exit and hlt follow, as they do in
// the start code of programs behind the call of main.
var finishes = [...][]byte{{0x48, 0x31, 0xff}, {0x31, 0xff}} // xor %rdi,%rdi; xor %edi,%edi

func isFinish(b []byte) bool {
	const call, hlt = 0xe8, 0xf4
	for _, want := range finishes {
		rest, ok := bytes.CutPrefix(b, want)
		if ok && len(rest) > CallSize && rest[0] == call && rest[CallSize] == hlt {
			return true
		}
	}
	return false
}

// finish386 is the same in make_i386_sysv_elf_gas.S, with 0xcc in the place of any byte: it finds the
// procedure linkage table, and calls _exit with 0.
var finish386 = []byte{
	0xe8, 0, 0, 0, 0, // call of the next instruction
	0x5b,                               // pop %ebx
	0x81, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, // add $offset, %ebx
	0x31, 0xc0, // xor %eax, %eax
	0x89, 0x04, 0x24, // mov %eax, (%esp)
	0xe8, 0xcc, 0xcc, 0xcc, 0xcc, // call _exit
	0xf4, // hlt
}

func (c *Code) isFinish386(addr uint64) bool {
	if mark := endbr[elf.EM_386]; bytes.HasPrefix(c.bytes(addr), mark) {
		addr += uint64(len(mark))
	}
	for i, want := range finish386 {
		at := addr + uint64(i)
		if i%pageOver == 0 && len(c.bytes(at)) < min(pageOver, len(finish386)-i) {
			return false
		}
		if want != 0xcc && c.bytes(at)[0] != want {
			return false
		}
	}
	return true
}

// IsRet reports whether a ret is at addr.
func (c *Code) IsRet(addr uint64) bool { return bytes.HasPrefix(c.bytes(addr), []byte{0xc3}) }
