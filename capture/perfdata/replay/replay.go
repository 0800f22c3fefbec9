// Package replay applies the side-band records of perf_event_open (include/uapi/linux/perf_event.h) to
// address spaces: MMAP, MMAP2, COMM, FORK and EXIT change a [vmas.Table]; after LOST, the table reads
// processes again from /proc. It is the only place that interprets these records, for sessions, profiles and
// output formats alike.
//
// A [Change] is what one record says, in decoded form. Its slices point into the record, or into memory of
// the Replay: it is valid until the next record.
package replay

import (
	"math"
	"slices"
	"strings"

	"unspool/perfring"
	"unspool/vmas"

	"golang.org/x/sys/unix"
)

// Kind is what a record is about, and which fields of its [Change] are set.
type Kind uint8

const (
	Other       Kind = iota // nothing that concerns address spaces
	Mapping                 // PID, TID, Map, Mapping
	Kernel                  // a mapping of the kernel or a module of it: PID, TID, Map
	Comm                    // PID, TID, Comm, Exec
	Fork                    // PID, TID, PPID, PTID, MadeUp
	Exit                    // PID, TID, PPID, PTID
	LostRecords             // Lost
	LostSamples             // Lost
	Throttled               // nothing
)

// Change is what a record says.
type Change struct {
	Kind Kind
	// Record is the record as its event has it: see [perfring.SampleFormat.Correct].
	Record perfring.Record

	PID, TID   uint32
	PPID, PTID uint32

	// Map is the mapping, executable or not. MMAP records have no protection: their mappings count as
	// executable unless they are marked as data.
	Map vmas.Map
	// Mapping is the mapping in the address space: nil if it is not executable, or the process has ended.
	Mapping *vmas.Mapping

	Comm []byte
	Exec bool // the process executes another program: all its mappings are gone

	// MadeUp means that the FORK is not from the kernel: the recording tool wrote it for a process or thread
	// that ran before the recording began. Such a process does not inherit the mappings of its parent.
	MadeUp bool

	Lost uint64 // how many
}

// NewProcess reports whether a FORK made a process, and not a thread.
func (c *Change) NewProcess() bool { return c.PID != c.PPID }

// Begins reports whether a process begins, or another program in it.
func (c *Change) Begins() bool { return c.Kind == Fork && c.NewProcess() || c.Kind == Comm && c.Exec }

// KernelSymbol is the symbol in the name of the kernel's own mapping, "[kernel.kallsyms]_text", and its
// address, which is the mapping's offset (machine__mmap_name in tools/perf). The name is empty for any other
// record.
func (c *Change) KernelSymbol() (name string, addr uint64) {
	if c.Kind != Kernel {
		return "", 0
	}
	name, ok := strings.CutPrefix(string(c.Map.Name), "[kernel.kallsyms]")
	if !ok || name == "" {
		return "", 0
	}
	return name, c.Map.Offset
}

// Replay applies records to a table. They must come in the order of time.
type Replay struct {
	// OfSamples reports whether the record at hand is from where only samples are: what was lost there tells nothing of
	// processes. It may be nil.
	OfSamples func() bool

	table *vmas.Table
	// named means that a COMM makes a process known.
	named bool

	exits  []exit           // exits that are not applied yet, in order of time
	ending map[uint32]int32 // how many of these a process has
	begun  uint64           // time of the last record of a live table with which a process began, or another program
	mapped uint64           // the same of the last mapping
	taken  decoded          // by Record
	ahead  decoded          // by Peek, which may be called while a change is still used
}

// decoded is the last record that was decoded.
type decoded struct {
	change    Change
	corrected []byte // scratch
}

// exit is the end of a thread.
type exit struct {
	pid, tid uint32
	time     uint64
}

const (
	// graceful is how long after its EXIT a thread may still be sampled, in ns. Some kernels write the record
	// before the thread gives up its memory (perf_event_exit_task before exit_mm in do_exit), and other
	// threads may run in between.
	graceful = 100e6
	// maxExits bounds how many exits are kept.
	maxExits = 4096
)

// New returns a Replay into a table that can look into /proc.
func New(table *vmas.Table) *Replay { return &Replay{table: table, ending: make(map[uint32]int32)} }

// NewRecorded returns a Replay into a table that cannot, for the records of a recording. There, the records
// about a process that ran already begin with the names of its threads, so a COMM makes a process known.
func NewRecorded(table *vmas.Table) *Replay {
	r := New(table)
	r.named = true
	return r
}

