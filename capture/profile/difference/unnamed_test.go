package difference

import (
	"maps"
	"strings"
	"testing"

	"unspool/capture/symbols"
)

// Functions that have names in one recording only are not compared one by one, and neither are addresses in
// different files: all of them are one function, and one place where they call each other.
func TestUnnamed(t *testing.T) {
	work := func() *stacks {
		return newStacks().add("w", 0, 60, "main", "/w", "mix", "/w", "sum", "/w").
			add("w", 0, 40, "main", "/w", "qsort", "/libc", "cmp", "/w")
	}
	// Of an image's functions, those that are not called by these names have none.
	bare := func(s *stacks, id byte, named ...string) Run {
		s.Images[0].BuildID = []byte{id}
		for i := range s.Frames {
			if f := &s.Frames[i]; f.Image == 0 && !strings.Contains(strings.Join(named, " "), f.Name) {
				f.Known, f.Name = false, "[w+"+f.Name+"]"
			}
		}
		return s.recording()
	}
	const every = "main mix sum cmp"
	found := work()
	found.Images[0].Code = make([]symbols.CodeSegment, 1)
	for _, c := range []struct {
		name  string
		a, b  Run
		says  string
		want  map[string][2]uint64
		nodes int
	}{
		{"built anew after A", bare(work(), 1), bare(work(), 2, every),
			"w is not here as A recorded it: its functions count as one, [w]. Keep a program before you build it " +
				"anew: perf buildid-cache --add FILE, or build it under another name",
			map[string][2]uint64{"[w] w": {100, 100}, "qsort libc": {40, 40}}, 4},
		{"B is stripped", bare(work(), 1, every), bare(found, 2),
			"B has too few names of functions of w: all of them count as one, [w]",
			map[string][2]uint64{"[w] w": {100, 100}, "qsort libc": {40, 40}}, 4},
		{"both are stripped", bare(work(), 1, "main"), bare(work(), 2, "main"), "",
			map[string][2]uint64{"main w": {100, 100}, "[w] w": {100, 100}, "qsort libc": {40, 40}}, 5},
		{"the same file", bare(work(), 1), bare(work(), 1), "",
			map[string][2]uint64{"[w+main] w": {100, 100}, "[w+mix] w": {60, 60}, "[w+sum] w": {60, 60},
				"[w+cmp] w": {40, 40}, "qsort libc": {40, 40}}, 6},
		{"the same file, in other functions", bare(work(), 1), bare(work(), 1, every), "",
			map[string][2]uint64{"[w+main] w": {100, 0}, "[w+mix] w": {60, 0}, "[w+sum] w": {60, 0},
				"[w+cmp] w": {40, 0}, "main w": {0, 100}, "mix w": {0, 60}, "sum w": {0, 60}, "cmp w": {0, 40},
				"qsort libc": {40, 40}}, 11},
	} {
		m := merged(t, c.a, c.b)
		if got := total(t, m, 0); !maps.Equal(got, c.want) || len(m.Nodes) != c.nodes {
			t.Errorf("%s: %v in %d nodes, want %v in %d", c.name, got, len(m.Nodes), c.want, c.nodes)
		}
		says := ""
		for i := range m.Unnamed {
			says += m.Unnamed[i].String()
		}
		if says != c.says || len(m.Unnamed) > 0 && !m.Unnamed[0].Much {
			t.Errorf("%s: %q, want %q", c.name, says, c.says)
		}
	}
}
