package session

import (
	"unspool/unwind"
)

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