// Record applies a record of an event that has the format f, and returns what it says. It fails if the record
// cannot be decoded, and changes nothing then.
func (r *Replay) Record(rec perfring.Record, f *perfring.SampleFormat) (*Change, error) {
	c, err := r.taken.decode(rec, f)
	if err != nil {
		return nil, err
	}
	var time uint64
	timed := false
	if len(r.exits) > 0 || c.Kind == Exit || !r.named && (c.Kind == Mapping || c.Begins()) {
		time, timed = f.Time(rec)
		timed = timed && time != math.MaxUint64 // perf's -1: none
		if timed {
			r.settle(time)
		}
		if timed && c.Kind == Mapping {
			c.Map.Time = time
		}
	}
	if timed && !r.named && c.Begins() {
		r.begun = max(r.begun, time)
		r.table.HasCome(c.PID, time)
	}
	switch {
	case c.Kind == Mapping, c.Kind == Fork, c.Kind == Comm && c.Exec:
		r.revive(c.PID)
	case c.Kind == LostRecords && r.OfSamples != nil && r.OfSamples():
		return c, nil
	case c.Kind == LostRecords:
		r.settle(math.MaxUint64)
	}
	switch c.Kind {
	case Mapping:
		c.Mapping = r.table.Mmap(c.PID, c.Map)
		if timed && !r.named {
			r.mapped = max(r.mapped, time)
			r.table.MappingHasCome(c.PID, time)
		}
	case Comm:
		if r.named && !c.Exec && r.table.Space(c.PID) == nil {
			r.table.Fork(c.PID, c.PID, 0, 0)
		}
		r.table.Comm(c.PID, c.TID, c.Comm, c.Exec)
	case Fork:
		parent := c.PPID
		if c.MadeUp && c.NewProcess() {
			parent = noParent
		}
		r.table.Fork(c.PID, c.TID, parent, c.PTID)
	case Exit:
		r.exit(exit{c.PID, c.TID, time}, timed)
	case LostRecords:
		r.table.Lost()
	}
	return c, nil
}

// exit notes the end of a thread. It is applied later, when the thread cannot be sampled any more.
func (r *Replay) exit(e exit, timed bool) {
	if !timed || len(r.exits) >= maxExits {
		r.settle(math.MaxUint64)
	}
	if !timed {
		r.table.Exit(e.pid, e.tid)
		return
	}
	r.exits = append(r.exits, e)
	r.ending[e.pid]++
}

// settle applies the exits of threads that cannot be sampled at a time or later.
func (r *Replay) settle(time uint64) {
	n := 0
	for n < len(r.exits) && r.exits[n].time+graceful < time {
		r.apply(r.exits[n])
		n++
	}
	r.exits = r.exits[n:] // whose memory is left when there is no room behind it: moving the others costs more
}

func (r *Replay) apply(e exit) {
	r.table.Exit(e.pid, e.tid)
	if r.ending[e.pid]--; r.ending[e.pid] == 0 {
		delete(r.ending, e.pid)
	}
}

// revive applies the exits of a process whose PID is in use again.
func (r *Replay) revive(pid uint32) {
	if len(r.exits) == 0 || r.ending[pid] == 0 {
		return
	}
	r.exits = slices.DeleteFunc(r.exits, func(e exit) bool {
		if e.pid == pid {
			r.apply(e)
		}
		return e.pid == pid
	})
}

// noParent is no process's PID.
const noParent = ^uint32(0)

// Peek returns the mapping in a record that is not to be applied yet, with its File, which can be opened in
// advance. ok is false for a mapping of the kernel, one that is not executable, and any other record. Address
// spaces do not change.
func (r *Replay) Peek(rec perfring.Record, f *perfring.SampleFormat) (pid uint32, m vmas.Mapping, ok bool) {
	switch rec.Type() {
	case perfring.RecordMmap2:
	case perfring.RecordComm, perfring.RecordFork:
		r.toCome(rec, f)
		return 0, m, false
	default:
		return 0, m, false
	}
	c, err := r.ahead.decode(rec, f)
	if err != nil || c.Kind != Mapping || c.Map.Prot&vmas.ProtExec == 0 {
		return 0, m, false
	}
	file := r.table.Expect(c.Map)
	time, timed := f.Time(rec)
	m = vmas.Mapping{
		Start: c.Map.Addr, End: c.Map.Addr + c.Map.Len, Offset: c.Map.Offset, Prot: c.Map.Prot, File: file,
		Time: time,
	}
	if timed && time > r.mapped { // it may have been taken already
		r.table.MappingToCome(c.PID, &m)
	}
	return c.PID, m, true
}

