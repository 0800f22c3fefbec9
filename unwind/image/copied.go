package image

import (
	"debug/elf"
	"fmt"
	"math/bits"
	"os"

	"unspool/vmas"
)

// copied is the image of a file whose code a process has copied to memory without a
// file, nil as long as it is not known to be there. The copy may be under way: so the
// memory is read again when it was asked for twice as often.
func (s *Store) copied(pid uint32, m *vmas.Mapping) *Image {
	c := m.Copied
	if s.offline != nil {
		return nil // the memory is gone
	}
	if !c.Same {
		if c.Asked++; bits.OnesCount32(c.Asked) != 1 {
			return nil
		}
	}
	im, ok := c.File.Image.(*Image)
	if !ok {
		im = s.attach(pid, &vmas.Mapping{Start: c.Start, End: c.End, Offset: c.Offset, File: c.File})
	}
	if im == nil || im.err != nil {
		return nil
	}
	if !c.Same {
		if c.Behind {
			c.Offset, c.Behind = im.offsetBehind(c.Offset), false
		}
		if c.Same = im.isIn(fmt.Sprintf("%s/%d/mem", s.proc, pid), m); !c.Same {
			return nil
		}
	}
	if m.Settle() && s.Copied != nil {
		s.Copied(pid, m)
	}
	return im
}

// offsetBehind gives the offset of the code behind the part of the file that ends at
// off where both are mapped: linkers need not leave them in one piece, as lld does
// not, whose segments share a page of the file.
func (im *Image) offsetBehind(off uint64) uint64 {
	const page = 4096
	if !im.parsed {
		im.parse()
	}
	addr, ok := im.Address(off - page)
	if !ok {
		return off
	}
	addr += page
	for _, l := range im.loads {
		if l.Flags&elf.PF_X != 0 && addr >= l.Vaddr&^(page-1) && addr < l.Vaddr+l.Filesz {
			return addr - l.Vaddr + l.Offset
		}
	}
	return off
}

// isIn compares memory that m maps with the file that it may be a copy of, in some
// places spread over it. A debugger may have changed one of them.
func (im *Image) isIn(memory string, m *vmas.Mapping) bool {
	const places, size = 16, 1 << 10
	if !im.opened || im.file == nil && im.memory == nil || m.End-m.Start < size {
		return false
	}
	mem, err := os.Open(memory)
	if err != nil {
		return false
	}
	defer mem.Close()
	var have, want, zeroes [size]byte
	r, same, other := im.contents(), 0, 0
	first := m.Copied.Offset + m.Start - m.Copied.Start
	for i := range uint64(places) {
		at := (m.End - m.Start - size) / (places - 1) * i
		if n, _ := mem.ReadAt(have[:], int64(m.Start+at)); n != size {
			return false
		}
		if n, _ := r.ReadAt(want[:], int64(first+at)); n != size {
			clear(want[:]) // beyond the file
		}
		switch {
		case have != want:
			other++
		case have != zeroes:
			same++
		}
	}
	return same > 8*other
}
