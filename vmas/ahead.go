package vmas

// This file is about maps, as /proc has them, that show code where records have told of other code: the records may be
// still to come, or the code was moved by mremap(2), which no record tells.

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

// isYounger reports whether a record has told of code at the addresses of a mapping since maps was opened, which shows
// the mapping: the record may have been applied between two pieces of maps.
func (s *Space) isYounger(m *Map, opened uint32) bool {
	for e := range s.layout.from(m.Addr) {
		if e.Start >= m.Addr+m.Len {
			break
		}
		if int32(e.seq-opened) > 0 {
			return true
		}
	}
	return false
}

// maps reports whether a file is mapped.
func (s *Space) maps(path string) bool {
	for e := range s.Mappings() {
		if e.File.Path == path {
			return true
		}
	}
	return false
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
