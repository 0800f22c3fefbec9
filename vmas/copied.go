package vmas

// Copied says which file's code was where memory without a file is now. Programs move their code
// to huge pages like that: they map memory over it and copy it back (node --use-largepages, BOLT's
// -hugify, HHVM). Whether the memory holds that code is not known here: a program may as well have
// unmapped a library, of which no record tells, and generated code in its place.
type Copied struct {
	File       *File
	Start, End uint64 // where the file's code was: the mapping, or a part of it
	Offset     uint64 // of Start in the file
	// Behind says that the file's part in front of Start was all there is to go by: Offset is where
	// that part ends. Program headers may say otherwise.
	Behind bool

	// Asked and Same are for the unwinder to use, which compares the copy with the file. This package does
	// not read them.
	Asked uint32
	Same  bool
}

// Settle says that m holds the code of m.Copied.File: Offset is that of Start in the file from now
// on, wrapped around where m starts before the file's code. It reports whether that is news.
func (m *Mapping) Settle() bool {
	if m.settled {
		return false
	}
	m.settled = true
	m.Offset = m.Copied.Offset + m.Start - m.Copied.Start
	return true
}

// copied is what m may be a copy of, nil if there is nothing. before is the line before m in maps,
// empty for a record.
func (t *Table) copied(s *Space, m, before *Map) *Copied {
	if _, kind, _ := classify(string(m.Name)); m.Prot&ProtExec == 0 || kind != Anonymous {
		return nil
	}
	end := m.Addr + m.Len
	maps := s.layout.maps
	for i := s.layout.search(m.Addr); i < len(maps) && maps[i].Start < end; i++ {
		e := &maps[i]
		if e.Copied != nil {
			return e.Copied // made executable, or moved once more
		}
		if e.File.Kind == Regular || e.File.Kind == Memfd {
			lo, hi := max(e.Start, m.Addr), min(e.End, end)
			return &Copied{File: e.File, Start: lo, End: hi, Offset: e.Offset + lo - e.Start}
		}
	}
	// The records are over: maps has it between the file's other parts.
	if _, kind, _ := classify(string(before.Name)); before.Len == 0 || before.Addr+before.Len != m.Addr ||
		kind != Regular || before.ID.Inode == 0 {
		return nil
	}
	f := t.files.intern(before.Name, before.ID, before.Addr, before.Len)
	return &Copied{File: f, Start: m.Addr, End: end, Offset: before.Offset + before.Len, Behind: true}
}
