package elf

import "debug/elf"

// Load is where a segment is in the file and in memory.
type Load struct {
	Offset, Vaddr, Filesz, Memsz uint64
	Flags                        ProgFlag
}

// Exec reports whether the segment holds code.
func (l *Load) Exec() bool { return l.Flags&elf.PF_X != 0 }

// Loads are the PT_LOAD segments, in the order of the file.
type Loads []Load

// Loads returns the PT_LOAD segments.
func (f *File) Loads() Loads {
	var loads Loads
	for i := range f.Segments {
		if s := &f.Segments[i]; s.Type == elf.PT_LOAD {
			loads = append(loads, s.Load)
		}
	}
	return loads
}

// At returns the segment whose file contents are mapped at addr, nil when there is none.
func (l Loads) At(addr uint64) *Load {
	for i := range l {
		if s := &l[i]; addr-s.Vaddr < s.Filesz {
			return s
		}
	}
	return nil
}

// Vaddr turns an offset in the file into the virtual address that its segment gives it. If two
// segments share a page of the file, the executable one counts. The rest of the last page of a
// segment belongs to the segment, as mappings are whole pages.
func (l Loads) Vaddr(offset uint64) (uint64, bool) {
	const page = 4096
	s := l.preferred(func(s *Load) bool { return offset >= s.Offset && offset-s.Offset < s.Filesz })
	if s == nil {
		s = l.preferred(func(s *Load) bool {
			start := s.Offset &^ (page - 1)
			return offset >= start && offset-start < (s.Filesz+(s.Offset-start)+page-1)&^(page-1)
		})
	}
	if s == nil {
		return 0, false
	}
	return offset - s.Offset + s.Vaddr, true
}

// preferred returns the first executable segment that has the offset, or else the first one.
func (l Loads) preferred(has func(*Load) bool) *Load {
	var found *Load
	for i := range l {
		if s := &l[i]; (found == nil || s.Exec() && !found.Exec()) && has(s) {
			found = s
		}
	}
	return found
}
