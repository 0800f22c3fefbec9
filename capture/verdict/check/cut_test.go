package check

import (
	"testing"

	"unspool/capture/symbols"
	"unspool/perfring"
	"unspool/testdata/programs"
	"unspool/unwind"
)

// A copied stack is one whose walk came to the end of the copy.
type copied struct {
	tid       uint32
	base      uint64
	got, size int
}

func (c copied) walked(s *stacks, time uint64) {
	sm := perfring.Sample{PID: 1, TID: c.tid, Time: time, Stack: make([]byte, c.got), DynSize: uint64(c.got),
		StackSize: uint64(c.size)}
	s.walked(&sm, &unwind.Result{End: unwind.DumpTooShort, Frames: []unwind.Frame{{SP: c.base}}})
}

// TestCutsAreJudgedByTheRecording has walks that all claim that the stack goes on beyond its copy.
func TestCutsAreJudgedByTheRecording(t *testing.T) {
	const top = 0x7f0000800000
	mapping := extent{top - 0x800000, top}
	for _, c := range []struct {
		name   string
		maps   []extent
		others []copied // of the recording
		cut    copied
		want   CutStack
	}{
		{"a full copy, of a stack of which nobody knows the top", nil, nil,
			copied{1, top - 0x10000, 4096, 4096}, TooDeep},
		{"a full copy that ends below the mapping's end", []extent{mapping}, nil,
			copied{1, top - 0x10000, 4096, 4096}, TooDeep},
		{"a full copy that goes on in the next mapping", []extent{mapping}, nil,
			copied{1, top - 0x1000, 8192, 8192}, NotCut},
		{"a copy up to the end of the mapping", []extent{mapping}, nil, copied{1, top - 0x800, 0x800, 8192},
			NotCut},
		{"with the guard page of the mapping above", []extent{{mapping.lo, top + 4096}}, nil,
			copied{1, top - 0x800, 0x800, 8192}, NotCut},
		{"a copy that ends early in the mapping", []extent{mapping}, nil,
			copied{1, top - 0x10000, 0x800, 8192}, Gap},
		{"another thread mapped there later", []extent{mapping, {top - 0x900000, top - 0x8000}}, nil,
			copied{1, top - 0x10000, 0x8000, 0x10000}, NotCut},
		{"a copy that ends where all of the thread's do", nil, []copied{{1, top - 0x2000, 0x2000, 0x4000}},
			copied{1, top - 0x800, 0x800, 8192}, NotCut},
		{"a copy that ends below where others of the thread do", nil,
			[]copied{{1, top - 0x2000, 0x2000, 0x4000}}, copied{1, top - 0x10000, 0x800, 8192}, Gap},
		{"a full copy that others of the thread reach beyond", nil,
			[]copied{{1, top - 0x2000, 0x2000, 0x4000}}, copied{1, top - 0x10000, 4096, 4096}, TooDeep},
		{"a full copy with the top in it", nil, []copied{{1, top - 0x2000, 0x2000, 0x4000}},
			copied{1, top - 0x800, 4096, 4096}, NotCut},
		{"another thread's stack says nothing", nil, []copied{{2, top - 0x2000, 0x2000, 0x4000}},
			copied{1, top - 0x800, 4096, 4096}, TooDeep},
	} {
		s := newStacks()
		for _, m := range c.maps {
			s.mapped(1, m)
		}
		for _, o := range c.others {
			o.walked(&s, 1)
		}
		c.cut.walked(&s, 2)
		if got := s.judge(&s.came[len(s.came)-1]); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestManyMappings has more of them than are remembered: that of the main thread's stack and the latest are.
func TestManyMappings(t *testing.T) {
	s := newStacks()
	stack := extent{0x7ffc00000000, 0x7ffc00021000}
	s.mapped(1, stack)
	var last extent
	for i := range uint64(2 * maxMappings) {
		last = extent{i << 20, i<<20 + 4096}
		s.mapped(1, last)
	}
	maps := s.maps[1]
	if len(maps) != maxMappings || maps[0] != stack || maps[len(maps)-1] != last {
		t.Errorf("%d, from %+v to %+v", len(maps), maps[0], maps[len(maps)-1])
	}
}

// TestCutsOfAProgram records a program that is deeper than the copy.
func TestCutsOfAProgram(t *testing.T) {
	t.Parallel()
	const times = 400
	c := New(symbols.New(symbols.Options{}))
	walk(t, recordingOf(t, programs.Build(t, "deep"), programs.Times(times)), c)
	w := c.Walks()
	// The first ones of the stack's own pages have a gap at SP.
	if w.Cuts[TooDeep] < times || w.Cuts[NotCut] > 0 || w.Complete+w.Cuts[TooDeep]+w.Cuts[Gap] != w.User {
		t.Errorf("%+v", w)
	}
}
