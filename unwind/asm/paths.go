package asm

import (
	"cmp"
	"slices"

	"unspool/unwind/rule"
	"unspool/unwind/x86"
)

// Limits on one reading of a function.
const (
	maxSpan     = 64 << 10 // bytes of code
	maxInsns    = 20_000   // instructions decoded, each time counted
	maxWayOut   = 1_500    // instructions between a PC and a ret
	maxVisits   = 4 * maxInsns
	deepestCall = 3 // calls below each other that are looked at for one that does not return
	reachedBit  = 1 // an instruction starts here
	leaderBit   = 2 // an instruction other than the one above leads here
)

// paths follows the paths through a piece of code. Its memory is reused from one
// reading to the next.
type paths struct {
	c      *Code
	lo, hi uint64 // image addresses of the piece
	flags  []uint8
	queue  []uint64
	// Where paths meet: the offsets from lo, the states there, and by offset the index of both, plus 1. There
	// are no more than maxInsns.
	meets  []uint32
	states []state
	index  []uint16
	tables map[uint64][]uint64 // where indirect jumps lead, by their address

	// whole means that the code is read from a function's entry: a path ends at
	// the start of another function.
	whole bool
	start uint64
	// frames means that a way out of a function ends also where a frame is set up.
	frames bool
	over   bool // ways out go on behind calls
	depth  int  // of recursion of noReturn
	exits  bool // discover found a way out of the function
}

// discover finds the instructions that can be reached from start, and those
// among them where paths meet. It takes the nearest first, stops after most
// instructions, and returns how many it found.
func (p *paths) discover(start uint64, most int) int {
	size := int(p.hi - p.lo)
	if cap(p.flags) < size {
		p.flags = make([]uint8, size)
	}
	p.flags = p.flags[:size]
	clear(p.flags)
	p.exits = false
	p.c.spend(size >> 10)
	p.queue = append(p.queue[:0], start)
	p.flags[start-p.lo] = leaderBit
	var in insn
	count := 0
	for i := 0; i < len(p.queue) && count < most; i++ {
		addr := p.queue[i]
		for p.contains(addr) && p.flags[addr-p.lo]&reachedBit == 0 && count < most {
			if !in.Decode(p.c.bytes(addr)) {
				p.exits = true
				break
			}
			if !p.c.spend(1) {
				return most
			}
			p.flags[addr-p.lo] |= reachedBit
			count++
			t, target := in.turn(addr)
			switch t {
			case branches, jumps:
				p.lead(target)
			case jumpsFar:
				p.exits = true
				for _, to := range p.tables[addr] {
					p.lead(to)
				}
			case returns:
				p.exits = true
			}
			if p.frames && p.c.makesFrame(addr) {
				break
			}
			call := t == calls || t == callsFar
			if !t.goesOn() || call && !p.whole && !p.over && addr != start ||
				t == calls && p.c.noReturn(target, p.depth+1) {
				break
			}
			addr += uint64(in.Len)
			if call && p.c.endsFunction(addr) && !p.joins(addr) {
				break
			}
			if (p.whole || call) && p.c.isStart(addr) {
				p.exits = true
				break
			}
		}
	}
	return count
}

// noReturn reports whether the function at start has been seen not to return:
// all its ways end in calls that do not, in traps or in endless loops. Calls that are
// too deep count as returning, so there is an answer for each depth: what is said of a
// function must not depend on which others were asked about before.
func (c *Code) noReturn(start uint64, depth int) bool {
	const (
		most = 200
		span = 4096
	)
	if _, ok := c.plt(start); ok {
		return c.stubStops(start)
	}
	if start>>32 != 0 || depth > deepestCall {
		return false
	}
	known := &c.returns[depth-1]
	if r := known.get(uint32(start)); r != 0 {
		return r == doesNotReturn
	}
	h, ok := c.charted.hole(start)
	if !ok {
		return false
	}
	p := &c.probes[depth-1]
	p.c, p.depth = c, depth
	p.lo, p.hi, p.whole, p.start = start, min(h.Hi, start+span), true, start
	r := mayReturn
	if p.discover(start, most) < most && !p.exits {
		r = doesNotReturn
	}
	if c.isSpent() {
		return false
	}
	known.put(uint32(start), r)
	return r == doesNotReturn
}

// returning reports whether a function returns. Zero means that it is not known.
type returning uint32

const (
	mayReturn returning = 1 + iota
	doesNotReturn
)

