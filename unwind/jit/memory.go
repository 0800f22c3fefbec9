package jit

import (
	"golang.org/x/sys/unix"

	"unspool/unwind/rule"
	"unspool/vmas"
)

// readRule gives the rule for pc, an instruction in generated code, by
// the ways that lead from there to a ret; uncovered when they tell nothing.
// It reports false when the process's memory cannot be read.
func (r *Reader) readRule(pid uint32, m *vmas.Mapping, pc uint64) (rule.Rule, bool) {
	if !r.readWindow(pid, m, pc) {
		return rule.Uncovered, false
	}
	if found, ok := r.window.Rule(pc); ok {
		return found, true
	}
	return rule.Uncovered, true
}

// IsCall says whether the code before pc, in generated code in m, is a call.
func (r *Reader) IsCall(c *Code, space *vmas.Space, m *vmas.Mapping, pc uint64) bool {
	call, ok := c.now.calls[pc]
	if ok {
		return call
	}
	if c.blind {
		return c.old.calls[pc]
	}
	if !r.readWindow(c.pid, m, pc) {
		c.blind = true
		return c.old.calls[pc]
	}
	if target, ok := r.window.DirectCall(pc); ok {
		call = space.Find(target) != nil
	}
	call = call || r.window.IndirectCall(pc)
	if len(c.now.calls) >= maxRules {
		clear(c.now.calls)
	}
	c.now.calls[pc] = call
	return call
}

// readWindow reads the code around pc, which lies in m.
func (r *Reader) readWindow(pid uint32, m *vmas.Mapping, pc uint64) bool {
	if r.source != Live || pc < m.Start || pc >= m.End {
		return false
	}
	addr, data := r.window.Around(pc, m.Start, m.End)
	local := [1]unix.Iovec{{Base: &data[0], Len: uint64(len(data))}}
	remote := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(data)}}
	if n, err := unix.ProcessVMReadv(int(pid), local[:], remote[:], 0); err != nil || n < len(data) {
		return false
	}
	r.window.Set(addr, data)
	return true
}
