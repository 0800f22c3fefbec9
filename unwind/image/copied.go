package image

import (
	"debug/elf"
	"io"
	"math/bits"

	"unspool/vmas"
	"unspool/vmas/process"
)

// copied is the image of a file whose code a process has copied to anonymous memory, nil as long as the
// memory is not known to hold it. The copy may still be under way, so the memory is compared again after 1,
// 2, 4, 8, … calls.
func (s *Store) copied(pid uint32, m *vmas.Mapping) *Image {
	c := m.Copied
	if s.isOffline() {
		return nil // the memory is gone
	}
	im, ok := c.File.Image.(*Image)
	if !ok {
		im = s.Lookup(pid, &vmas.Mapping{Start: c.Start, End: c.End, Offset: c.Offset, File: c.File})
	}
	if im == nil || im.err != nil {
		return nil // calls count only once the file is there: it may come late
	}
	if !c.Same {
		if c.Behind {
			if !im.isRead() || im.err != nil {
				return nil
			}
			c.Offset, c.Behind = im.offsetBehind(c.Offset), false
		}
		if s.comparing[c] == nil {
			if c.Asked++; bits.OnesCount32(c.Asked) != 1 {
				return nil
			}
		}
		if c.Same = s.compare(pid, m, im); !c.Same {
			return nil
		}
	}
	if m.Settle() && s.hooks.Copied != nil {
		s.hooks.Copied(pid, m)
	}
	return im
}

// compare reports whether the memory that m maps was found to hold the code of im.
func (s *Store) compare(pid uint32, m *vmas.Mapping, im *Image) bool {
	t := s.comparing[m.Copied]
	if t == nil {
		if im.source == nil {
			return false
		}
		// What is not read in time would be taken for something else than a copy.
		r, at, memory := im.source.contents(), *m, process.Aside(s.find.access)
		first := m.Copied.Offset + m.Start - m.Copied.Start
		t = newTask(func() bool { return isCopy(memory, pid, at.Start, at.End, r, first) }, nil)
		if len(s.comparing) >= maxComparing {
			clear(s.comparing) // most are of processes that are gone
		}
		t.concerns(im.source)
		s.comparing[m.Copied] = t
	}
	if !s.await(&t.job, im.Path, &im.late) {
		return false
	}
	delete(s.comparing, m.Copied)
	return t.result
}

// maxComparing bounds how many comparisons are under way.
const maxComparing = 64

// offsetBehind gives the offset of the code that is mapped behind the part of the file that ends at off. It
// need not be off: segments that lld links share a page of the file.
func (im *Image) offsetBehind(off uint64) uint64 {
	const page = 4096
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

// isCopy compares memory of a process, from start to end, with a file from an offset on, at some places
// spread over it. It tolerates a difference at one of them: a debugger's breakpoint.
func isCopy(memory process.Memory, pid uint32, start, end uint64, r io.ReaderAt, offset uint64) bool {
	const places, size = 16, 1 << 10
	if end-start < size {
		return false
	}
	var have, want, zeroes [size]byte
	same, other := 0, 0
	for i := range uint64(places) {
		at := (end - start - size) / (places - 1) * i
		if memory.ReadMemory(pid, have[:], start+at) != size {
			return false
		}
		if n, _ := r.ReadAt(want[:], int64(offset+at)); n != size {
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
