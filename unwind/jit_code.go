package unwind

import (
	"golang.org/x/sys/unix"

	"unspool/unwind/asm"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// readGenerated gives the rule for pc, an instruction in generated code, by
// the ways that lead from there to a ret; uncovered when they tell nothing.
// It reports false when the process's memory cannot be read.
func (u *Unwinder) readGenerated(pid uint32, m *vmas.Mapping, pc uint64) (rule.Rule, bool) {
	w, ok := u.readWindow(pid, m, pc)
	if !ok {
		return rule.Uncovered, false
	}
	if r, ok := w.Rule(pc); ok {
		return r, true
	}
	return rule.Uncovered, true
}

// generatedCall says whether the code before pc, in generated code, is a call.
func (u *Unwinder) generatedCall(space *vmas.Space, pc uint64) bool {
	var p place
	if !u.locate(&p, space, pc-1) || p.jit == nil {
		return false
	}
	j := p.jit
	call, ok := j.now.calls[pc]
	if ok {
		return call
	}
	if j.blind {
		return j.old.calls[pc]
	}
	w, ok := u.readWindow(j.pid, p.m, pc)
	if !ok {
		j.blind = true
		return j.old.calls[pc]
	}
	if target, ok := w.DirectCall(pc); ok {
		call = space.Find(target) != nil
	}
	call = call || w.IndirectCall(pc)
	if len(j.now.calls) >= jitRules {
		clear(j.now.calls)
	}
	j.now.calls[pc] = call
	return call
}

// readWindow reads the code around pc, which lies in m.
func (u *Unwinder) readWindow(pid uint32, m *vmas.Mapping, pc uint64) (*asm.Window, bool) {
	if u.images.Proc() == "" || pc < m.Start || pc >= m.End {
		return nil, false
	}
	if u.window == nil {
		u.window = asm.NewWindow()
	}
	addr, data := u.window.Around(pc, m.Start, m.End)
	local := [1]unix.Iovec{{Base: &data[0], Len: uint64(len(data))}}
	remote := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(data)}}
	if n, err := unix.ProcessVMReadv(int(pid), local[:], remote[:], 0); err != nil || n < len(data) {
		return nil, false
	}
	u.window.Set(addr, data)
	return u.window, true
}
