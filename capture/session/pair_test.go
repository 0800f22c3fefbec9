package session

import (
	"testing"

	"unspool/unwind"
)

// TestAgree compares chains of the kernel with walks that were repeated on the copy.
func TestAgree(t *testing.T) {
	for _, c := range []struct {
		name string
		walk unwind.FrameWalk
		own  []uint64
		want bool
	}{
		{"equal", unwind.FrameWalk{IPs: []uint64{1, 2, 3}, End: unwind.NoFrame}, []uint64{1, 2, 3}, true},
		{"equal and full", unwind.FrameWalk{IPs: []uint64{1, 2, 3}, End: unwind.KernelLimit}, []uint64{1, 2, 3},
			true},
		{"further than the copy", unwind.FrameWalk{IPs: []uint64{1, 2}, End: unwind.CopyEnds}, []uint64{1, 2, 3},
			true},
		{"other memory than the copy", unwind.FrameWalk{IPs: []uint64{1, 2}, End: unwind.OffStack},
			[]uint64{1, 2, 3}, true},
		{"further than the last frame", unwind.FrameWalk{IPs: []uint64{1, 2}, End: unwind.NoFrame},
			[]uint64{1, 2, 3}, false},
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
