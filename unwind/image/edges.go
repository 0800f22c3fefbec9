package image

import (
	"encoding/binary"

	"unspool/unwind/asm"
	"unspool/unwind/module"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// edges keeps for pairs of a call and a function whether the call can have led there. A call of one function leads to
// few others, by its jumps, or nobody knows where.
type edges struct {
	sets    []edgeSet // as many as a power of two
	evicted int       // edges that had to make room since there are so many sets
}

// An edgeSet holds edges, those that were added last first.
type edgeSet [5]edge

// An edge is a call and a function, in offsets in the file.
type edge struct {
	back      uint32 // behind the call
	low, size uint32 // of the function, with otherBit in size if the call does not lead there
}

const (
	otherBit = 1 << 31
	anywhere = otherBit - 1 // is the size of all that a call may lead to if that is not known
)

const (
	fewestSets = 1 << 6  // 4 KiB
	mostSets   = 1 << 12 // 256 KiB
)

// set is where the edges of a call are kept.
func (e *edges) set(back uint32) *edgeSet {
	return &e.sets[uint64(back)*rule.Spread>>32%uint64(len(e.sets))]
}

// get gives the answer for the function around an offset.
func (e *edges) get(back, callee uint32) rule.Answer {
	if len(e.sets) == 0 {
		return rule.Unasked
	}
	set := e.set(back)
	for i := range set {
		k := &set[i]
		switch {
		case k.back != back || callee-k.low >= k.size&^otherBit:
		case k.size&otherBit != 0:
			return rule.Yes
		default:
			return rule.No
		}
	}
	return rule.Unasked
}

// put keeps an answer that get does not have.
func (e *edges) put(k edge) {
	switch n := len(e.sets); {
	case n == 0:
		e.sets = make([]edgeSet, fewestSets)
	case e.evicted >= n/4 && n < mostSets:
		kept := e.sets
		e.sets, e.evicted = make([]edgeSet, 2*n), 0
		for i := range kept {
			for _, k := range kept[i] {
				if k.size != 0 {
					e.insert(k)
				}
			}
		}
	}
	e.insert(k)
}

func (e *edges) insert(k edge) {
	set := e.set(k.back)
	if last := len(set) - 1; set[last].size != 0 {
		e.evicted++
	}
	copy(set[1:], set[:])
	set[0] = k
}

// elsewhere stands for [module.Elsewhere], above all offsets that are kept.
const elsewhere = uint64(anywhere - 1)

// CallsOther is for [module.Module].
func (im *Image) CallsOther(m *vmas.Mapping, pc, callee uint64, atOnce bool) bool {
	back := pc - m.Start + m.Offset
	switch {
	case callee == module.Elsewhere:
		callee = elsewhere
	case callee >= elsewhere:
		return false
	}
	if back>>32 != 0 {
		return false
	}
	if a := im.edges.get(uint32(back), uint32(callee)); a != rule.Unasked {
		return a == rule.Yes
	}
	began, ok := im.store.Begin()
	if !ok {
		return false
	}
	defer im.store.End(began)
	target, direct, known := im.callTarget(m, pc, atOnce)
	if !known {
		return false
	}
	k := edge{back: uint32(back), size: anywhere}
	if direct {
		to := module.Elsewhere
		if callee != elsewhere {
			if to, ok = im.Address(callee); !ok {
				return false
			}
		}
		start, low, size := im.around(callee, to)
		how := there
		if target != start {
			how = im.reach(target, to)
		}
		if how == nowhere && im.returnsElsewhere(m, pc) {
			how = perhaps
		}
		if how != perhaps {
			k.low, k.size = low, size
		}
		if how == nowhere {
			k.size |= otherBit
		}
	}
	if im.misses() {
		return false
	}
	im.edges.put(k)
	return k.size&otherBit != 0
}

// callTarget is where the call before pc, which lies in m, leads if it is a direct one of x86-64.
func (im *Image) callTarget(m *vmas.Mapping, pc uint64, atOnce bool) (target uint64, direct, known bool) {
	addr, ok := im.Address(pc - m.Start + m.Offset - 1)
	if !ok || im.Parse() != nil || im.arch != rule.AMD64 {
		return 0, false, false
	}
	var b [asm.CallSize]byte
	if im.contents.readCached(b[:], int64(pc-m.Start+m.Offset)-asm.CallSize) {
		return addr + 1 + uint64(int64(int32(binary.LittleEndian.Uint32(b[1:])))), b[0] == 0xe8, true
	}
	if atOnce {
		return 0, false, false
	}
	c, addr := im.CodeAt(m, pc-1)
	if c == nil {
		return 0, false, false
	}
	target, direct = c.DirectCall(addr + 1)
	return target, direct, true
}

// returnsElsewhere reports whether pc, which lies in m and seems to follow a direct call, may follow an indirect one,
// or none: signal handlers and coroutines return there.
func (im *Image) returnsElsewhere(m *vmas.Mapping, pc uint64) bool {
	c, addr := im.CodeAt(m, pc-1)
	return c == nil || c.CallBefore(addr+1).Indirect || c.IsRestorer(addr+1) || c.IsContextEnd(addr+1)
}

// around gives the start of the function around an offset, which is that of an address, or of the hole between two
// functions, and its offsets in the file. These are in one part of the file.
func (im *Image) around(off, addr uint64) (start uint64, low, size uint32) {
	if off == elsewhere || im.cfi == nil {
		return addr, uint32(off), 1
	}
	start, end := addr, addr+1
	if d, err := im.cfi.FDE(addr); err == nil {
		start, end = d.Start, d.End
	} else if lo, hi, ok := im.cfi.Gap(addr); ok {
		start, end = lo, hi
	}
	lo, hi, _ := im.Part(off)
	lo = max(lo, off-min(off, addr-start))
	hi = min(hi, off+min(end-addr, otherBit), elsewhere)
	if off-lo >= hi-lo || hi-lo >= otherBit {
		return start, uint32(off), 1
	}
	return start, uint32(lo), uint32(hi - lo)
}
