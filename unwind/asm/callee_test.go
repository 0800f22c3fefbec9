package asm

import (
	"strings"
	"testing"
)

func TestFrameCalled(t *testing.T) {
	const (
		lo    = 0x1000
		call  = "\xe8\x0b\x00\x00\x00\xc3" + "\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc" // of what begins at lo + 16
		frame = "\x55\x48\x89\xe5"
	)
	for _, c := range []struct {
		name, text string
		want       bool
	}{
		{"at once", call + frame, true},
		{"behind a landing pad", call + "\xf3\x0f\x1e\xfa" + frame, true},
		{"behind moves", call + "\x48\x8b\xfa\x48\x8b\xd6\x33\xf6" + frame, true},
		{"behind too many moves", call + strings.Repeat("\x48\x8b\xfa", 8) + frame, false},
		{"behind a push", call + "\x53" + frame, false},
		{"behind a change of BP", call + "\x48\x89\xc5" + frame, false},
		{"behind a change of SP", call + "\x48\x83\xec\x08" + frame, false},
		{"behind a branch", call + "\x74\x00" + frame, false},
		{"no frame", call + "\x55\xc3", false},
		{"called through a register", "\xff\xd0\x90\x90\x90\xc3" + strings.Repeat("\xcc", 10) + frame, false},
	} {
		code := assemble(t, c.text+"\xc3\x90\x90")
		for range 2 { // the second time it is known
			if start, ok := code.FrameCalled(lo + 5); ok != c.want || ok && start != lo+16 {
				t.Errorf("%s: %#x, %t; want %t", c.name, start, ok, c.want)
			}
		}
	}
}

func TestMayReturn(t *testing.T) {
	const lo = 0x1000
	code := assemble(t, strings.Repeat("\xe8\x00\x00\x00\x00", 3)+"\xc3")
	for _, c := range []struct {
		name      string
		end, addr uint64
		want      bool
	}{
		{"behind the first call", lo + 10, lo + 5, true},
		{"behind the last one, which does not return", lo + 10, lo + 10, true},
		{"behind the end", lo + 10, lo + 15, false},
		{"where the end is not known", 0, lo + 15, true},
		{"at the start", lo + 10, lo, false},
		{"in an instruction", lo + 10, lo + 6, false},
	} {
		if got := code.MayReturn(lo, c.end, c.addr); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