// toCome notes that a process will execute another program, or is a new one: what /proc shows of it does not belong
// to its samples before that.
func (r *Replay) toCome(rec perfring.Record, f *perfring.SampleFormat) {
	if rec.Type() == perfring.RecordComm && rec.Misc()&unix.PERF_RECORD_MISC_COMM_EXEC == 0 {
		return
	}
	c, err := r.ahead.decode(rec, f)
	if err != nil || !c.Begins() {
		return
	}
	if time, ok := f.Time(rec); ok && time > r.begun { // it may have been taken already
		r.table.ToCome(c.PID, time)
	}
}

// decode decodes a record, and returns r.change, which is valid until the next call.
func (r *decoded) decode(rec perfring.Record, f *perfring.SampleFormat) (c *Change, err error) {
	c = &r.change
	*c = Change{Record: f.Correct(rec, &r.corrected)}
	switch rec.Type() {
	case perfring.RecordMmap:
		err = c.mmap()
	case perfring.RecordMmap2:
		err = c.mmap2()
	case perfring.RecordComm:
		var d perfring.Comm
		err = perfring.DecodeComm(c.Record, &d)
		c.Kind, c.PID, c.TID, c.Comm, c.Exec = Comm, d.PID, d.TID, d.Comm, d.Exec
	case perfring.RecordFork:
		err = c.task(Fork)
		c.MadeUp = c.Record.Misc()&unix.PERF_RECORD_MISC_FORK_EXEC != 0
	case perfring.RecordExit:
		err = c.task(Exit)
	case perfring.RecordLost:
		var d perfring.Lost
		err = perfring.DecodeLost(c.Record, &d)
		c.Kind, c.Lost = LostRecords, d.Lost
	case perfring.RecordLostSamples:
		var d perfring.LostSamples
		err = perfring.DecodeLostSamples(c.Record, &d)
		c.Kind, c.Lost = LostSamples, d.Lost
	case perfring.RecordThrottle:
		c.Kind = Throttled
	}
	return c, err
}

func (c *Change) task(kind Kind) error {
	var d perfring.Task
	err := perfring.DecodeTask(c.Record, &d)
	c.Kind, c.PID, c.TID, c.PPID, c.PTID = kind, d.PID, d.TID, d.PPID, d.PTID
	return err
}

func (c *Change) mmap() error {
	var d perfring.Mmap
	err := perfring.DecodeMmap(c.Record, &d)
	c.mapping(d.PID, d.TID, d.Misc)
	c.Map = vmas.Map{Addr: d.Addr, Len: d.Len, Offset: d.Offset, Prot: vmas.ProtExec, Name: d.Path}
	if d.Misc&unix.PERF_RECORD_MISC_MMAP_DATA != 0 {
		c.Map.Prot = 0
	}
	return err
}

func (c *Change) mmap2() error {
	var d perfring.Mmap2
	err := perfring.DecodeMmap2(c.Record, &d)
	c.mapping(d.PID, d.TID, d.Misc)
	m := &c.Map // which is empty
	m.Addr, m.Len, m.Offset, m.Prot, m.Flags, m.Name = d.Addr, d.Len, d.Offset, d.Prot, d.Flags, d.Path
	m.ID.Major, m.ID.Minor, m.ID.Inode, m.ID.Generation = d.Maj, d.Min, d.Inode, d.Generation
	if len(d.BuildID) > 0 {
		m.ID = vmas.FileID{BuildID: vmas.NewBuildID(d.BuildID)}
	}
	return err
}

// mapping says whose mapping it is.
func (c *Change) mapping(pid, tid uint32, misc uint16) {
	c.Kind, c.PID, c.TID = Mapping, pid, tid
	if misc&unix.PERF_RECORD_MISC_CPUMODE_MASK == unix.PERF_RECORD_MISC_KERNEL {
		c.Kind = Kernel
	}
}

// Losses adds up what was lost.
type Losses struct {
	Records   uint64 // for which a ring had no room
	Samples   uint64 // that the hardware or the kernel dropped
	Throttled uint64 // how often the kernel held an event back
}

// Lost is everything that was lost.
func (n *Losses) Lost() uint64 { return n.Records + n.Samples }

// Add counts what a record says.
func (n *Losses) Add(c *Change) {
	switch c.Kind {
	case LostRecords:
		n.Records += c.Lost
	case LostSamples:
		n.Samples += c.Lost
	case Throttled:
		n.Throttled++
	}
}
