package opener

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Who has requests hang leaves room for other users' processes, while alive and when gone.
func TestShares(t *testing.T) {
	t.Parallel()
	ended := make(map[uint32]bool)
	s := shares{most: 3, owner: func(pid uint32) (uint32, error) {
		if ended[pid] {
			return 0, unix.ENOENT
		}
		return pid / 100, nil
	}}
	for i, c := range []struct {
		pid  uint32
		want bool
	}{
		{101, true}, {102, true}, {103, true}, {104, false}, // one user
		{201, true}, {201, true}, {202, true}, {203, false}, // another
		{0, true}, {301, true}, {105, false},
	} {
		if got := s.begin(c.pid); got != c.want {
			t.Errorf("request %d, for process %d: %v", i, c.pid, got)
		}
	}
	ended[101] = true // while its request hangs
	if !s.begin(105) || s.begin(106) {
		t.Error("a request for a process that has ended is its user's still")
	}
	for _, pid := range slices.Clone(s.under) {
		s.end(pid)
	}
	if len(s.under) != 0 {
		t.Errorf("under way: %v", s.under)
	}
}
