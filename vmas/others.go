package vmas

import "slices"

// This file is about code that takes the place of other code without a record, as mremap(2) can have it: it
// is seen when maps is read. A program may do that again and again, so what was there before is kept: it
// may be there again.

// maxOthers is how many pieces of code are kept of a process that are not where they were seen.
const maxOthers = 4

// moved notes what a mapping that maps shows takes the place of, and reports whether that is other code. When
// records were lost one of them may have told.
func (t *Table) moved(s *Space, m *Map) bool {
	_, kind, _ := classify(string(m.Name))
	if m.Prot&ProtExec == 0 || !kind.HasImage() || s.Doubted() {
		return false
	}
	var found []Mapping
	for e := range s.layout.from(m.Addr) {
		if e.Start >= m.Addr+m.Len || len(found) >= maxOthers {
			break
		}
		if e.isOther(m) {
			found = append(found, e.part(max(e.Start, m.Addr), min(e.End, m.Addr+m.Len)))
		}
	}
	if len(found) > 0 {
		t.dropReturned(s, m)
	}
	for i := range found {
		t.keepOther(s, found[i])
	}
	return len(found) > 0
}

// dropReturned forgets that the code of m was somewhere: it is there again.
func (t *Table) dropReturned(s *Space, m *Map) {
	for i := len(s.others) - 1; i >= 0; i-- {
		if o := &s.others[i]; o.Start < m.Addr+m.Len && m.Addr < o.End && !o.isOther(m) {
			t.dropOther(s, i)
		}
	}
}

// isAhead reports whether a mapping that maps shows is of code that no record of the address space has
// told of, where there is other code: the records are still to come, and what they tell of is not
// what older samples ran. Code that was moved is of a file that is known, and no record of a mapping is to come. When
// records were lost one of them may have told.
func (t *Table) isAhead(s *Space, m *Map) bool {
	path, kind, _ := classify(string(m.Name))
	if m.Prot&ProtExec == 0 || !kind.HasImage() || s.Doubted() {
		return false
	}
	conflicts := false
	for e := range s.layout.from(m.Addr) {
		if e.Start >= m.Addr+m.Len || conflicts {
			break
		}
		conflicts = e.isOther(m)
	}
	return conflicts && (!s.maps(path) || t.IsMappingToCome(s.PID))
}

// hidesCode reports whether a mapping that maps shows has no code where records have told of a file's. A library that
// is being loaded in the place of another one begins so. That code is gone now, but not for samples that are older
// than maps, and what comes there is told by a record.
func (s *Space) hidesCode(m *Map) bool {
	if m.Prot&ProtExec != 0 {
		return false
	}
	for e := range s.layout.from(m.Addr) {
		return e.Start < m.Addr+m.Len && e.File.Kind.HasImage()
	}
	return false
}

// maps reports whether a file is mapped, or was where other code is now.
func (s *Space) maps(path string) bool {
	for e := range s.Mappings() {
		if e.File.Path == path {
			return true
		}
	}
	return slices.ContainsFunc(s.others, func(m Mapping) bool { return m.File.Path == path })
}

// isOther reports whether e is the code of another file than m, or of another place in it.
func (e *Mapping) isOther(m *Map) bool {
	return e.Copied == nil && e.File.Kind.HasImage() &&
		(e.File.Path != pathOf(m) || e.Offset-e.Start != m.Offset-m.Addr)
}

func pathOf(m *Map) string {
	path, _, _ := classify(string(m.Name))
	return path
}

// part is what a mapping has from start to end.
func (e *Mapping) part(start, end uint64) Mapping {
	p := *e
	p.Offset += start - e.Start
	p.Start, p.End = start, end
	return p
}

// keepOther remembers code that was there, unless it is known, in the place of the oldest if there is much.
func (t *Table) keepOther(s *Space, m Mapping) {
	for i := range s.others {
		o := &s.others[i]
		if o.Start == m.Start && o.End == m.End && o.File == m.File && o.Offset == m.Offset {
			return
		}
	}
	if len(s.others) >= maxOthers {
		t.dropOther(s, 0)
	}
	t.files.retain(&m)
	s.others = append(s.others, m)
}

func (t *Table) dropOther(s *Space, i int) {
	t.files.release(&s.others[i])
	s.others = slices.Delete(s.others, i, i+1)
}

// dropOthers forgets what was there from start to end, as a record tells what is now.
func (t *Table) dropOthers(s *Space, start, end uint64) {
	for i := len(s.others) - 1; i >= 0; i-- {
		if s.others[i].Start < end && start < s.others[i].End {
			t.dropOther(s, i)
		}
	}
}

// Others returns how many pieces of code are known that were at an address and are not, of which no record told.
func (s *Space) Others(addr uint64) (n int) {
	for i := range s.others {
		if s.others[i].Start <= addr && addr < s.others[i].End {
			n++
		}
	}
	return n
}

// Alternates reports whether the process has moved code to where other code was.
func (s *Space) Alternates() bool { return len(s.others) > 0 }

// Alternate puts the code that has been away from an address for longest back there, in the place of what is
// there now. It returns its mapping, nil if there is none.
func (t *Table) Alternate(s *Space, addr uint64) *Mapping {
	i := slices.IndexFunc(s.others, func(m Mapping) bool { return m.Start <= addr && addr < m.End })
	if i < 0 {
		return nil
	}
	m := s.others[i]
	t.files.retain(&m) // for as long as it is in neither place
	t.dropOther(s, i)
	for e := range s.layout.from(m.Start) {
		if e.Start >= m.End {
			break
		}
		if len(s.others) < maxOthers {
			t.keepOther(s, e.part(max(e.Start, m.Start), min(e.End, m.End)))
		}
	}
	t.seq++
	m.seq = t.seq
	s.layout = s.layout.unshared()
	s.layout.insert(&t.files, m)
	t.files.release(&m)
	s.changed()
	return s.Find(addr)
}
