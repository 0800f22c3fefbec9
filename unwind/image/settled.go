package image

import "unspool/vmas"

// A settled is what was seen of a file whose image is known.
type settled struct {
	inode // when the image was determined
	// looked is the time of the last mapping for which the file was looked at since. It was looked at after all
	// mappings until then. 0 stands for none.
	looked uint64
}

// isLookedAt reports whether the file was looked at for a mapping: each one is met twice, before its record is
// taken from the ring and then.
func (s *settled) isLookedAt(m *vmas.Mapping) bool {
	return s != nil && m.Time != 0 && m.Time <= s.looked
}

// lookAt notes that the file was looked at for a mapping, and is the same as before.
func (s *settled) lookAt(m *vmas.Mapping) {
	if s != nil {
		s.looked = max(s.looked, m.Time)
	}
}
