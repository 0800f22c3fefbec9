package compare

import (
	"strings"
	"testing"

	"unspool/capture/profile"
)

// twoStacks is a profile with main calling work, and work calling memcpy of libc.
func twoStacks(program string, work, memcpy uint64) *profile.Profile {
	return &profile.Profile{
		Images: []profile.Image{{Name: program}, {Name: "libc.so.6"}},
		Frames: []profile.Frame{
			{Name: "main", Known: true}, {Name: "work", Known: true}, {Name: "memcpy", Image: 1, Known: true},
		},
		Nodes: []profile.Node{{Parent: -1, Frame: -1}, {Parent: 0, Frame: 0}, {Parent: 1, Frame: 1},
			{Parent: 2, Frame: 2}},
		Threads: []profile.Thread{{PID: 1, TID: 1, Comm: program}},
		Events:  []profile.Event{{Name: "cpu-clock", Clock: true}},
		Samples: []profile.Sample{
			{Node: 2, CPU: -1, End: profile.Complete, Count: work, Period: work},
			{Node: 3, CPU: -1, Count: memcpy, Period: memcpy},
		},
	}
}

func TestCompareTwo(t *testing.T) {
	a, b := twoStacks("app-fp", 25, 75), twoStacks("app-nofp", 50, 50)
	two := CompareTwo(a, b, "a.data", "b.data")
	const program = "app-fp / app-nofp"
	want := map[string]SideShare{
		"main":   {"main", program, 1, 1, 0, 0},
		"work":   {"work", program, 1, 1, 0.25, 0.5},
		"memcpy": {"memcpy", "libc.so.6", 0.75, 0.5, 0.75, 0.5},
	}
	if len(two.Shares) != len(want) || two.Shares[0].Function != "memcpy" {
		t.Errorf("%+v", two.Shares)
	}
	for _, s := range two.Shares {
		if s != want[s.Function] {
			t.Errorf("%+v, want %+v", s, want[s.Function])
		}
	}
	if two.A.Samples != 100 || two.A.Complete != 1 || two.A.Depth != 2.75 || two.B.Depth != 2.5 {
		t.Errorf("%+v, %+v", two.A, two.B)
	}
	var text strings.Builder
	if err := two.WriteText(&text, Text{}); err != nil ||
		!strings.Contains(text.String(), "  75.0%    50.0%    75.0%    50.0%  memcpy") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// A recording is compared with itself without renaming anything.
func TestCompareTwoOfTheSame(t *testing.T) {
	a, b := twoStacks("app", 1, 1), twoStacks("app", 1, 1)
	for _, s := range CompareTwo(a, b, "a", "b").Shares {
		if s.A != s.B || strings.Contains(s.Image, "/") {
			t.Errorf("%+v", s)
		}
	}
}
