package image

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// What is read of files stays in memory, and anybody can make a file that claims to be huge: a sparse one
// takes 16 KB. The largest programs have tables of some 50 MiB, Go's of up to 200.
const (
	maxOfImage = 256 << 20  // bytes of tables
	maxOfAll   = 1024 << 20 // of the tables of all images
	maxOfCode  = 256 << 20  // of the code of all images
)

// A quota is how many bytes may still be read for all images.
type quota struct{ left atomic.Int64 }

func newQuota(bytes int64) *quota {
	q := new(quota)
	q.left.Store(bytes)
	return q
}

// take takes n bytes if there are as many left.
func (q *quota) take(n uint64) bool {
	if n > maxOfAll {
		return false
	}
	if q.left.Add(-int64(n)) < 0 {
		q.give(n)
		return false
	}
	return true
}

// give gives n bytes back.
func (q *quota) give(n uint64) { q.left.Add(int64(n)) }

// errTooLarge is wrapped by errors about tables that exceed a bound.
var errTooLarge = errors.New("it is not used")

// A share is what one image has taken of a quota.
type share struct {
	of    *quota
	taken uint64
}

// allow takes size bytes of tables.
func (s *share) allow(size uint64) error {
	switch {
	case size > maxOfImage || s.taken+size > maxOfImage:
		return fmt.Errorf("unwind tables of %d bytes, at most %d are read: %w",
			s.taken+size, maxOfImage, errTooLarge)
	case !s.of.take(size):
		return fmt.Errorf("no room for %d bytes of unwind tables beside those of other files: %w",
			size, errTooLarge)
	}
	s.taken += size
	return nil
}

// giveBack gives back all that was taken.
func (s *share) giveBack() {
	if s.taken > 0 {
		s.of.give(s.taken)
		s.taken = 0
	}
}
