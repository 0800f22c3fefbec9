package unwind

import (
	"unspool/dwarfcfi"
	"unspool/unwind/image"
	"unspool/unwind/jit"
	"unspool/vmas"
)

// A place is where a PC lies: its mapping and the image of the mapped file,
// nil for memory that no file backs. Code that was generated at run time has
// a jit.
type place struct {
	m     *vmas.Mapping
	image *image.Image
	jit   *jit.Code

	start, size uint64 // of the mapping
	bias        uint64 // what turns an address into an offset in the file
	fast        bool   // there is nothing but an image, with offsets of 32 bits
}

// locate moves p to the mapping of pc. It reports false when there is none
// that can be executed.
func (w *walk) locate(p *place, pc uint64) bool {
	if pc-p.start < p.size {
		return true
	}
	recent := w.places.at(w.space, pc)
	if pc-recent.start < recent.size && recent.space == w.space && recent.maps == w.space.Generation() {
		*p = recent.place
		return true
	}
	m := w.space.Find(pc)
	if m == nil {
		return false
	}
	*p = place{m: m, start: m.Start, size: m.End - m.Start, bias: m.Start - m.Offset}
	p.image = w.images.Lookup(w.space.PID, m)
	if p.image == nil || p.image.IsGenerated() {
		p.jit = w.jit.Lookup(w.space)
		return true
	}
	p.fast = !w.slow && (m.Offset+p.size)>>32 == 0 && m.Offset>>32 == 0
	if p.image.Opened() {
		*recent = recentPlace{*p, w.space, w.space.Generation()}
	}
	return true
}

// places are those where PCs were last seen.
type places [16]recentPlace

type recentPlace struct {
	place
	space *vmas.Space
	maps  uint32 // generation of the mappings
}

// at is where the place of pc would be.
func (t *places) at(space *vmas.Space, pc uint64) *recentPlace {
	return &t[(pc>>20^uint64(space.PID))%uint64(len(t))]
}

// row gives the CFI row for pc, which lies at p.
func (p *place) row(pc uint64, row *dwarfcfi.Row) error {
	switch {
	case p.jit != nil:
		return p.jit.Row(pc, row)
	case p.image != nil:
		return p.image.Row(p.m, pc, row)
	}
	return dwarfcfi.ErrNoFDE
}
