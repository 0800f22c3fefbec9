package image

import (
	"unspool/unwind/asm"
	"unspool/vmas"
)

// CodeAt gives what reads the code of the image and the address there of pc, which lies in m.
// It is nil where the image cannot be read.
func (im *Image) CodeAt(m *vmas.Mapping, pc uint64) (*asm.Code, uint64) {
	if im.Parse() != nil {
		return nil, 0
	}
	addr, ok := im.Address(pc - m.Start + m.Offset)
	if !ok {
		return nil, 0
	}
	return im.code, addr
}

// fdes yields the ranges that CFI covers.
func (im *Image) fdes(yield func(start, end uint64) bool) {
	if im.cfi == nil {
		return
	}
	for d, err := range im.cfi.FDEs() {
		if err == nil && !yield(d.Start, d.End) {
			return
		}
	}
}

// gap gives what lies around addr between two FDEs, or the function of Go's that holds it
// and about which Go says no more.
func (im *Image) gap(addr uint64) (h asm.Hole, begins, ok bool) {
	if t := im.golang; t != nil {
		if h.Lo, h.Hi, ok = t.Function(addr); ok {
			return h, true, true
		}
	}
	if im.cfi == nil {
		return h, false, false
	}
	h.Lo, h.Hi, ok = im.cfi.Gap(addr)
	return h, false, ok
}

// EndsContext says whether a call that ends before pc, in m, is none: pc is where a
// coroutine ends.
func (im *Image) EndsContext(m *vmas.Mapping, pc uint64) bool {
	if im.code == nil || pc >= m.End {
		return false
	}
	addr, ok := im.Address(pc - m.Start + m.Offset)
	return ok && im.code.IsContextEnd(addr)
}
