package asm

import (
	"bytes"
	"debug/elf"
)

// A coroutine has no caller: glibc's makecontext puts the address of code of its own
// where its first function finds its return address. That code follows no call. It
// drops the stack that it is entered with for where the link to the next context
// lies, and changes to that or exits.
//
// Its CFI does not tell, where it has any: a return address is looked up at the byte
// before it, which belongs to whatever lies there.

// contextEnds are the starts of that code, __start_context on x86-64
// (sysdeps/unix/sysv/linux/x86_64/__start_context.S) and in makecontext on i386
// (sysdeps/unix/sysv/linux/i386/makecontext.S). No function that is called can begin
// like this.
var contextEnds = map[elf.Machine][][]byte{
	elf.EM_X86_64: {
		{0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff}, // mov %rbx,%rsp; mov (%rsp),%rdi; test %rdi,%rdi
		{0x48, 0x89, 0xdc, 0x5f, 0x48, 0x85, 0xff},                   // mov %rbx,%rsp; pop %rdi; test %rdi,%rdi: older
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

// IsContextEnd says whether a coroutine ends at addr.
func (c *Code) IsContextEnd(addr uint64) bool {
	b := bytes.TrimPrefix(c.bytes(addr), endbr[c.layout.Machine])
	for _, want := range contextEnds[c.layout.Machine] {
		if bytes.HasPrefix(b, want) {
			return true
		}
	}
	return false
}

// IsRet says whether a ret is at addr, which is no call that ends there.
func (c *Code) IsRet(addr uint64) bool { return bytes.HasPrefix(c.bytes(addr), []byte{0xc3}) }
