package asm

import "testing"

// TestPointerCalled has the pointers that calls use; each call is at the end of its text, which is at 0x1000.
func TestPointerCalled(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       uint64 // 0 if the instructions do not say
	}{
		{"in the call", "\xff\x15\x00\x01\x00\x00", 0x1106},
		{"its address in a register", "\x48\x8d\x05\x00\x01\x00\x00\x48\x89\xef\xff\x10", 0x1107},
		{"loaded", "\x48\x8b\x05\x00\x01\x00\x00\x48\x89\xef\xff\xd0", 0x1107},
		{"loaded, into a high register", "\x4c\x8b\x0d\x00\x01\x00\x00\x41\xff\xd1", 0x1107},
		{"the address is called", "\x48\x8d\x05\x00\x01\x00\x00\x48\x89\xef\xff\xd0", 0},
		{"in another register", "\x48\x8b\x0d\x00\x01\x00\x00\x48\x89\xef\xff\xd0", 0},
		{"changed meanwhile", "\x48\x8b\x05\x00\x01\x00\x00\x48\x89\xc8\xff\xd0", 0},
		{"a jump between", "\x48\x8b\x05\x00\x01\x00\x00\xeb\x00\xff\xd0", 0},
		{"beside the pointer", "\x48\x8d\x05\x00\x01\x00\x00\xff\x50\x08", 0},
		{"direct", "\xe8\x00\x00\x00\x00", 0},
	} {
		got, ok := assemble(t, c.text).PointerCalled(0x1000 + uint64(len(c.text)))
		if got != c.want || ok != (c.want != 0) {
			t.Errorf("%s: %#x %v, want %#x", c.name, got, ok, c.want)
		}
	}
}

// TestDispatch looks for the jump by which an interpreter goes on to the next instruction.
func TestDispatch(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       bool
	}{
		{"through memory", "\x90\x41\xff\x27", true},
		{"with displacement", "\x90\xff\x64\x24\x08", true},
		{"a register", "\x90\xff\xe0", false},
		{"a table", "\x90\xff\x24\xc5\x00\x10\x00\x00", false},
		{"a table in a register", "\x90\xff\x24\xc2", false},
		{"a stub", "\x90\xff\x25\x00\x00\x00\x00", false},
		{"a call", "\x90\xff\x10", false},
	} {
		at, ok := assemble(t, c.text).Dispatch(0x1000, 0x1000+uint64(len(c.text)))
		if ok != c.want || ok && at != 0x1001 {
			t.Errorf("%s: %#x %v", c.name, at, ok)
		}
	}
}

// TestLeavesImage: the code behind the call is at 0x1005 or, if the call is indirect, at 0x1002.
func TestLeavesImage(t *testing.T) {
	for _, c := range []struct {
		name, text string
		size       uint64 // of the call
		want       bool
	}{
		{"indirect", "\xff\xd0\x90", 2, true},
		{"of a function", "\xe8\x01\x00\x00\x00\x90\xc3", 5, false},
		{"of a jump", "\xe8\x01\x00\x00\x00\x90\x48\x83\xc6\x41\xff\xe6", 5, true},
		{"of a jump to a function", "\xe8\x01\x00\x00\x00\x90\xeb\xfd", 5, false},
		{"of a stub", "\xe8\x01\x00\x00\x00\x90\xff\x25\x00\x00\x00\x00", 5, false},
		{"no call", "\x90\x90\x90", 2, false},
	} {
		if got := assemble(t, c.text).LeavesImage(0x1000 + c.size); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
