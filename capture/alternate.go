package capture

import (
	"errors"

	"unspool/capture/counts"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas"
)

// This file is about processes that move code with mremap(2) to an address where other code was, which no
// record tells. /proc shows only which code is there now, not which was there when a sample was taken. But
// the stack mostly fits only one of them.

var errAlternates = errors.New("code was moved here with mremap(2), to the address of other code: which of" +
	" the two ran is not known for every stack")

// doubtful reports whether the walk of a live sample may have used mappings of another time than the sample's.
func (s *Session) doubtful(sm *perfring.Sample, res *unwind.Result) bool {
	if s.recorded {
		return false
	}
	inFile := res.At != nil && res.At.File.Kind.HasImage()
	switch {
	case res.End == unwind.Unmapped,
		inFile && (res.End == unwind.BadCFI || res.End == unwind.NotCopied && !s.walker.LacksC()),
		inFile && res.End == unwind.DumpTooShort && uint64(len(s.stack.Data)) < s.stack.Asked:
		return true
	}
	return s.walker.Astray(sm.Time)
}

// choose tries all code that was seen at an address of the walk, and returns the walk through the one that
// the stack fits. If it fits none, or more than one, the stack ends there.
func (s *Session) choose(space *vmas.Space, sm *perfring.Sample, res unwind.Result) unwind.Result {
	first, pc, ok := s.walker.Alternating(space)
	if !ok || s.recorded {
		return res
	}
	told := *space.Find(pc) // by the records that were written
	n := space.Others(pc) + 1
	chosen, fitting := 0, 0
	for i := range n {
		if i > 0 {
			s.table.Alternate(space, pc)
			res = s.walkIn(space, sm)
		}
		fits, known := s.walker.Fits(first, res.End)
		if !known {
			return s.cut(space, first, pc)
		}
		if fits {
			fitting, chosen = fitting+1, i
		}
	}
	for range chosen + 1 { // once around
		s.table.Alternate(space, pc)
	}
	if m := space.Find(pc); m.File != told.File || m.Offset != told.Offset {
		s.describeMapping(space.PID, m)
	}
	res = s.walkIn(space, sm)
	if fits, _ := s.walker.Fits(first, res.End); !fits || fitting != 1 {
		return s.cut(space, first, pc)
	}
	return res
}

func (s *Session) cut(space *vmas.Space, frame int, pc uint64) unwind.Result {
	m := space.Find(pc)
	s.trouble.NoteFile(counts.PathOf(m), errAlternates)
	return s.walker.CutAt(frame, m)
}
