package unwind

import (
	"unspool/dwarfcfi"
	"unspool/unwind/jit"
	"unspool/unwind/module"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// A place is where a PC lies: its mapping and the module of the mapped file,
// nil for memory that no file backs. Code that was generated at run time has
// a jit.
type place struct {
	m      *vmas.Mapping
	module module.Module
	rules  *rule.Set // of the module
	jit    *jit.ProcessCode

	start, size uint64 // of the mapping, or of the part of it around the PC that is all code or all data
	bias        uint64 // what turns an address into an offset in the file
	fast        bool   // it has a module that was read and no generated code, and its offsets have 32 bits
	data        bool   // the module has no code there
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
		if recent.generated {
			p.jit = w.generatedCode()
		}
		return true
	}
	m := w.space.Find(pc)
	if m == nil {
		return false
	}
	*p = place{m: m, start: m.Start, size: m.End - m.Start}
	p.module = w.modules.Module(w.space.PID, m)
	p.bias = m.Start - m.Offset // Module may have found out which file m is a copy of
	if p.module == nil {
		if m.Copied == nil && !m.File.Kind.HasImage() {
			*recent = recentPlace{*p, w.space, w.space.Generation(), true}
		}
		p.jit = w.generatedCode()
		return true
	}
	p.rules = p.module.Rules()
	state := p.module.State()
	switch {
	case state.Generated:
		p.jit = w.generatedCode()
		return true
	case !state.Read:
		return true
	}
	p.fast = !w.slow && (m.Offset+p.size)>>32 == 0 && m.Offset>>32 == 0
	lo, hi, code := p.module.Part(pc - p.bias)
	lo, hi = max(lo, m.Offset), min(hi, m.Offset+p.size)
	p.data, p.start, p.size = !code, lo+p.bias, hi-lo
	*recent = recentPlace{*p, w.space, w.space.Generation(), false}
	return true
}

// locateReturn is locate for a return address, which lies behind pc. That a mapping can be executed does
// not say that it is code: with READ_IMPLIES_EXEC (personality(2)), as programs have it whose stack is
// not marked as data, everything that can be read can be executed.
func (w *walk) locateReturn(p *place, pc uint64) bool { return w.locate(p, pc) && !p.data }

// places are those where PCs were last seen.
type places [256]recentPlace

type recentPlace struct {
	place
	space *vmas.Space
	maps  uint32 // generation of the mappings
	// generated means that it is in memory that no file backs: what is known of the code there changes.
	generated bool
}

// at is the entry in which the place of pc is kept.
func (t *places) at(space *vmas.Space, pc uint64) *recentPlace {
	return &t[(pc>>18^uint64(space.PID))%uint64(len(t))]
}

// rule gives the rule of the module for pc, which lies at p.
func (p *place) rule(pc uint64) rule.Rule {
	off := pc - p.bias
	if off>>32 == 0 {
		if r := p.rules.Get(uint32(off)); r != rule.None {
			return r
		}
	}
	return p.module.Find(p.m, pc, off)
}

// function gives the bounds of the function around pc, which lies at p, as the CFI has them.
func (p *place) function(pc uint64) (low, high uint64, ok bool) {
	d, addr, ok := p.module.FDE(p.m, pc)
	if !ok {
		return 0, 0, false
	}
	return pc - (addr - d.Start), pc + (d.End - addr), true
}

// isEntry reports whether CFI shows that pc, which lies at p, is in the function at the program's entry point.
func (p *place) isEntry(pc uint64) bool {
	d, _, ok := p.module.FDE(p.m, pc)
	return ok && d.Start == p.module.State().Entry
}

// row gives the CFI row for pc, which lies at p.
func (p *place) row(pc uint64, row *dwarfcfi.Row) error {
	switch {
	case p.jit != nil:
		if err := p.jit.Row(pc, row); err != dwarfcfi.ErrNoFDE || p.module == nil {
			return err
		}
		return p.module.Row(p.m, pc, row)
	case p.module != nil:
		return p.module.Row(p.m, pc, row)
	}
	return dwarfcfi.ErrNoFDE
}
