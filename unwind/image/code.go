package image

import (
	"slices"

	"unspool/dwarfcfi"
	"unspool/unwind/asm"
	"unspool/unwind/gotab"
	"unspool/unwind/module"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// CodeAt is for [module.Module].
func (im *Image) CodeAt(m *vmas.Mapping, pc uint64) (*asm.Code, uint64) {
	if im.Parse() != nil {
		return nil, 0
	}
	if im.refresh(); im.misses() {
		return nil, 0
	}
	addr, ok := im.Address(pc - m.Start + m.Offset)
	if !ok {
		return nil, 0
	}
	return im.code, addr
}

// Arch is the architecture of the image's code, nil if the image is no ELF file or its architecture is
// unknown.
func (im *Image) Arch() *rule.Arch {
	if im.Parse() != nil {
		return nil
	}
	return im.arch
}

// FDE is for [module.Module].
func (im *Image) FDE(m *vmas.Mapping, pc uint64) (d dwarfcfi.FDE, addr uint64, ok bool) {
	addr, ok = im.Address(pc - m.Start + m.Offset)
	if !ok || im.cfi == nil {
		return d, addr, false
	}
	d, err := im.cfi.FDE(addr)
	return d, addr, err == nil && !im.misses()
}

// GoTable is for [module.Module].
func (im *Image) GoTable(m *vmas.Mapping, pc uint64) (*gotab.Table, uint64) {
	addr, ok := im.Address(pc - m.Start + m.Offset)
	if !ok {
		return nil, 0
	}
	return im.golang, addr
}

// Bounds on how far [Image.LeadsElsewhere] and [Image.CallsOther] look.
const (
	functionsAhead = 8    // through which tail calls lead
	functionSize   = 4096 // bytes
)

// IsReturn is for [module.Module].
func (im *Image) IsReturn(m *vmas.Mapping, pc uint64) bool {
	off := pc - 1 - m.Start + m.Offset
	if a := im.calls.Get(off); a != rule.Unasked {
		return a == rule.Yes
	}
	c, addr := im.CodeAt(m, pc-1)
	if c == nil { // of a segment that the file does not have
		return false
	}
	yes := c.FollowsCall(addr+1) || c.IsContextEnd(addr+1) || c.IsRestorer(addr+1)
	if !im.misses() {
		im.calls.Put(off, yes)
	}
	return yes
}

// EndsContext is for [module.Module].
func (im *Image) EndsContext(m *vmas.Mapping, pc uint64) bool {
	if im.Parse() != nil {
		return false
	}
	im.refresh()
	return !im.misses() && im.endsContext(m, pc)
}

// LeadsElsewhere is for [module.Module].
func (im *Image) LeadsElsewhere(entry, callee uint64) bool {
	if im.Parse() != nil || im.code == nil {
		return false
	}
	if im.refresh(); im.misses() {
		return false
	}
	return !im.mayReach(entry, callee) && !im.misses()
}

// mayReach reports whether [Image.reach] has found a way, or a way cannot be ruled out.
func (im *Image) mayReach(addr, other uint64) bool { return im.reach(addr, other) != nowhere }

// A way reports whether a call leads to a function.
type way uint8

const (
	nowhere way = iota // it does not
	there              // it may
	perhaps            // nobody knows where it leads
)

// reach reports whether a call of the function at addr can lead to the one around another address, itself or by way of
// tail calls, or to where a register or a pointer says, as by a procedure linkage table. other can be
// [module.Elsewhere], or [module.NoFile]: then tail calls by such a table are passed over, as they lead to functions of
// other files.
func (im *Image) reach(addr, other uint64) way {
	if im.cfi == nil {
		return perhaps
	}
	var buf [functionsAhead]uint64
	targets := append(buf[:0], addr)
	for i := 0; i < len(targets); i++ {
		d, err := im.cfi.FDE(targets[i])
		switch {
		case err != nil:
			return perhaps
		case d.Covers(other):
			return there
		case d.End-d.Start > functionSize:
			return perhaps
		}
		if _, jumps := im.code.Stub(targets[i]); jumps {
			return perhaps
		}
		exits, known := im.code.Exits(d.Start, d.End)
		if !known || len(exits) > functionsAhead {
			return perhaps
		}
		for _, x := range exits {
			if x.Indirect {
				return perhaps
			}
			if !slices.Contains(targets, x.Target) && (other != module.NoFile || !im.isLinkage(x.Target)) {
				targets = append(targets, x.Target)
			}
		}
		if len(targets) > functionsAhead {
			return perhaps
		}
	}
	return nowhere
}

// isLinkage reports whether an address is in a procedure linkage table: it jumps where a pointer says, and CFI
// has it in one function with others.
func (im *Image) isLinkage(addr uint64) bool {
	_, jumps := im.code.Stub(addr)
	d, err := im.cfi.FDE(addr)
	return jumps && err == nil && d.Start != addr
}
