package capture

import (
	"testing"

	"unspool/perfring"
	"unspool/unwind"
)

// TestPairEncoding writes and reads the last entry of a pair's callchain.
func TestPairEncoding(t *testing.T) {
	for _, end := range []unwind.FrameWalkEnd{unwind.NoFrame, unwind.OffStack, unwind.CopyEnds, unwind.KernelLimit} {
		for flags := range 4 {
			for _, reach := range []int{0, 8, 65528, 1<<40 - 8} {
				p := Pair{End: end, Kernel: flags&1 != 0, Agrees: flags&2 != 0, Reach: reach}
				w := p.encode()
				if got := DecodePair(w); got != p {
					t.Errorf("%+v, want %+v", got, p)
				}
				// Readers of callchains drop zeros at the end, and take large numbers for markers.
				if w == 0 || w >= perfring.ContextMax {
					t.Errorf("%+v is %#x", p, w)
				}
			}
		}
	}
	for _, w := range []uint64{0, ^uint64(0), perfring.ContextMax} { // of a recording by somebody else
		if p := DecodePair(w); p.Reach < 0 {
			t.Errorf("%#x is %+v", w, p)
		}
	}
}

// TestAgree holds chains of the kernel's against walks that were repeated on the copy.
func TestAgree(t *testing.T) {
	for _, c := range []struct {
		name string
		walk unwind.FrameWalk
		own  []uint64
		want bool
	}{
		{"equal", unwind.FrameWalk{IPs: []uint64{1, 2, 3}, End: unwind.NoFrame}, []uint64{1, 2, 3}, true},
		{"equal and full", unwind.FrameWalk{IPs: []uint64{1, 2, 3}, End: unwind.KernelLimit}, []uint64{1, 2, 3}, true},
		{"further than the copy", unwind.FrameWalk{IPs: []uint64{1, 2}, End: unwind.CopyEnds}, []uint64{1, 2, 3}, true},
		{"other memory than the copy", unwind.FrameWalk{IPs: []uint64{1, 2}, End: unwind.OffStack}, []uint64{1, 2, 3}, true},
		{"further than the last frame", unwind.FrameWalk{IPs: []uint64{1, 2}, End: unwind.NoFrame}, []uint64{1, 2, 3}, false},
		{"shorter", unwind.FrameWalk{IPs: []uint64{1, 2}, End: unwind.CopyEnds}, []uint64{1}, false},
		{"another word", unwind.FrameWalk{IPs: []uint64{1, 2}, End: unwind.CopyEnds}, []uint64{1, 4, 3}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := agree(&c.walk, c.own); got != c.want {
				t.Error(got)
			}
		})
	}
}
