package unwind

import (
	"time"

	"unspool/dwarfcfi"
	"unspool/vmas"
)

// Code that was generated at run time lies in memory that no ELF file is
// behind. What is known of it belongs to the process, and does not last: code
// is moved, dropped and replaced, and no record tells. In order of what it is
// worth:
//
//   - the runtime has written CFI into a jitdump;
//   - the code itself, read from the process: how it leads to a ret near by;
//   - frame pointers, which most runtimes keep or can be told to keep;
//   - the frame of the interpreter that the code runs in, as LuaJIT's does.
//
// All but the first are guesses, and strict walks go without.

// A jit is what is known of the code that one process has generated.
type jit struct {
	pid   uint32
	rules map[uint64]rule // by the address that was looked up
	calls map[uint64]bool // what is a return address
	due   time.Time       // when rules have to be looked at again
	blind bool            // the process's memory could not be read; until due

	dump  *dump  // nil without a jitdump
	maps  uint32 // generation of the mappings in which one was looked for
	asked bool   // that it was
}

const (
	// jitAge is how long rules are believed in.
	jitAge = 250 * time.Millisecond
	// jitSoon is when a jitdump is read on that was too long for once.
	jitSoon = 10 * time.Millisecond
	// jitRules bounds what one process may cost, in entries of each map.
	jitRules = 1 << 16
)

// generated gives what is known of the code that a process has generated,
// brought up to date a few times a second.
func (u *Unwinder) generated(space *vmas.Space) *jit {
	j, ok := space.Generated.(*jit)
	if !ok {
		j = &jit{pid: space.PID, rules: make(map[uint64]rule), calls: make(map[uint64]bool)}
		space.Generated = j
	}
	if now := time.Now(); now.After(j.due) {
		clear(j.rules)
		clear(j.calls)
		j.blind = false
		j.due = now.Add(jitAge)
		if u.images.readDump(j, space) {
			j.due = now.Add(jitSoon)
		}
	}
	return j
}

// generatedRule gives the rule for the frame f in generated code.
func (u *Unwinder) generatedRule(p *place, f *frame) rule {
	j, pc := p.jit, f.lookup()
	if r, ok := j.rules[pc]; ok {
		return r
	}
	r := uncovered
	var row dwarfcfi.Row
	switch err := j.row(pc, &row); {
	case err == nil:
		r = compile(&row, pc)
	case err != dwarfcfi.ErrNoFDE:
		r = malformed
	case u.Strict || j.blind:
	default:
		found, ok := u.readGenerated(j.pid, p.m, f.pc)
		if !ok {
			j.blind = true
			return uncovered
		}
		r = found
	}
	if len(j.rules) >= jitRules {
		clear(j.rules)
	}
	j.rules[pc] = r
	return r
}

// row gives the CFI row for pc from the jitdump.
func (j *jit) row(pc uint64, row *dwarfcfi.Row) error {
	if j.dump == nil {
		return dwarfcfi.ErrNoFDE
	}
	return j.dump.row(pc, row)
}

// row gives the CFI row for pc, which lies at p.
func (p *place) row(pc uint64, row *dwarfcfi.Row) error {
	switch {
	case p.jit != nil:
		return p.jit.row(pc, row)
	case p.image != nil:
		return p.image.row(p.m, pc, row)
	}
	return dwarfcfi.ErrNoFDE
}
