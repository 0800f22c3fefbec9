package report

import (
	"strings"
	"testing"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
)

// TestStacksBeginInAStrippedLibrary has a program whose C library has no names: its stacks begin there, and some go
// through it, or end in it.
func TestStacksBeginInAStrippedLibrary(t *testing.T) {
	p := profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: "prog", Path: "/bin/prog"}, {Name: "libc.so.6", Path: "/lib/libc.so.6"}},
		Frames: []profile.Frame{{Name: "_start", Known: true}, {Name: "[libc.so.6+0x1]", Image: 1},
			{Name: "[libc.so.6+0x2]", Image: 1}, {Name: "main", Known: true}, {Name: "compare", Known: true}},
		Events: []profile.Event{{Name: "cpu-clock", Clock: true}},
	})
	thread := profile.Thread{PID: 1, TID: 1, Comm: "prog"}
	const start, outer, inner, main, compare = 0, 1, 2, 3, 4
	p.Add(thread, 0, 80, start, outer, inner, main)
	p.Add(thread, 0, 10, start, outer, inner, main, outer, compare)
	p.Add(thread, 0, 6, start, outer, inner, main, inner)
	p.Add(thread, 0, 4, start, outer)
	got := write(t, p.Profile, Options{Width: 1000})
	const want = "20.0 % of the stacks go through code without names, 10.0 % end in it; 20.0 % in libc.so.6"
	if !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}
