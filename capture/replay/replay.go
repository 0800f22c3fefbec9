// Package replay applies the side-band records of perf_event_open (include/uapi/linux/perf_event.h) to
// address spaces: MMAP, MMAP2, COMM, FORK and EXIT change a [vmas.Table], LOST makes it doubt what it knows.
// It is the only place that says what such a record means, for sessions, for profiles and for the formats
// that they are written in.
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

// Kind says what a record is about, and which fields of its [Change] are set.
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
	// Record is the record as its event has it: see [perfring.Format.Mend].
	Record perfring.Record

	PID, TID   uint32
	PPID, PTID uint32

	// Map is a mapping, also one that is not executable. Those of MMAP records, which do not tell, are
	// executable unless they are data.
	Map vmas.Map
	// Mapping is what the address space has of it: nil if it is not executable, or the process has ended.
	Mapping *vmas.Mapping

	Comm []byte
	Exec bool // the process executes another program: all its mappings are gone

	// MadeUp says that the process or thread ran before the recording began, when the tool that recorded made
	// up the FORK. A process has nothing of its parent any more.
	MadeUp bool

	Lost uint64 // how many
}

// NewProcess says whether a FORK made a process, and not a thread.
func (c *Change) NewProcess() bool { return c.PID != c.PPID }

// KernelSymbol is the symbol that the kernel's own mapping is named after, "[kernel.kallsyms]_text", and its
// address, which is the mapping's offset (machine__mmap_name in tools/perf). The name is empty where there is
// none.
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
	table *vmas.Table
	// named says that a COMM makes a process known.
	named bool

	exits  []exit // that are not applied yet, in order of time
	change Change
	mended []byte
}

// exit is the end of a thread.
type exit struct {
	pid, tid uint32
	time     uint64
}

const (
	// graceful is how long a thread is sampled after its EXIT at the most, in ns: the kernel writes it before the thread
	// gives up its memory (perf_event_exit_task in do_exit, in the kernels that do so before exit_mm), and another
	// thread may get its turn in between.
	graceful = 100e6
	// maxExits bounds how many are kept.
	maxExits = 4096
)

// New returns a Replay into a table that can look into /proc.
func New(table *vmas.Table) *Replay { return &Replay{table: table} }

// NewRecorded returns a Replay into a table that cannot, as the records are those of a recording. There, what
// is told of a process that ran already begins with its threads' names, so these make it known.
func NewRecorded(table *vmas.Table) *Replay { return &Replay{table: table, named: true} }

// Record applies a record of an event that has the format f, and returns what it says. The error is about its
// decoding: nothing has changed then.
func (r *Replay) Record(rec perfring.Record, f *perfring.Format) (*Change, error) {
	c := &r.change
	if err := r.decode(rec, f); err != nil {
		return nil, err
	}
	time, timed := f.Time(rec)
	if timed && time != math.MaxUint64 { // perf's -1: none
		r.settle(time)
	}
	switch {
	case c.Kind == Mapping, c.Kind == Fork, c.Kind == Comm && c.Exec:
		r.revive(c.PID)
	case c.Kind == LostRecords:
		r.settle(math.MaxUint64)
	}
	switch c.Kind {
	case Mapping:
		c.Mapping = r.table.Mmap(c.PID, c.Map)
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

// exit notes the end of a thread, which is applied when the thread is sampled no more.
func (r *Replay) exit(e exit, timed bool) {
	if !timed || len(r.exits) >= maxExits {
		r.settle(math.MaxUint64)
	}
	if !timed {
		r.table.Exit(e.pid, e.tid)
		return
	}
	r.exits = append(r.exits, e)
}

// settle applies the exits that no sample at a time, or later, can be of.
func (r *Replay) settle(time uint64) {
	n := 0
	for n < len(r.exits) && r.exits[n].time+graceful < time {
		r.table.Exit(r.exits[n].pid, r.exits[n].tid)
		n++
	}
	r.exits = slices.Delete(r.exits, 0, n)
}

// revive applies the exits of a process whose PID lives again.
func (r *Replay) revive(pid uint32) {
	r.exits = slices.DeleteFunc(r.exits, func(e exit) bool {
		if e.pid == pid {
			r.table.Exit(e.pid, e.tid)
		}
		return e.pid == pid
	})
}

// noParent is no process's PID.
const noParent = ^uint32(0)

// Peek returns the mapping that a record tells of whose turn has not come, with its File, which can be opened
// ahead of it. ok is false for a mapping of the kernel, one that is not executable, and any other record.
// Address spaces stay as they are.
func (r *Replay) Peek(rec perfring.Record, f *perfring.Format) (pid uint32, m vmas.Mapping, ok bool) {
	c := &r.change
	if rec.Type() != perfring.RecordMmap2 || r.decode(rec, f) != nil || c.Kind != Mapping ||
		c.Map.Prot&vmas.ProtExec == 0 {
		return 0, m, false
	}
	file := r.table.Expect(c.Map)
	return c.PID, vmas.Mapping{
		Start: c.Map.Addr, End: c.Map.Addr + c.Map.Len, Offset: c.Map.Offset, Prot: c.Map.Prot, File: file,
	}, true
}

// decode says in r.change what a record tells.
func (r *Replay) decode(rec perfring.Record, f *perfring.Format) (err error) {
	c := &r.change
	*c = Change{Record: r.mend(rec, f)}
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
	return err
}

// mend returns rec as its event has it.
func (r *Replay) mend(rec perfring.Record, f *perfring.Format) perfring.Record {
	m := f.Mend(rec, r.mended)
	if len(m) > 0 && &m[0] != &rec[0] {
		r.mended = m[:0]
	}
	return m
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
	id := vmas.FileID{Major: d.Maj, Minor: d.Min, Inode: d.Inode, Generation: d.Generation}
	if len(d.BuildID) > 0 {
		id = vmas.FileID{BuildID: vmas.NewBuildID(d.BuildID)}
	}
	c.Map = vmas.Map{Addr: d.Addr, Len: d.Len, Offset: d.Offset, Prot: d.Prot, Flags: d.Flags, Name: d.Path,
		ID: id}
	return err
}

// mapping says whose mapping it is.
func (c *Change) mapping(pid, tid uint32, misc uint16) {
	c.Kind, c.PID, c.TID = Mapping, pid, tid
	if misc&unix.PERF_RECORD_MISC_CPUMODE_MASK == unix.PERF_RECORD_MISC_KERNEL {
		c.Kind = Kernel
	}
}

// Counts adds up what was lost.
type Counts struct {
	Records   uint64 // that found no room in a ring
	Samples   uint64 // that the hardware or the kernel dropped
	Throttled uint64 // how often the kernel held an event back
}

// Lost is everything that was lost.
func (n *Counts) Lost() uint64 { return n.Records + n.Samples }

// Add takes in what a record says.
func (n *Counts) Add(c *Change) {
	switch c.Kind {
	case LostRecords:
		n.Records += c.Lost
	case LostSamples:
		n.Samples += c.Lost
	case Throttled:
		n.Throttled++
	}
}
