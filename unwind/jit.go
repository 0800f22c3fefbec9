package unwind

import (
	"time"

	"unspool/dwarfcfi"
	"unspool/unwind/rule"
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
	pid uint32
	now known
	old known     // before that, for when the process is gone
	due time.Time // when now is old

	reads int  // of code, until due
	blind bool // the process's memory cannot be read; until due

	dump  *dump  // nil without a jitdump
	maps  uint32 // generation of the mappings in which one was looked for
	asked bool   // that it was
}

// A known is what was found out about generated code.
type known struct {
	rules map[uint64]rule.Rule // by the address that was looked up
	calls map[uint64]bool      // by the address behind: is it a call?
}

func newKnown() known { return known{make(map[uint64]rule.Rule), make(map[uint64]bool)} }

const (
	// jitAge is how long rules are believed in.
	jitAge = 250 * time.Millisecond
	// jitReads is how often code may be read in that time; each takes some
	// microseconds.
	jitReads = 2000
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
		j = &jit{pid: space.PID, now: newKnown(), old: newKnown()}
		space.Generated = j
	}
	if u.images.Offline() {
		j.readWholeDump(u.images, space)
	} else if now := time.Now(); now.After(j.due) {
		if !j.blind {
			j.now, j.old = j.old, j.now
			clear(j.now.rules)
			clear(j.now.calls)
		}
		j.blind, j.reads = false, 0
		j.due = now.Add(jitAge)
		if j.readDump(u.images, space) {
			j.due = now.Add(jitSoon)
		}
	}
	return j
}

// generatedRule gives the rule for the frame f in generated code.
func (u *Unwinder) generatedRule(p *place, f *frame) rule.Rule {
	j, pc := p.jit, f.lookup()
	if r, ok := j.now.rules[pc]; ok {
		return r
	}
	r := rule.Uncovered
	var row dwarfcfi.Row
	switch err := j.row(pc, &row); {
	case err == nil:
		r = rule.Compile(&row, pc)
	case err != dwarfcfi.ErrNoFDE:
		r = rule.Malformed
	case u.Strict || j.reads >= jitReads:
	default:
		if was, ok := j.old.rules[pc]; ok {
			r = was
		}
		if j.blind {
			break
		}
		j.reads++
		if read, ok := u.readGenerated(j.pid, p.m, f.pc); ok {
			r = read
		} else {
			j.blind = true
		}
	}
	if len(j.now.rules) >= jitRules {
		clear(j.now.rules)
	}
	j.now.rules[pc] = r
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
		return p.image.Row(p.m, pc, row)
	}
	return dwarfcfi.ErrNoFDE
}
