package asm

import (
	"bytes"
	"testing"

	"unspool/unwind/rule"
)

// TestByPrologue has methods as C2 makes them, and code that looks like one.
func TestByPrologue(t *testing.T) {
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	var (
		bang    = []byte{0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff, 0x55, 0x48, 0x83, 0xec, 0x30}
		bang32  = []byte{0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff, 0x55, 0x48, 0x81, 0xec, 0xf0, 2, 0, 0}
		quiet   = []byte{0x48, 0x81, 0xec, 0x18, 0, 0, 0, 0x48, 0x89, 0x6c, 0x24, 0x10}
		quiet32 = []byte{0x48, 0x81, 0xec, 0x18, 1, 0, 0, 0x48, 0x89, 0xac, 0x24, 0x10, 1, 0, 0}
		work    = []byte{0x48, 0xff, 0xc0, 0xe8, 1, 2, 3, 4} // inc %rax; call
		leave   = []byte{0x48, 0x83, 0xc4, 0x30, 0x5d}       // add $0x30,%rsp; pop %rbp
		ret     = []byte{0xc3}
		push    = []byte{0x50}
		halt    = []byte{0xf4}
	)
	for _, c := range []struct {
		name string
		code []byte // up to the PC
		cfa  uint64 // 0 for no rule
	}{
		{"a loop without an end", join(bang, work), 0x40},
		{"the first instruction", bang, 0x40},
		{"a large frame", join(bang32, work), 0x300},
		{"nothing is called", join(quiet, work), 0x20},
		{"nothing is called, a large frame", join(quiet32, work), 0x120},
		{"behind a way out", join(bang, work, leave, ret, work), 0x40},
		{"in an epilogue", join(bang, work, leave), 0},
		{"the second of two methods", join(bang32, work, bang, work), 0x40},
		{"a push", join(bang, push, work), 0},
		{"the end of a method", join(bang, work, halt, work), 0},
		{"another room is given back", join(bang32, leave, ret), 0},
		{"the stack is touched above", join([]byte{0x89, 0x84, 0x24, 0, 0xc0, 1, 0}, bang[7:], work), 0},
		{"BP is saved elsewhere", join(quiet[:11], []byte{0x18}, work), 0},
		{"in an instruction", join(bang, work[:5]), 0},
		{"no prologue", work, 0},
	} {
		w := NewWindow()
		w.Set(0x1000, join(c.code, work, work, work))
		r, ok := w.ByPrologue(0x1000 + uint64(len(c.code)))
		if ok != (c.cfa != 0) || ok && (r.Kind() != rule.GuessSP || r.CFA() != c.cfa || r.BP() != 16) {
			t.Errorf("%s: %v, %v, want CFA = SP + %#x", c.name, r, ok, c.cfa)
		}
	}
}
