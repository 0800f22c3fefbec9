package jit

import (
	"io"
	"time"

	"unspool/dwarfcfi"
	"unspool/unwind/asm"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// ProcessCode is what is known of the code that one process has generated.
type ProcessCode struct {
	// Due is when what is known has to be read again.
	Due time.Time

	pid uint32
	now known
	old known // from before that, for a process that is gone

	reads int  // of code, until Due
	far   int  // of these, for [Reader.RuleFarther]
	blind bool // the process's memory could not be read; until Due

	dump  *dump  // nil without a jitdump
	maps  uint32 // generation of the mappings in which one was looked for
	asked bool   // one was looked for
}

// A known is what was found out about generated code.
type known struct {
	rules map[uint64]rule.Rule // by the address that was looked up
	over  map[uint64]rule.Rule // likewise, found by [Reader.RuleFarther]
	calls map[uint64]bool      // by return address: is there a call before it?
	jumps map[uint64]uint8     // see [Reader.JumpRegister]
	words map[uint64]uint64    // pointers to functions, by their addresses
	outs  map[uint64]wayOut386 // see [Reader.WayOut386]
}

func newKnown() known {
	return known{make(map[uint64]rule.Rule), make(map[uint64]rule.Rule), make(map[uint64]bool),
		make(map[uint64]uint8), make(map[uint64]uint64), make(map[uint64]wayOut386)}
}

const (
	// maxAge is how long rules are used before the code is read again.
	maxAge = 250 * time.Millisecond
	// maxReads is how often code may be read in that time; each takes some
	// microseconds.
	maxReads = 2000
	// maxFarReads is how often [Reader.RuleFarther] may read code in that time. Each read takes some ten
	// microseconds.
	maxFarReads = 200
	// soon is the time until the next read of a jitdump that was not read to its end.
	soon = 10 * time.Millisecond
	// maxRules bounds what one process may cost, in entries of each map.
	maxRules = 1 << 16
)

// Inputs gives access to jitdumps and to the memory of processes.
type Inputs interface {
	// Dump returns the jitdump that a process has mapped, nil if there is none; late means that one is not
	// open yet. For the same file it returns equal values.
	Dump(space *vmas.Space) (file File, late bool)
	// ReadMemory reads the memory of a process, and returns how many bytes it read.
	ReadMemory(pid uint32, buf []byte, addr uint64) int
	// Begin reports whether the process whose stack is walked has credit left for reading code, and when that
	// began. End charges the process for it.
	Begin() (began time.Time, ok bool)
	End(began time.Time)
	// Report is told of a file that cannot be used.
	Report(path string, err error)
}

// A File is a jitdump. Reading it may block: the process chooses the file system.
type File interface {
	io.ReaderAt
	Path() string
	// Begin calls do on a goroutine that may block.
	Begin(do func()) Job
}

// A Job waits for what was begun as long as the rings permit, and reports whether it is done.
type Job func() bool

// A Source says from where generated code is read.
type Source uint8

const (
	Live       Source = iota // processes that run, and their jitdumps, which grow
	DumpsOnly                // jitdumps of processes that run
	Recordings               // jitdumps of processes that are gone
)

// A Reader reads the generated code of all processes.
type Reader struct {
	files  Inputs
	source Source
	window *asm.Window
	ways   asm.Ways
	method []byte // code before a PC
}

// NewReader returns a Reader that knows nothing yet.
func NewReader(files Inputs, source Source) *Reader {
	return &Reader{files: files, source: source, window: asm.NewWindow()}
}

// Lookup returns what is known of the code that a process has generated. It is updated a few times a second.
func (r *Reader) Lookup(space *vmas.Space) *ProcessCode {
	c, ok := space.Generated.(*ProcessCode)
	if !ok {
		c = &ProcessCode{pid: space.PID, now: newKnown(), old: newKnown()}
		space.Generated = c
	}
	if r.source == Recordings {
		c.readWholeDump(r.files, space)
	} else if now := time.Now(); now.After(c.Due) {
		if !c.blind {
			c.now, c.old = c.old, c.now
			clear(c.now.rules)
			clear(c.now.over)
			clear(c.now.calls)
			clear(c.now.jumps)
			clear(c.now.words)
			clear(c.now.outs)
		}
		c.blind, c.reads, c.far = false, 0, 0
		c.Due = now.Add(maxAge)
		if more, _ := c.readDump(r.files, space); more {
			c.Due = now.Add(soon)
		}
	}
	return c
}

// Rule gives the rule for a frame with the given PC in generated code, which lies in m. lookup is the address
// that is looked up, the PC itself or the one before. With strict, only CFI is used.
func (r *Reader) Rule(c *ProcessCode, m *vmas.Mapping, pc, lookup uint64, strict bool) rule.Rule {
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
		began, ok := r.files.Begin()
		if !ok {
			return found
		}
		c.reads++
		if read, ok := r.readRule(c.pid, m, pc, pc == lookup); ok {
			found = read
		} else {
			c.blind = true
		}
		r.files.End(began)
	}
	if len(c.now.rules) >= maxRules {
		clear(c.now.rules)
	}
	c.now.rules[lookup] = found
	return found
}

// Row gives the CFI row for pc from the jitdump.
func (c *ProcessCode) Row(pc uint64, row *dwarfcfi.Row) error {
	if c.dump == nil {
		return dwarfcfi.ErrNoFDE
	}
	return c.dump.row(pc, row)
}
