package unwind

import (
	"fmt"
	"math/bits"
	"os"

	"unspool/vmas"
)

// copied is the image of a file whose code a process has copied to memory without a
// file, nil as long as it is not known to be there. The copy may be under way: so the
// memory is read again when it was asked for twice as often.
func (s *Images) copied(pid uint32, m *vmas.Mapping) *Image {
	c := m.Copied
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
		if c.Same = im.isIn(fmt.Sprintf("%s/%d/mem", s.proc, pid), m); !c.Same {
			return nil
		}
		if s.Copied != nil {
			s.Copied(pid, m)
		}
	}
	m.Settle()
	return im
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
