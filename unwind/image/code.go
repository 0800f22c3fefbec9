package image

import (
	"slices"

	"unspool/unwind/asm"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// CodeAt returns the code of the image, and the address in it of pc, which lies in m. It is nil where the
// image cannot be read, or is not read yet.
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

// EndsContext reports whether pc, in m, is where the first function of a coroutine returns to, and not behind a
// call.
func (im *Image) EndsContext(m *vmas.Mapping, pc uint64) bool {
	if im.code == nil || pc >= m.End {
		return false
	}
	addr, ok := im.Address(pc - m.Start + m.Offset)
	return ok && im.code.IsContextEnd(addr)
}

// Arch is the architecture of the image's code, nil if the image is no ELF file or its architecture is
// unknown.
func (im *Image) Arch() *rule.Arch {
	if im.Parse() != nil {
		return nil
	}
	return im.arch
}

// Function gives the bounds of the function around pc, which lies in m, as the CFI has them.
func (im *Image) Function(m *vmas.Mapping, pc uint64) (low, high uint64, ok bool) {
	addr, ok := im.Address(pc - m.Start + m.Offset)
	if !ok || im.cfi == nil {
		return 0, 0, false
	}
	d, err := im.cfi.FDE(addr)
	if err != nil || im.misses() {
		return 0, 0, false
	}
	return pc - (addr - d.Start), pc + (d.End - addr), true
}

// Bounds on how far [Image.MayLeave], [Image.CallsOther] and [Image.LeadsTo] look.
const (
	functionsAhead = 8    // through which tail calls lead
	functionSize   = 4096 // bytes
	choosing       = 512  // bytes of a function that jumps to one of several by the processor's features
)

// IsReturn reports whether pc, which lies behind an address in m, is where a call returns to: it follows a call,
// or is where a coroutine or a signal handler ends.
func (im *Image) IsReturn(m *vmas.Mapping, pc uint64) bool {
	off := pc - 1 - m.Start + m.Offset
	if a := im.calls.get(off); a != unasked {
		return a == yesAnswer
	}
	c, addr := im.CodeAt(m, pc-1)
	if c == nil { // of a segment that the file does not have
		return false
	}
	yes := c.FollowsCall(addr+1) || c.IsContextEnd(addr+1) || c.IsRestorer(addr+1)
	if !im.misses() {
		im.calls.put(off, yes)
	}
	return yes
}

// MayLeave reports whether the call before pc, which lies in m, can lead to code that is in no file: the call is
// indirect, or the called function jumps to where a register or a pointer says, itself or by way of tail
// calls, other than by a procedure linkage table. It is true if that is not known.
func (im *Image) MayLeave(m *vmas.Mapping, pc uint64) bool {
	off := pc - 1 - m.Start + m.Offset
	if a := im.leaving.get(off); a != unasked {
		return a == yesAnswer
	}
	began, ok := im.store.Begin()
	if !ok {
		return true
	}
	defer im.store.End(began)
	c, addr := im.CodeAt(m, pc-1)
	if c == nil {
		return true
	}
	target, direct := c.DirectCall(addr + 1)
	leaves := !direct || im.leaves(target)
	if !im.misses() {
		im.leaving.put(off, leaves)
	}
	return leaves
}

// NoteNoHost notes that the call before pc, which lies in m, leads to no interpreter that jumps to generated
// code. [Image.CallsNoHost] says it then.
func (im *Image) NoteNoHost(m *vmas.Mapping, pc uint64) { im.hostless.put(pc-1-m.Start+m.Offset, true) }

// CallsNoHost reports whether that was noted of the call before pc, which lies in m.
func (im *Image) CallsNoHost(m *vmas.Mapping, pc uint64) bool {
	return im.hostless.get(pc-1-m.Start+m.Offset) == yesAnswer
}

// answers keeps what was found out about addresses, by their offsets in the file.
type answers struct{ cache rule.Cache }

// An answer is one of these.
type answer rule.Rule

const (
	unasked answer = iota
	noAnswer
	yesAnswer
)

func (a *answers) get(off uint64) answer {
	if off>>32 != 0 {
		return unasked
	}
	return answer(a.cache.Get(uint32(off)))
}

// put keeps the answer for an offset for which get has none.
func (a *answers) put(off uint64, yes bool) {
	switch {
	case off>>32 != 0:
	case yes:
		a.cache.Put(uint32(off), rule.Rule(yesAnswer))
	default:
		a.cache.Put(uint32(off), rule.Rule(noAnswer))
	}
}

// leaves is MayLeave for a call of the function at addr.
func (im *Image) leaves(addr uint64) bool { return im.mayReach(addr, inNoFile) }

// LeadsElsewhere reports whether no jump leads from the function that begins at entry, which lies in m, to the
// one around callee, an address of the process; with 0, whether none leads out of the image. It is false if
// that is not known.
func (im *Image) LeadsElsewhere(m *vmas.Mapping, entry, callee uint64) bool {
	addr, ok := im.Address(entry - m.Start + m.Offset)
	if c, _ := im.CodeAt(m, entry); c == nil || !ok {
		return false
	}
	to := noAddress
	if callee != 0 {
		if to, ok = im.Address(callee - m.Start + m.Offset); !ok {
			return false
		}
	}
	return !im.mayReach(addr, to) && !im.misses()
}

// No addresses of functions, for mayReach.
const (
	noAddress = ^uint64(0) - iota
	inNoFile
)

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
// tail calls, or to where a register or a pointer says, as by a procedure linkage table. With inNoFile, tail calls by
// such a table are passed over: they lead to functions of other files.
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
			if !slices.Contains(targets, x.Target) && (other != inNoFile || !im.isLinkage(x.Target)) {
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

// LeadsTo reports whether the call before pc calls the function around callee directly, or one that soon jumps
// to the start of that. Both lie in m.
func (im *Image) LeadsTo(m *vmas.Mapping, pc, callee uint64) bool {
	c, addr := im.CodeAt(m, pc-1)
	at, ok := im.Address(callee - m.Start + m.Offset)
	if c == nil || !ok || im.cfi == nil {
		return false
	}
	to, err := im.cfi.FDE(at)
	if err != nil {
		return false
	}
	target, ok := c.DirectCall(addr + 1)
	if !ok || target == to.Start {
		return ok
	}
	d, err := im.cfi.FDE(target)
	if err != nil || d.Start != target {
		return false
	}
	exits, _ := c.Exits(d.Start, min(d.End, d.Start+choosing))
	return slices.ContainsFunc(exits, func(x asm.Exit) bool { return !x.Indirect && x.Target == to.Start })
}