// endsFunction reports whether the call before addr looks like one that does not
// return, as compilers put it at the end of a function: what follows is
// padding up to where the next function is aligned, or that function itself.
func (c *Code) endsFunction(addr uint64) bool {
	const alignment = 16
	var in insn
	padded := false
	for addr%alignment != 0 {
		if !in.Decode(c.bytes(addr)) || !in.isPadding() {
			return false
		}
		c.spend(1)
		padded = true
		addr += uint64(in.Len)
	}
	if padded {
		return true
	}
	return !in.Decode(c.bytes(addr)) || in.beginsFunction()
}

// beginsFunction reports whether the code at addr looks like the beginning of a function.
func (c *Code) beginsFunction(addr uint64) bool {
	var in insn
	return in.Decode(c.bytes(addr)) && in.beginsFunction()
}

// joins reports whether the code at addr, which follows padding, belongs to the code
// that was discovered so far: it is the head of a loop, or jumps into that code.
func (p *paths) joins(addr uint64) bool {
	const most = 300
	var in insn
	for in.Decode(p.c.bytes(addr)) && in.isPadding() {
		addr += uint64(in.Len)
	}
	for n, at := 0, addr; n < most && p.contains(at) && p.c.spend(1) && in.Decode(p.c.bytes(at)); n++ {
		if t, target := in.turn(at); t == branches || t == jumps {
			if target == addr || p.contains(target) && p.flags[target-p.lo]&reachedBit != 0 {
				return true
			}
		}
		if at += uint64(in.Len); p.c.isStart(at) {
			break
		}
	}
	return false
}

// goesOn reports whether the next instruction can follow. It follows a call, which returns.
func (t turn) goesOn() bool { return t == onwards || t == branches || t == calls || t == callsFar }

func (p *paths) contains(addr uint64) bool { return addr-p.lo < p.hi-p.lo }

// lead notes that a jump leads to addr.
func (p *paths) lead(addr uint64) {
	p.c.spend(1)
	if !p.contains(addr) || p.whole && addr != p.start && p.c.isStart(addr) {
		p.exits = p.exits || !p.c.noReturn(addr, p.depth+1)
		return
	}
	f := &p.flags[addr-p.lo]
	if *f&leaderBit == 0 {
		*f |= leaderBit
		p.queue = append(p.queue, addr)
	}
}

// solve propagates states from start through the instructions that discover found. A
// state can only lose knowledge, so this ends; if it takes too long, solve returns false.
func (p *paths) solve(start uint64, entry bool) bool {
	for _, off := range p.meets {
		p.index[off] = 0
	}
	p.meets, p.states = p.meets[:0], p.states[:0]
	if len(p.index) < len(p.flags) {
		p.index = make([]uint16, cap(p.flags))
	}
	p.meetAt(start).init(entry)
	p.queue = append(p.queue[:0], start)
	visits, most := 0, maxVisits
	if p.over {
		most = 4 * maxWayOut // a process may generate code that takes long to read
	}
	for len(p.queue) > 0 {
		addr := p.queue[len(p.queue)-1]
		p.queue = p.queue[:len(p.queue)-1]
		s := p.states[p.index[addr-p.lo]-1]
		ok := p.run(addr, &s, p.arrive, func(uint64, *insn, *state) bool {
			visits++
			return visits < most
		})
		if !ok {
			return false
		}
	}
	return true
}

// arrive merges a state into that of a leader, and queues the leader to be read
// again if its state has changed.
func (p *paths) arrive(addr uint64, s *state) {
	p.c.spend(1)
	if !p.contains(addr) || p.flags[addr-p.lo]&(leaderBit|reachedBit) != leaderBit|reachedBit {
		return
	}
	if i := p.index[addr-p.lo]; i == 0 {
		*p.meetAt(addr) = *s
		p.queue = append(p.queue, addr)
	} else if p.states[i-1].merge(s) {
		p.queue = append(p.queue, addr)
	}
}

// meetAt notes that paths meet at addr, and returns the state there, which is to be set.
func (p *paths) meetAt(addr uint64) *state {
	if len(p.states) == cap(p.states) {
		p.states = slices.Grow(p.states, len(p.states)+1) // append adds a quarter, and new memory is dear
	}
	p.states = p.states[:len(p.states)+1]
	p.meets = append(p.meets, uint32(addr-p.lo))
	p.index[addr-p.lo] = uint16(len(p.states))
	return &p.states[len(p.states)-1]
}

