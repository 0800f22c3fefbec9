package session

// A cutShare is how many of a program's last stacks a copy has cut off.
type cutShare struct {
	samples, cut uint64
	read         uint64 // of the cut ones, that were completed by what was read
	at           uint64 // time of the last sample
}

// cutShares are those of all programs, by address space, and of all together. They say whether stacks are read when
// they are sampled, which costs a change of threads for each sample of the machine.
type cutShares struct {
	by  map[uint64]*cutShare
	now uint64 // time of the last sample
}

const (
	// More than one of oneOf stacks of a program has to be cut off for it to begin, and half as many to go on.
	oneOf = 200
	// leastCut is how many that are, at least: one at a time, in a program that is not sampled often, is not worth it.
	leastCut = 4
	// keptSamples is after how many samples of a program the older ones count half.
	keptSamples = 2048
	// silentFor is after how long a program that was not sampled does not count.
	silentFor    = 2_000_000_000
	mostPrograms = 1024
)

// sampled counts a sample of a program, and returns its share.
func (c *cutShares) sampled(space, now uint64) *cutShare {
	s := c.by[space]
	if s == nil {
		if c.by == nil || len(c.by) >= mostPrograms {
			c.by = make(map[uint64]*cutShare)
		}
		s = new(cutShare)
		c.by[space] = s
	}
	if s.samples++; s.samples >= keptSamples {
		s.samples, s.cut, s.read = s.samples/2, s.cut/2, s.read/2
	}
	s.at, c.now = now, max(c.now, now)
	return s
}

// want reports whether the stacks of any program, or of all together, are worth reading; on means that they are read,
// which does not end before so many were sampled that their share means something.
func (c *cutShares) want(on bool) bool {
	of := uint64(oneOf)
	if on {
		of *= 2
	}
	var all cutShare
	for space, s := range c.by {
		if s.at+silentFor < c.now {
			delete(c.by, space)
			continue
		}
		all.samples, all.cut = all.samples+s.samples, all.cut+s.cut
		if s.isMany(of, on) {
			return true
		}
	}
	return all.isMany(of, on) || on && all.samples < of
}

// isRead reports whether reading completes all but one of 64 of the stacks that are cut off.
func (s *cutShare) isRead() bool { return s.read > 0 && (s.cut-s.read)*64 <= s.cut }

func (s *cutShare) isMany(of uint64, on bool) bool {
	return s.cut*of > s.samples && (on || s.cut >= leastCut)
}
