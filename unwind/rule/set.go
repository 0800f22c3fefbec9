package rule

import "unsafe"

// A Set is what is remembered of the code of a file: its rules, and answers to questions about its calls. All are kept
// by offset in the file.
type Set struct {
	Cache
	wide []WideRule

	Leaving  Answers // whether the call before an offset can lead to code that is in no file
	Hostless Answers // whether the call before an offset leads to no interpreter that jumps to generated code
}

// maxWide is how many rules of the kind Wide there may be.
const maxWide = 1 << 16

// PutWide keeps a rule whose numbers are too large for a [Rule], and returns the one to use in its place. ok is false
// if there is no room.
func (s *Set) PutWide(w WideRule) (r Rule, ok bool) {
	if len(s.wide) >= maxWide {
		return None, false
	}
	s.wide = append(s.wide, w)
	return WideAt(len(s.wide) - 1), true
}

// Wide returns the numbers of a rule of the kind [Wide].
func (s *Set) Wide(r Rule) *WideRule { return &s.wide[r.Index()] }

// Size returns how many bytes of memory the rules take.
func (s *Set) Size() int { return s.Cache.Size() + int(unsafe.Sizeof(WideRule{}))*cap(s.wide) }

// Drop drops all rules, but not the answers, nor what wide rules in use have.
func (s *Set) Drop() { s.Cache = Cache{} }

// Answers keeps what was found out about places in a file, by their offsets. Its zero value has none.
type Answers struct{ cache Cache }

// An Answer is one of these.
type Answer Rule

const (
	Unasked Answer = iota
	No
	Yes
)

// Get returns the answer for an offset.
func (a *Answers) Get(off uint64) Answer {
	if off>>32 != 0 {
		return Unasked
	}
	return Answer(a.cache.Get(uint32(off)))
}

// Put keeps the answer for an offset for which Get has none. Offsets of more than 32 bits are not kept.
func (a *Answers) Put(off uint64, yes bool) {
	switch {
	case off>>32 != 0:
	case yes:
		a.cache.Put(uint32(off), Rule(Yes))
	default:
		a.cache.Put(uint32(off), Rule(No))
	}
}