// eachBlock reads each block that was reached again, from where paths meet to its end, and calls at before
// each instruction, with the state there.
func (p *paths) eachBlock(at func(uint64, *insn, *state) bool) {
	for i, off := range p.meets {
		s := p.states[i]
		p.run(p.lo+uint64(off), &s, func(uint64, *state) {}, at)
	}
}

// run reads from addr to the end of its block. It calls at before each
// instruction with the state there, until that returns false or the work is spent, and
// arrive with each leader that the block leads to.
func (p *paths) run(addr uint64, s *state, arrive func(uint64, *state),
	at func(uint64, *insn, *state) bool) bool {
	var in insn
	for first := true; p.contains(addr) && p.flags[addr-p.lo]&reachedBit != 0; first = false {
		if !first && p.flags[addr-p.lo]&leaderBit != 0 {
			arrive(addr, s)
			return true
		}
		if !in.Decode(p.c.bytes(addr)) {
			return true
		}
		if !p.c.spend(1) || !at(addr, &in, s) {
			return false
		}
		t, target := in.turn(addr)
		kept := p.kept(s, t, target)
		s.step(&in, addr)
		kept.restore(s)
		switch t {
		case branches:
			taken, not := s.bounds(&in)
			s.cases = taken
			arrive(target, s)
			s.cases = not
		case jumps:
			arrive(target, s)
		case jumpsFar:
			for _, to := range p.tables[addr] {
				arrive(to, s)
			}
		}
		if !t.goesOn() {
			return true
		}
		addr += uint64(in.Len)
	}
	return true
}

// A reading has what is known about the instructions of a function.
type reading struct {
	start, end uint64
	found      []found // by address
}

// found is how to unwind from the instruction at start+off: the rule from SP
// and the rule from BP, if there are such.
type found struct {
	off    uint32
	n      uint8
	call   bool
	sp, bp rule.Rule
}

// at finds the instruction that covers addr.
func (r *reading) at(addr uint64) (found, bool) {
	if addr < r.start || addr >= r.end {
		return found{}, false
	}
	off := uint32(addr - r.start)
	i, ok := slices.BinarySearchFunc(r.found, off,
		func(f found, off uint32) int { return cmp.Compare(f.off, off) })
	if !ok {
		i--
	}
	if i < 0 || off-r.found[i].off >= uint32(r.found[i].n) {
		return found{}, false
	}
	return r.found[i], true
}

// function reads the function that starts at start.
func (p *paths) function(start, hi uint64) *reading {
	p.lo, p.hi = start, min(hi, start+maxSpan)
	p.whole, p.start = true, start
	r := &reading{start: start, end: start}
	if !p.follow(start) {
		return r
	}
	sane := true
	note := func(addr uint64, in *insn, s *state) bool {
		f := found{off: uint32(addr - start), n: uint8(in.Len)}
		t, _ := in.turn(addr)
		f.call = t == calls || t == callsFar
		sp := s.regs[x86.SP]
		if sp.kind == ofSP && (sp.off > 0 && !p.c.readsReturn(start, addr) || t == returns && sp.off != 0) ||
			sp.kind == ofReg && t == returns {
			sane = false
		}
		f.sp, f.bp = s.rules()
		r.found = append(r.found, f)
		r.end = max(r.end, addr+uint64(in.Len))
		return true
	}
	p.eachBlock(note)
	if !sane || p.c.isSpent() {
		// SP does not point to the return address at a ret, or is what a register held at the start, or words
		// above the return address are popped: start is not the start of a function. Or not all of it was read.
		return &reading{start: start, end: start}
	}
	slices.SortFunc(r.found, func(a, b found) int { return cmp.Compare(a.off, b.off) })
	return r
}

// wayOut reads from pc to the rets that can be reached, all of which must give the same rule.
func (p *paths) wayOut(pc, lo, hi uint64) (sp, bp rule.Rule) {
	var result rule.Rule
	first := true
	p.over = false
	complete := p.eachTurn(pc, lo, hi, func(addr uint64, t turn, target uint64, s *state) {
		if !p.leavesFrame(addr, t, target) {
			return
		}
		r := s.ruleAtRet()
		if first {
			result, first = r, false
		} else if r != result {
			result = rule.None
		}
	})
	switch {
	case !complete:
		return rule.None, rule.None
	case result.Kind() == rule.GuessBP:
		return rule.None, result
	}
	return result, rule.None
}

