package profile

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// made is a profile of one thread with these stacks, outermost frame first, each sampled once.
func made(t testing.TB, frames []Frame, stacks ...[]int32) *Profile {
	t.Helper()
	b := newBuilder(nil)
	b.p.Images = []Image{{Name: "a.out"}, {Name: "lib.so"}}
	b.p.Threads, b.p.Events = []Thread{{1, 1, "a.out", "a.out"}}, []Event{{Name: "cycles"}}
	b.p.Frames = frames
	for _, s := range stacks {
		slices.Reverse(s)
		node, _ := b.stack(0, 0, 0, s)
		b.add(Sample{Node: node, CPU: -1, Count: 1, Period: 10})
	}
	if err := b.p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return b.p
}

// weights are the samples by the names in their stacks, leaf first.
func weights(p *Profile) map[string]uint64 {
	w := map[string]uint64{}
	for _, s := range p.Samples {
		w[strings.Join(stackOf(p, s.Node), " ")] += s.Count
	}
	return w
}

func TestByFunction(t *testing.T) {
	main1 := Frame{Name: "main", Known: true, Addr: 0x100, PC: 0x110, File: "main.c", Line: 3, Column: 7}
	main2 := Frame{Name: "main", Known: true, Addr: 0x100, PC: 0x120, File: "main.c", Line: 4}
	for _, c := range []struct {
		name    string
		frames  []Frame
		stacks  [][]int32
		frames2 int // number of frames that are left
		nodes   int // number of nodes that are left, with the root
		want    map[string]uint64
	}{
		{"nothing", nil, nil, 0, 1, map[string]uint64{}},
		{"a stack without frames", nil, [][]int32{{}}, 0, 1, map[string]uint64{"": 1}},
		{"places of a function are one", []Frame{main1, main2}, [][]int32{{0}, {1}, {1}}, 1, 2,
			map[string]uint64{"main": 3}},
		{"what they call comes together", []Frame{main1, main2, {Name: "f", Known: true, Addr: 0x200, PC: 0x210}},
			[][]int32{{0, 2}, {1, 2}, {1}}, 2, 3,
			map[string]uint64{"f main": 2, "main": 1}},
		{"recursion stays", []Frame{main1, main2}, [][]int32{{0, 1, 0}, {1, 1, 1}, {0, 0}}, 1, 4,
			map[string]uint64{"main main main": 2, "main main": 1}},
		{"functions of the same name are several",
			[]Frame{main1, {Name: "main", Known: true, Addr: 0x900, PC: 0x910},
				{Name: "main", Known: true, Image: 1, Addr: 0x100, PC: 0x110}},
			[][]int32{{0}, {1}, {2}}, 3, 4, map[string]uint64{"main": 3}},
		{"inlined at several places", []Frame{main1, main2,
			{Name: "sq", Known: true, Inlined: true, PC: 0x110, Line: 9},
			{Name: "sq", Known: true, Inlined: true, PC: 0x120, Line: 9}},
			[][]int32{{0, 2}, {1, 3}, {0}}, 2, 3, map[string]uint64{"sq main": 2, "main": 1}},
		{"inlined here, called there",
			[]Frame{main1, {Name: "sq", Known: true, Inlined: true, PC: 0x110},
				{Name: "sq", Known: true, Addr: 0x300, PC: 0x310}},
			[][]int32{{0, 1}, {0, 2}}, 3, 4, map[string]uint64{"sq main": 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := made(t, c.frames, c.stacks...)
			before := *p
			samples, nodes := slices.Clone(p.Samples), slices.Clone(p.Nodes)
			q := p.ByFunction()
			if err := q.CheckValid(); err != nil {
				t.Fatal(err)
			}
			if got := weights(q); !maps.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
			if len(q.Frames) != c.frames2 || len(q.Nodes) != c.nodes || q.Count() != p.Count() {
				t.Errorf("%d frames, %d nodes, %d samples; want %d, %d, %d", len(q.Frames), len(q.Nodes), q.Count(),
					c.frames2, c.nodes, p.Count())
			}
			for _, f := range q.Frames {
				if f.PC != 0 || f.Line != 0 || f.Column != 0 {
					t.Errorf("%+v", f)
				}
			}
			for _, s := range q.Samples {
				if s.Period != 10*s.Count {
					t.Errorf("%+v", s)
				}
			}
			if !slices.Equal(p.Samples, samples) || !slices.Equal(p.Nodes, nodes) ||
				len(p.Frames) != len(before.Frames) || len(c.frames) > 0 && p.Frames[0] != c.frames[0] {
				t.Error("the profile itself has changed")
			}
		})
	}
}
