package compare

import (
	"strings"
	"testing"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
)

// twoStacks is a profile with main calling work, and work calling memcpy of libc.
func twoStacks(program string, work, memcpy uint64) *profile.Profile {
	p := profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: program}, {Name: "libc.so.6"}},
		Frames: []profile.Frame{
			{Name: "main", Known: true}, {Name: "work", Known: true}, {Name: "memcpy", Image: 1, Known: true},
		},
		Events: []profile.Event{{Name: "cpu-clock", Clock: true}},
	})
	thread := profile.Thread{PID: 1, TID: 1, Comm: program}
	p.Add(thread, 0, work, 0, 1)
	p.Samples[0].End = profile.Complete
	p.Add(thread, 0, memcpy, 0, 1, 2)
	return p.Profile
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
