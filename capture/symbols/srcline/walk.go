package srcline

import (
	"debug/dwarf"

	"unspool/dwarfcfi/elf"
)

const (
	maxDepth   = 1 << 12 // of nested DIEs; real files have a few hundred
	maxInlined = 512     // of nested inlined functions; GCC and LLVM stop below 100
)

// call is a function at some wanted addresses, inlined or not.
type call struct {
	die    uint64 // offset in .debug_info
	parent int32  // index of the call that this one is inlined in, -1 for none
	depth  int32
	file   uint64 // of the call, an index in the unit's line table
	line   uint64
	column uint64

	subprogram // valid if named is set
	named      bool
}

// walk searches the DIEs of one unit for the functions at pcs.
type walk struct {
	d    *Data
	u    *unit
	pcs  []uint64 // sorted
	data []byte   // the unit, from its header on

	calls   []call
	deepest []int32 // for each of pcs the innermost of calls, -1 for none
	open    []level
	skipped bool // some DIEs were not read
}

// level is a DIE whose children are being read.
type level struct {
	call int32 // the function it is in or is itself, -1 for none
	skim bool  // there is nothing of interest in it: only its end is searched
}

// run walks the unit. With thorough it reads all DIEs: nested functions (GNU C and Fortran have them) lie
// outside of the code of the function that contains them, and methods may be in types.
func (w *walk) run(thorough bool) error {
	u := w.u
	if !w.d.spend(len(w.data)) {
		return u.obj.info.bad(u.off, errWork.Error())
	}
	table, err := w.d.abbrevs(u)
	if err != nil {
		return err
	}
	w.calls, w.open, w.skipped = w.calls[:0], w.open[:0], false
	for i := range w.deepest {
		w.deepest[i] = -1
	}
	bad := func(pos int, what string) error { return u.obj.info.bad(u.off+uint64(pos), what) }
	c := elf.Cursor{Data: w.data, Pos: int(u.die - u.off)}
	for c.Pos < len(c.Data) {
		start := c.Pos
		code := c.WrappedULEB()
		if code == 0 {
			if len(w.open) <= 1 {
				return nil // the end of the unit's own children; the rest is padding
			}
			w.open = w.open[:len(w.open)-1]
			continue
		}
		a := table.lookup(code)
		if a == nil {
			return bad(start, "a DIE with an abbreviation that does not exist")
		}
		here := level{call: -1}
		if len(w.open) > 0 {
			here = w.open[len(w.open)-1]
		}
		var sibling uint64
		if a.role < block || here.skim {
			sibling = a.skipDIE(&c, u)
			if a.role == plain && !thorough {
				here.skim = true
			}
		} else {
			sibling, err = w.enter(a, &c, start, &here, thorough)
			if err != nil {
				w.d.problems.add(err)
			}
		}
		if c.Bad {
			return bad(start, "a DIE reaches beyond the end of the unit")
		}
		if !a.children {
			if len(w.open) == 0 {
				return nil
			}
			continue
		}
		if here.skim {
			w.skipped = true
			if sibling > uint64(c.Pos) && sibling <= uint64(len(c.Data)) && len(w.open) > 0 {
				c.Pos = int(sibling)
				continue
			}
		}
		if len(w.open) == maxDepth {
			return bad(start, "DIEs nested too deeply")
		}
		w.open = append(w.open, here)
	}
	return nil
}

// enter reads a function, an inlined call or a block at start, and sets here to the level of its
// children.
func (w *walk) enter(a *abbrev, c *elf.Cursor, start int, here *level,
	thorough bool) (sibling uint64, err error) {
	var pc pcRange
	found := call{die: w.u.off + uint64(start), parent: -1}
	for i := range a.specs {
		s := &a.specs[i]
		v := readValue(c, s, w.u)
		switch s.attr {
		case dwarf.AttrSibling:
			if v.form.isUnitRef() {
				sibling = v.u
			}
		case dwarf.AttrCallFile:
			found.file = v.u
		case dwarf.AttrCallLine:
			found.line = v.u
		case dwarf.AttrCallColumn:
			found.column = v.u
		default:
			pc.set(s.attr, v)
		}
	}
	if c.Bad {
		return sibling, nil
	}
	index := int32(-1)
	hit := false
	err = w.d.each(w.u, &pc, func(lo, hi uint64) {
		i := search(w.pcs, lo)
		if i == len(w.pcs) || w.pcs[i] >= hi {
			return
		}
		hit = true
		if a.role == block {
			return
		}
		if index < 0 {
			if a.role == inlined {
				if here.call < 0 {
					return
				}
				found.parent, found.depth = here.call, w.calls[here.call].depth+1
				if found.depth > maxInlined {
					return
				}
			}
			index = int32(len(w.calls))
			w.calls = append(w.calls, found)
		}
		first := i
		for ; i < len(w.pcs) && w.pcs[i] < hi; i++ {
			w.deepest[i] = index
		}
		w.d.spend(i - first)
	})
	switch {
	case a.role == block:
		// A block without addresses of its own is part of its function's code.
		here.skim = !hit && (pc.hasLow || pc.hasRanges)
	case index >= 0:
		here.call = index
	default:
		here.call, here.skim = -1, true
	}
	if thorough {
		here.skim = false
	}
	return sibling, err
}
