package asm

import (
	"slices"
	"strings"
	"testing"
)

func TestExits(t *testing.T) {
	const lo = 0x1000
	for _, c := range []struct {
		name, text string
		size       uint64 // of the function; the bytes behind belong to another one
		want       []Exit
		known      bool
	}{
		{"ret", "\x90\xc3", 2, nil, true},
		{"jump within", "\xeb\x00\xc3", 3, nil, true},
		{"tail call", "\x90\xe9\x10\x00\x00\x00", 6, []Exit{{At: lo + 1, Target: lo + 0x16}}, true},
		{"branch into a cold part, twice", "\x0f\x84\x10\x00\x00\x00\x0f\x85\x0a\x00\x00\x00\xc3", 13,
			[]Exit{{At: lo, Target: lo + 0x16}}, true},
		{"jump through a register", "\x3e\xff\xe0", 3, []Exit{{At: lo, Indirect: true}}, true},
		{"retpoline", "\xe8\x02\x00\x00\x00\xeb\xfe\x4c\x89\x1c\x24\xc3", 12, []Exit{{At: lo + 11, Indirect: true}}, true},
		{"pushes where it returns to", "\x57\xc3", 2, []Exit{{At: lo + 1, Indirect: true}}, true},
		{"stores elsewhere", "\x4c\x89\x1c\x25\x00\x10\x00\x00\xc3", 9, nil, true},
		{"falls through", "\x90\x90\xc3", 2, []Exit{{At: lo + 1, Target: lo + 2}}, true},
		{"ends with a call", "\xe8\x00\x00\x00\x00\xc3", 5, nil, true},
		{"no instruction", "\x90\x06\xc3", 3, nil, false},
	} {
		exits, known := assemble(t, c.text).Exits(lo, lo+c.size)
		if !slices.Equal(exits, c.want) || known != c.known {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.name, exits, known, c.want, c.known)
		}
	}
	if _, known := assemble(t, "\xc3").Exits(lo, ^uint64(0)); known {
		t.Error("all of memory was looked through")
	}
}

func TestPaddedEnd(t *testing.T) {
	const lo = 0x1000
	for _, c := range []struct {
		name, text string
		size       uint64 // 0 for unknown
	}{
		{"after ret", "\x90\xc3" + strings.Repeat("\xcc", 14) + "\xc3", 2},
		{"after the second ret", "\x90\xc3\x90\xc3" + strings.Repeat("\xcc", 12) + "\xc3", 4},
		{"after a last call", "\xe8\x00\x00\x00\x00" + strings.Repeat("\xcc", 11) + "\xc3", 5},
		{"it stops itself",
			strings.Repeat("\x90", 14) + "\xc3\xcc\x0f\x0b\xc3" + strings.Repeat("\xcc", 13) + "\xc3", 0x13},
		{"other padding", "\xc3" + strings.Repeat("\x90", 15) + "\xc3", 0},
		{"no instruction", "\x06\xc3", 0},
	} {
		end, ok := assemble(t, c.text+"\x90\x90").PaddedEnd(lo, 32)
		if ok != (c.size > 0) || ok && end != lo+c.size {
			t.Errorf("%s: %#x, %v; want %#x", c.name, end, ok, lo+c.size)
		}
	}
}

func TestEndOfReturning(t *testing.T) {
	const lo = 0x1000
	traps := func(n int) string { return strings.Repeat("\xcc", n) }
	for _, c := range []struct {
		name, text string
		size       uint64 // 0 where the function may be left by a jump
	}{
		{"after ret", "\x90\xc3" + traps(14), 2},
		{"behind traps that a jump passes over",
			"\x74\x0e\xe8\x00\x00\x00\x00" + traps(9) + "\xc3" + traps(15), 17},
		{"jump back", "\x74\xf0\xc3" + traps(13), 0},
		{"jump far away", "\xe9\x00\x00\x01\x00" + traps(11), 0},
		{"jump through a register", "\xff\xe0" + traps(14), 0},
		{"other padding", "\xc3" + strings.Repeat("\x90", 15), 0},
	} {
		want := lo + c.size
		if c.size == 0 {
			want = 0
		}
		code := assemble(t, c.text+"\x90\x90")
		for range 2 { // the second time it is known
			if end := code.EndOfReturning(lo); end != want {
				t.Errorf("%s: %#x, want %#x", c.name, end, want)
			}
		}
	}
}

func TestCallBefore(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       Call
	}{
		{"direct", "\xe8\x0b\x00\x00\x00", Call{Target: 0x1010, Direct: true}},
		{"through a register", "\xff\xd0", Call{Indirect: true}},
		{"through a table, which looks like a direct call", "\xff\x94\xe8\x00\x01\x00\x00",
			Call{Target: 0x1107, Direct: true, Indirect: true}},
		{"jump", "\xe9\x00\x00\x00\x00", Call{}},
	} {
		got := assemble(t, c.text+"\xc3").CallBefore(0x1000 + uint64(len(c.text)))
		if !got.Direct {
			got.Target = 0
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestNoReturnInAnyOrder has functions of which each calls the next one, and the last does not return. Of the first one
// that is not found, as the calls are too many; of the others it is, whether the first was asked about before or not.
func TestNoReturnInAnyOrder(t *testing.T) {
	const size = 16
	call := "\xe8\x0b\x00\x00\x00\xc3" + strings.Repeat("\xcc", size-6)
	for name, order := range map[string][]int{"first before": {0, 1, 2, 3}, "last before": {3, 2, 1, 0}} {
		c := assemble(t, strings.Repeat(call, deepestCall)+"\xeb\xfe")
		c.left = mostWork
		c.chart()
		for _, i := range order {
			if got := c.noReturn(0x1000+uint64(i)*size, 1); got != (i > 0) {
				t.Errorf("%s: function %d does not return: %v", name, i, got)
			}
		}
	}
}
