package jit

import (
	"os"
	"time"

	"unspool/dwarfcfi"
	"unspool/unwind/asm"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// Code is what is known of the code that one process has generated.
type Code struct {
	// Due is when what is known is old.
	Due time.Time

	pid uint32
	now known
	old known // before that, for when the process is gone

	reads int  // of code, until Due
	blind bool // the process's memory cannot be read; until Due

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
	// maxAge is how long rules are believed in.
	maxAge = 250 * time.Millisecond
	// maxReads is how often code may be read in that time; each takes some
	// microseconds.
	maxReads = 2000
	// soon is when a jitdump is read on that was too long for once.
	soon = 10 * time.Millisecond
	// maxRules bounds what one process may cost, in entries of each map.
	maxRules = 1 << 16
)

// Files are where jitdumps are found.
type Files interface {
	// Dump gives the jitdump that a process has mapped and its path; the file is nil where there
	// is none, and belongs to the callee.
	Dump(space *vmas.Space) (file *os.File, path string)
	// Report is told of a file that cannot be used.
	Report(path string, err error)
}

// A Source says where what is known of generated code comes from.
type Source uint8

const (
	Live       Source = iota // processes that run, and their jitdumps, which grow
	DumpsOnly                // their jitdumps only
	Recordings               // jitdumps of processes that are gone
)

// A Reader finds out about the generated code of all processes.
type Reader struct {
	files  Files
	source Source
	window *asm.Window
}

// NewReader returns a Reader that knows nothing yet.
func NewReader(files Files, source Source) *Reader {
	return &Reader{files: files, source: source, window: asm.NewWindow()}
}

// Lookup gives what is known of the code that a process has generated,
// brought up to date a few times a second.
func (r *Reader) Lookup(space *vmas.Space) *Code {
	c, ok := space.Generated.(*Code)
	if !ok {
		c = &Code{pid: space.PID, now: newKnown(), old: newKnown()}
		space.Generated = c
	}
	if r.source == Recordings {
		c.readWholeDump(r.files, space)
	} else if now := time.Now(); now.After(c.Due) {
		if !c.blind {
			c.now, c.old = c.old, c.now
			clear(c.now.rules)
			clear(c.now.calls)
		}
		c.blind, c.reads = false, 0
		c.Due = now.Add(maxAge)
		if c.readDump(r.files, space) {
			c.Due = now.Add(soon)
		}
	}
	return c
}

// Rule gives the rule for a frame with the given PC in generated code, which lies in m. lookup is
// the address that is looked up, the PC itself or the one before. Strict asks for CFI only.
func (r *Reader) Rule(c *Code, m *vmas.Mapping, pc, lookup uint64, strict bool) rule.Rule {
	if known, ok := c.now.rules[lookup]; ok {
		return known
	}
	found := rule.Uncovered
	var row dwarfcfi.Row
	switch err := c.Row(lookup, &row); {
	case err == nil:
		found = rule.Compile(&row, lookup)
	case err != dwarfcfi.ErrNoFDE:
		found = rule.Malformed
	case strict || c.reads >= maxReads:
	default:
		if was, ok := c.old.rules[lookup]; ok {
			found = was
		}
		if c.blind {
			break
		}
		c.reads++
		if read, ok := r.readRule(c.pid, m, pc); ok {
			found = read
		} else {
			c.blind = true
		}
	}
	if len(c.now.rules) >= maxRules {
		clear(c.now.rules)
	}
	c.now.rules[lookup] = found
	return found
}

// Row gives the CFI row for pc from the jitdump.
func (c *Code) Row(pc uint64, row *dwarfcfi.Row) error {
	if c.dump == nil {
		return dwarfcfi.ErrNoFDE
	}
	return c.dump.row(pc, row)
}
