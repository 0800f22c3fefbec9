package vmas

import "slices"

// Protection bits of a mapping (PROT_* in <asm-generic/mman-common.h>) and the one flag that
// matters.
const (
	ProtRead  = 0x1
	ProtWrite = 0x2
	ProtExec  = 0x4

	FlagShared  = 0x1 // MAP_SHARED
	FlagPrivate = 0x2 // MAP_PRIVATE
)

// Mapping is one range of a process's address space that it may execute.
type Mapping struct {
	Start, End  uint64 // addresses from Start up to, not including, End
	Offset      uint64 // of Start in the file, in bytes
	Prot, Flags uint32
	File        *File // never nil
	// Copied is what memory without a file may be a copy of, nil if nothing is known.
	Copied *Copied

	seq     uint32 // age within its space: smaller is older, modulo 2^32
	settled bool   // it is a copy
}

// layout is the mappings of a space, sorted by address, none overlapping another. A fork shares
// its parent's layout until one of the two changes: refs counts the spaces.
type layout struct {
	maps []Mapping
	ends []uint64 // of maps: what search looks at lies close together
	refs int
}

// search returns the index of the first mapping that ends after addr.
func (l *layout) search(addr uint64) int {
	ends := l.ends
	lo, hi := 0, len(ends)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if ends[mid] > addr {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// insert puts m in the place of whatever is mapped where m goes, as MAP_FIXED does: what is covered
// goes, what is covered in part is trimmed or split. A mapping that cannot be executed only takes
// others away. Neighbours stay apart even where one continues the other: the kernel reports each by
// itself.
func (l *layout) insert(fs *files, m Mapping) {
	i := l.search(m.Start)
	j := i
	for j < len(l.maps) && l.maps[j].Start < m.End {
		j++
	}
	var pieces [3]Mapping
	n := 0
	if i < j && l.maps[i].Start < m.Start {
		left := l.maps[i]
		left.End = m.Start
		pieces[n] = left
		n++
	}
	if m.Prot&ProtExec != 0 {
		pieces[n] = m
		n++
	}
	if i < j && l.maps[j-1].End > m.End {
		right := l.maps[j-1]
		right.Offset += m.End - right.Start
		right.Start = m.End
		pieces[n] = right
		n++
	}
	var ends [3]uint64
	for k := range n {
		fs.retain(&pieces[k])
		ends[k] = pieces[k].End
	}
	for k := i; k < j; k++ {
		fs.release(&l.maps[k])
	}
	l.maps = slices.Replace(l.maps, i, j, pieces[:n]...)
	l.ends = slices.Replace(l.ends, i, j, ends[:n]...)
}

// drop gives up one space's share of the layout.
func (l *layout) drop(fs *files) {
	l.refs--
	if l.refs > 0 {
		return
	}
	for k := range l.maps {
		fs.release(&l.maps[k])
	}
	l.maps, l.ends = nil, nil
}

// own returns a layout that one space alone uses: l itself, or a copy in its stead.
func (l *layout) own(fs *files) *layout {
	if l.refs == 1 {
		return l
	}
	l.refs--
	c := &layout{refs: 1, maps: make([]Mapping, len(l.maps), len(l.maps)+8), ends: slices.Clone(l.ends)}
	copy(c.maps, l.maps)
	for k := range c.maps {
		fs.retain(&c.maps[k])
	}
	return c
}

// keepYoungest drops the older half of the mappings. A space whose munmaps nobody reports would
// otherwise grow for as long as its process maps new code.
func (l *layout) keepYoungest(fs *files, now uint32) {
	ages := make([]uint32, len(l.maps))
	for k := range l.maps {
		ages[k] = now - l.maps[k].seq
	}
	slices.Sort(ages)
	limit := ages[len(ages)/2]
	l.maps = slices.DeleteFunc(l.maps, func(m Mapping) bool {
		old := now-m.seq >= limit
		if old {
			fs.release(&m)
		}
		return old
	})
	l.ends = l.ends[:0]
	for k := range l.maps {
		l.ends = append(l.ends, l.maps[k].End)
	}
}
