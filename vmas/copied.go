package vmas

import "strings"

// Copied is which file's code was mapped where anonymous memory, or a file that exists in memory only, is
// mapped now. Programs move their code to huge pages like that: they map memory over the code and copy the
// code back into it (node --use-largepages, BOLT's -hugify, HHVM). Whether the memory really holds that code
// is not known here: the program may as well have unmapped a library, which no record tells, and generated
// code at the same addresses.
type Copied struct {
	File       *File
	Start, End uint64 // where the file's code was: the mapping, or a part of it
	Offset     uint64 // of Start in the file
	// Behind means that Offset is only derived from the part of the file that is mapped before Start: it is
	// the offset at which that part ends. The program headers may say otherwise.
	Behind bool

	// Asked and Same are for the unwinder to use, which compares the copy with the file. This package does
	// not read them.
	Asked uint32
	Same  bool
}

// Settle notes that m holds the code of m.Copied.File: Offset is that of Start in the file from now
// on, wrapped around if m starts before the file's code. It reports whether this was not known before.
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
	if m.Prot&ProtExec == 0 || !isMadeUp(m.Name) {
		return nil
	}
	end := m.Addr + m.Len
	for e := range s.layout.from(m.Addr) {
		if e.Start >= end {
			break
		}
		if e.Copied != nil {
			return e.Copied // made executable, or moved once more
		}
		if e.File.Name() == string(m.Name) && e.File.FileID == m.ID {
			continue // itself, made executable
		}
		if e.File.Kind == Regular || e.File.Kind == Memfd {
			lo, hi := max(e.Start, m.Addr), min(e.End, end)
			return &Copied{File: e.File, Start: lo, End: hi, Offset: e.Offset + lo - e.Start}
		}
	}
	// No code is known to have been there, but maps may show m right behind a part of a file.
	if _, kind, _ := classify(string(before.Name)); before.Len == 0 || before.Addr+before.Len != m.Addr ||
		kind != Regular || before.ID.Inode == 0 {
		return nil
	}
	f := t.files.intern(before.Name, before.ID, before.Addr, before.Len)
	return &Copied{File: f, Start: m.Addr, End: end, Offset: before.Offset + before.Len, Behind: true}
}

// isMadeUp reports whether what is mapped by this name was made by the program itself: memory, or a file
// for it alone, as on a file system of huge pages.
func isMadeUp(name []byte) bool {
	path, kind, deleted := classify(string(name))
	switch kind {
	case Anonymous, Memfd, Shared:
		return true
	case Regular:
		return deleted || strings.HasPrefix(path, "/dev/hugepages/")
	}
	return false
}
