package capture

import (
	"unspool/perfring"
	"unspool/unwind"
)

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
