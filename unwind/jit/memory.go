package jit

import (
	"encoding/binary"

	"unspool/unwind/asm"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// readRule gives the rule for pc, an instruction in generated code, by the paths that lead from there to a
// ret; it is Uncovered if there are none. exact means that pc is the frame's next instruction: then it may
// also be Thunk. It reports false when the process's memory cannot be read.
func (r *Reader) readRule(pid uint32, m *vmas.Mapping, pc uint64, exact bool) (rule.Rule, bool) {
	if !r.readWindow(pid, m, pc) {
		return rule.Uncovered, false
	}
	if found, ok := r.window.Rule(pc); ok {
		return found, true
	}
	if exact && r.window.TailJumps(pc) {
		return Thunk, true
	}
	return rule.Uncovered, true
}

// Thunk is the rule for code that jumps on, and leaves the return address where SP points.
const Thunk = rule.GuessSP | 1<<16

// RuleFarther finds a rule where neither Rule nor frame pointers have: it follows paths past calls and
// through other code, such as an epilogue that all functions share, and where these lead nowhere, it looks for the
// prologue.
func (r *Reader) RuleFarther(c *ProcessCode, space *vmas.Space, pc, lookup uint64) rule.Rule {
	if known, ok := c.now.over[lookup]; ok {
		return known
	}
	found := c.old.over[lookup] // None if it was not there
	if found == rule.None {
		found = rule.Uncovered
	}
	if c.blind || c.far >= maxFarReads {
		return found
	}
	began, ok := r.files.Begin()
	if !ok {
		return found
	}
	defer r.files.End(began)
	for r.ways.Begin(pc); ; {
		at, ok := r.ways.Next()
		if !ok {
			break
		}
		c.far++
		m := space.Find(at)
		r.ways.Read(r.window, m != nil && r.readWindow(c.pid, m, at))
	}
	found = rule.Uncovered
	if read, ok := r.ways.Rule(); ok {
		found = read
	} else if read, ok := r.ruleByPrologue(c, space, pc); ok {
		found = read
	}
	if len(c.now.over) >= maxRules {
		clear(c.now.over)
	}
	c.now.over[lookup] = found
	return found
}

// longestMethod is how far a prologue is looked for.
const longestMethod = 16 << 10

// ruleByPrologue gives the rule for pc, an instruction in generated code, by [asm.Window.ByPrologue].
func (r *Reader) ruleByPrologue(c *ProcessCode, space *vmas.Space, pc uint64) (rule.Rule, bool) {
	m := space.Find(pc)
	if m == nil || r.source != Live {
		return rule.Uncovered, false
	}
	if r.method == nil {
		r.method = make([]byte, longestMethod)
	}
	c.far++
	lo := max(m.Start, pc-min(pc, longestMethod))
	code := r.method[:pc-lo]
	if r.files.ReadMemory(c.pid, code, lo) < len(code) {
		return rule.Uncovered, false
	}
	r.window.Set(lo, code)
	return r.window.ByPrologue(pc)
}

// IsCall reports whether the code before pc, in generated code in m, is a call. known is false if that code
// cannot be read and was not read before.
func (r *Reader) IsCall(c *ProcessCode, space *vmas.Space, m *vmas.Mapping, pc uint64) (call, known bool) {
	if r.source != Live {
		return false, false
	}
	if call, known = c.now.calls[pc]; known {
		return call, true
	}
	if c.blind || c.reads >= maxReads {
		call, known = c.old.calls[pc]
		return call, known
	}
	c.reads++
	if !r.readWindow(c.pid, m, pc) {
		c.blind = true
		call, known = c.old.calls[pc]
		return call, known
	}
	if target, ok := r.window.DirectCall(pc); ok {
		call = space.Find(target) != nil
	}
	call = call || r.window.IndirectCall(pc)
	if len(c.now.calls) >= maxRules {
		clear(c.now.calls)
	}
	c.now.calls[pc] = call
	return call, true
}

// JumpRegister gives the register, by its number in instructions, to whose address the instruction at pc, in
// generated code in m, jumps.
func (r *Reader) JumpRegister(c *ProcessCode, m *vmas.Mapping, pc uint64) (reg uint8, ok bool) {
	const none = 0xff
	reg, known := c.now.jumps[pc]
	if !known {
		if c.blind || c.reads >= maxReads {
			reg, known = c.old.jumps[pc]
			return reg, known && reg != none
		}
		c.reads++
		reg = none
		if !r.readWindow(c.pid, m, pc) {
			c.blind = true
			return 0, false
		}
		if to, ok := r.window.JumpRegister(pc); ok {
			reg = to
		}
		if len(c.now.jumps) >= maxRules {
			clear(c.now.jumps)
		}
		c.now.jumps[pc] = reg
	}
	return reg, reg != none
}

// wayOut386 is what [Reader.WayOut386] returns.
type wayOut386 struct {
	asm.WayOut
	ok bool
}

// WayOut386 is [asm.Code.WayOut386] for the instruction at pc, in generated code in m.
func (r *Reader) WayOut386(c *ProcessCode, m *vmas.Mapping, pc uint64) (asm.WayOut, bool) {
	out, known := c.now.outs[pc]
	if !known {
		out = c.old.outs[pc]
		if !c.blind && c.reads < maxReads {
			c.reads++
			if c.blind = !r.readWindow(c.pid, m, pc); !c.blind {
				out.WayOut, out.ok = r.window.WayOut386(pc)
			}
			if len(c.now.outs) >= maxRules {
				clear(c.now.outs)
			}
			c.now.outs[pc] = out
		}
	}
	return out.WayOut, out.ok
}

// readWindow reads the code around pc, which lies in m.
func (r *Reader) readWindow(pid uint32, m *vmas.Mapping, pc uint64) bool {
	if r.source != Live || pc < m.Start || pc >= m.End {
		return false
	}
	addr, data := r.window.Around(pc, m.Start, m.End)
	if r.files.ReadMemory(pid, data, addr) < len(data) {
		return false
	}
	r.window.Set(addr, data)
	return true
}

// Pointer gives the word at addr in the process, a pointer to a function.
func (r *Reader) Pointer(c *ProcessCode, addr uint64) (v uint64, ok bool) {
	if v, ok = c.now.words[addr]; ok {
		return v, true
	}
	if r.source != Live || c.blind || c.reads >= maxReads {
		v, ok = c.old.words[addr]
		return v, ok
	}
	c.reads++
	var word [8]byte
	if r.files.ReadMemory(c.pid, word[:], addr) < len(word) {
		v, ok = c.old.words[addr]
		return v, ok
	}
	if len(c.now.words) >= maxRules {
		clear(c.now.words)
	}
	v = binary.LittleEndian.Uint64(word[:])
	c.now.words[addr] = v
	return v, true
}