// eachTurn calls fn with each instruction that can be reached from pc, and the state before it. It returns
// false if that would take too long: some of them may have been left out.
func (p *paths) eachTurn(pc, lo, hi uint64, fn func(addr uint64, t turn, target uint64, s *state)) bool {
	p.lo, p.hi = max(lo, pc-min(pc, maxSpan/2)), min(hi, pc+maxSpan/2)
	p.whole = false
	if !p.contains(pc) {
		return true
	}
	clear(p.tables)
	p.discover(pc, maxWayOut)
	if !p.solve(pc, false) {
		return false
	}
	note := func(addr uint64, in *insn, s *state) bool {
		t, target := in.turn(addr)
		fn(addr, t, target, s)
		return true
	}
	p.eachBlock(note)
	return !p.c.isSpent()
}

// rules gives the rules for a state that was reached from a function's entry, where
// CFA = SP + 8: one from SP or from a saved SP, one from BP.
func (s *state) rules() (sp, bp rule.Rule) {
	b := uint32(rule.MaxBP)
	if s.regs[x86.BP] == (value{kind: ofBP}) {
		b = 0
	}
	for _, x := range s.slots[:s.n] {
		if x.v == (value{kind: ofBP}) && x.addr.kind == ofSP {
			if words, ok := rule.InWords(8 - int64(x.addr.off)); ok && words > 0 && words < rule.MaxBP {
				b = words
				break
			}
		}
	}
	switch v := s.regs[x86.SP]; v.kind {
	case ofSP:
		if c, ok := rule.InWords(8 - int64(v.off)); ok {
			sp = rule.GuessSP.With(c, b)
		}
	case aligned:
		for _, x := range s.slots[:s.n] {
			if x.v.kind == ofSP && x.addr.kind == v.kind && x.addr.at == v.at {
				k, ok1 := rule.InWords(int64(x.addr.off) - int64(v.off))
				m, ok2 := rule.InWords(8 - int64(x.v.off))
				if c, fits := rule.PackSaved(k, m); ok1 && ok2 && fits {
					sp = rule.GuessSaved.With(c, b)
					break
				}
			}
		}
	}
	if v := s.regs[x86.BP]; v.kind == ofSP {
		if c, ok := rule.InWords(8 - int64(v.off)); ok {
			bp = rule.GuessBP.With(c, b)
		}
	}
	if sp == rule.None && bp == rule.None {
		sp = s.ruleFromReg(b)
	}
	return sp, bp
}

// ruleFromReg gives the rule from a register that holds an earlier SP; b says where BP is saved.
func (s *state) ruleFromReg(b uint32) rule.Rule {
	for reg, v := range s.regs {
		if v.kind != ofSP || reg == x86.SP || reg == x86.BP {
			continue
		}
		plus, ok := rule.InWords(8 - int64(v.off))
		if c, fits := rule.PackInReg(uint8(reg), plus); ok && fits {
			return rule.GuessReg.With(c, b)
		}
	}
	return rule.None
}

// ruleAtRet gives the rule for the instruction where the reading started, from the
// state before a ret, where CFA = SP + 8.
func (s *state) ruleAtRet() rule.Rule {
	v := s.regs[x86.SP].add(8)
	var kind rule.Rule
	var c, b uint32
	var ok bool
	switch v.kind {
	case ofSP:
		kind = rule.GuessSP
		c, ok = rule.InWords(int64(v.off))
	case ofBP:
		kind = rule.GuessBP
		c, ok = rule.InWords(int64(v.off))
	case wordSP:
		kind = rule.GuessSaved
		k, ok1 := rule.InWords(int64(v.at))
		m, ok2 := rule.InWords(int64(v.off))
		c, ok = rule.PackSaved(k, m)
		ok = ok && ok1 && ok2
	case ofReg:
		kind = rule.GuessReg
		plus, fits := rule.InWords(int64(v.off))
		c, ok = rule.PackInReg(uint8(v.at), plus)
		ok = ok && fits
	default:
		return rule.None
	}
	if !ok || c == 0 {
		return rule.None
	}
	w := s.regs[x86.BP]
	words, fits := rule.InWords(int64(v.off) - int64(w.at))
	switch {
	case w == (value{kind: ofBP}):
	case w.kind == wordSP && v.kind == ofSP && w.off == 0,
		w.kind == wordBP && v.kind == ofBP && w.off == 0:
		b = words
	case w.kind == wordWord && v.kind == wordSP && w.at == v.at:
		b, fits = rule.InWords(int64(v.off) - int64(w.off))
	default:
		return kind.With(c, rule.MaxBP)
	}
	if w.kind != ofBP && (!fits || b == 0 || b >= rule.MaxBP) {
		b = rule.MaxBP
	}
	return kind.With(c, b)
}
