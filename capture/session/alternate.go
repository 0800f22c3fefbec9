package session

import (
	"errors"

	"unspool/capture/counts"
	"unspool/unwind"
)

// This file is about processes that move code with mremap(2) to an address where other code was, which no
// record tells. /proc shows only which code is there now, not which was there when a sample was taken. But
// the stack mostly fits only one of them.

var errAlternates = errors.New("code was moved here with mremap(2), to the address of other code: which of" +
	" the two ran is not known for every stack")

// doubtful reports whether the walk of a live sample may have used mappings of another time than the sample's.
func (s *Session) doubtful(w *work) bool {
	if s.isRecorded() {
		return false
	}
	res := &w.result
	inFile := res.At != nil && res.At.File.Kind.HasImage()
	switch {
	case res.End == unwind.Unmapped,
		inFile && (res.End == unwind.BadCFI || res.End == unwind.NotCopied && !res.LacksC()),
		inFile && res.End == unwind.DumpTooShort && uint64(len(w.stack.Data)) < w.stack.Asked:
		return true
	}
	return res.Astray(w.sample.Time)
}

// choose tries all code that was seen at an address of the walk, and takes the walk through the one that the
// stack fits. If it fits none, or more than one, the stack ends there.
func (s *Session) choose(w *work) {
	first, pc, ok := w.result.Alternating(w.space)
	if !ok || s.isRecorded() {
		return
	}
	told := *w.space.Find(pc) // by the records that were written
	n := w.space.Others(pc) + 1
	chosen, fitting := 0, 0
	for i := range n {
		if i > 0 {
			s.table.Alternate(w.space, pc)
			s.walkIn(w)
		}
		fits, known := w.result.Fits(first)
		if !known {
			s.cut(w, first, pc)
			return
		}
		if fits {
			fitting, chosen = fitting+1, i
		}
	}
	for range chosen + 1 { // once around
		s.table.Alternate(w.space, pc)
	}
	if m := w.space.Find(pc); m.File != told.File || m.Offset != told.Offset {
		s.teller.describeMapping(w.space.PID, m)
	}
	s.walkIn(w)
	if fits, _ := w.result.Fits(first); !fits || fitting != 1 {
		s.cut(w, first, pc)
	}
}

// cut ends the walk at a frame whose code is not known.
func (s *Session) cut(w *work, frame int, pc uint64) {
	m := w.space.Find(pc)
	s.trouble.NoteFile(counts.PathOf(m), errAlternates)
	w.result.CutAt(frame, m)
}
