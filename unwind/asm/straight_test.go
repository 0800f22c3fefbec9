package asm

import (
	"strings"
	"testing"

	"unspool/unwind/x86"
)

func TestPaddingEnd(t *testing.T) {
	const lo = 0x1000
	long := "\x66\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00" // data16 cs nopw 0x0(%rax,%rax,1)
	for _, c := range []struct {
		name, text string
		size       uint64 // 0 for none
	}{
		{"nops", "\x90\x66\x90\x0f\x1f\x00" + long + "\xc3", 17},
		{"no padding", "\xc3\x90", 0},
		{"exchanges registers", "\x41\x90\xc3", 0},
		{"waits", "\x90\xf3\x90\xc3", 1},
		{"more than there can be", strings.Repeat("\x90", 66) + "\xc3", 0},
		{"no instruction", "\x90\x06", 0},
	} {
		end, ok := assemble(t, c.text).PaddingEnd(lo)
		if ok != (c.size > 0) || ok && end != lo+c.size {
			t.Errorf("%s: %#x, %v; want %#x", c.name, end, ok, lo+c.size)
		}
	}
}

func TestUntilReturn(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       WayOut
		ok         bool
	}{
		{"ret", "\xc3", WayOut{0, 0, -1}, true},
		{"lea -16(%r13), %rsp; pop %r13", "\x49\x8d\x65\xf0\x41\x5d\xc3", WayOut{1<<13 | 1<<x86.SP, -1, -1}, true},
		{"pop %rbx; pop %rbp", "\x5b\x5d\xc3", WayOut{1<<x86.BX | 1<<x86.BP | 1<<x86.SP, 16, 8}, true},
		{"add $24, %rsp; pop %rbp", "\x48\x83\xc4\x18\x5d\xc3", WayOut{1<<x86.BP | 1<<x86.SP, 32, 24}, true},
		{"leave", "\xc9\xc3", WayOut{1<<x86.BP | 1<<x86.SP, -1, -1}, true},
		{"rep stos", "\xf3\xaa\xc3", WayOut{1<<x86.AX | 1<<x86.CX | 1<<x86.SI | 1<<x86.DI, 0, -1}, true},
		{"pop %rbp; jmp *%rax", "\x5d\xff\xe0", WayOut{1<<x86.BP | 1<<x86.SP, 8, 0}, true},
		{"pop %rbp; addsd %xmm1, %xmm0; jmp *%rax", "\x5d\xf2\x0f\x58\xc1\xff\xe0",
			WayOut{1<<x86.BP | 1<<x86.SP, 8, 0}, true},
		{"pop %rbp; mov %rcx, %rax; jmp *%rax", "\x5d\x48\x89\xc8\xff\xe0", WayOut{}, false},
		{"pop %rcx; jmp *%rax", "\x59\xff\xe0", WayOut{}, false},
		{"a switch", "\x48\x01\xd0\xff\xe0", WayOut{}, false},
		{"a branch", "\x74\x01\xc3", WayOut{}, false},
		{"a tail call", "\xe9\x00\x00\x00\x00", WayOut{}, false},
		{"a call", "\xe8\x00\x00\x00\x00\xc3", WayOut{}, false},
		{"far away", strings.Repeat("\x90", 40) + "\xc3", WayOut{}, false},
	} {
		out, ok := assemble(t, c.text).UntilReturn(0x1000)
		if ok != c.ok || out != c.want {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.name, out, ok, c.want, c.ok)
		}
	}
}
