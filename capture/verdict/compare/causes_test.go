package compare_test

import (
	"bytes"
	"os"
	"testing"

	"unspool/capture/live"
	"unspool/capture/verdict/compare"
)

// TestCauses records programs for which it is known where frame pointers lead, and why.
func TestCauses(t *testing.T) {
	causes := buildProgram(t, "causes", everywhere...)
	for _, c := range []struct {
		name    string
		options live.Options
		program string // an argument of the program causes, if not a path
		class   compare.Class
		leaf    string // where the page faults are
		blamed  string // function
		lost    int
	}{
		{"frame pointers everywhere", live.Options{}, "s", compare.Same, "spin", "", 0},
		{"a leaf without one", live.Options{}, "b", compare.LeafCaller, "bare", "bare", 1},
		{"a leaf with one on other paths only", live.Options{}, buildProgram(t, "shrink", withFP...),
			compare.LeafCaller, "often", "often", 1},
		{"a function without one", live.Options{}, "p", compare.Middle, "spin", "passing", 1},
		{"a leaf that counts in BP", live.Options{}, "z", compare.Early, "zero", "zero", 3},
		{"a leaf that has a pointer in BP", live.Options{}, "a", compare.Astray, "astray", "astray", 3},
		{"deeper than the kernel's chains", live.Options{}, "d", compare.Cut, "spin", "", 176},
		{"deeper than the copy, which the kernel's chain completes", live.Options{StackSize: 8192}, "w",
			compare.Same, "spin", "", 0},
		{"deeper than the copy", live.Options{StackSize: 8192, Strict: true}, "w", compare.Cut, "spin", "", 0},
		{"a frame pointer where there is no CFI", live.Options{}, "u", compare.Same, "unlisted", "", 0},
		{"the same by CFI alone", live.Options{Strict: true}, "u", compare.DWARFStops, "unlisted", "", 0},
		{"neither", live.Options{Strict: true}, "n", compare.BothStop, "unlisted_zero", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.options
			if o.Command = []string{causes, c.program}; len(c.program) > 1 {
				o.Command = []string{c.program}
			}
			r := record(t, o)
			seen := 0
			for i := range r.Groups {
				g := &r.Groups[i]
				if r.DWARF.Frames[r.stack(r.DWARF, g, g.DWARF)[0]].Name != c.leaf {
					continue
				}
				seen += int(g.Count)
				if g.Class != c.class {
					t.Errorf("%d samples: %s", g.Count, g.Class)
				}
				if g.Missed != c.lost {
					t.Errorf("%d frames are lost", g.Missed)
				}
				if b := r.blamedAt(g); c.blamed != "" && (b < 0 || r.DWARF.Frames[b].Name != c.blamed) {
					t.Errorf("parted %d", g.Parted)
				}
			}
			if seen != touches {
				t.Errorf("%d samples, want %d", seen, touches)
			}
			content, err := os.ReadFile(r.path)
			if err != nil || bytes.Contains(content, []byte("10terces")) ||
				bytes.Contains(content, []byte("20terces")) {
				t.Errorf("what BP pointed to is in the file, or: %v", err)
			}
			r.examples(t, 1)
		})
	}
}
