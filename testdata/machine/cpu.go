package machine

import (
	"cmp"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"unspool/perfring"
	"unspool/perfring/recordtest"
)

const (
	recordFork = perfring.RecordFork
	recordExit = perfring.RecordExit
	// registers are those that the kernel is asked for: AX to SS, R8 to R15.
	registers = 0xff0fff
	eventID   = 7
	never     = ^uint64(0)
)

// A cpu is a CPU with the kernel's side of its two rings.
type cpu struct {
	m       *Machine
	number  int
	next    uint64 // when something happens on it
	r       *rand.Rand
	format  perfring.SampleFormat
	samples ring
	others  ring
	reads   stackReader
	offline bool
	buf     []byte   // of the record that is made
	last    []byte   // likewise, of a sample, which may be read meanwhile
	free    [][]byte // of records that were written
}

// A ring is the kernel's side of a ring.
type ring struct {
	perfring.SimulatedRing
	head, tail uint64    // as in the kernel: one end is atomically written by each side
	waiting    []waiting // records that are not written yet
	lost       uint64    // since the last record
	dropped    uint64    // in all
}

// A waiting is a record that is written at a time.
type waiting struct {
	at  uint64
	rec []byte
}

// pools keep the memory of rings for the next machine, by the number of bits of their size.
var pools [bits.UintSize]sync.Pool

// newRing returns memory for a ring.
func newRing(size int) []byte {
	if b, ok := pools[bits.Len(uint(size))-1].Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, size)
}

// freeRings gives up the memory of the rings.
func (c *cpu) freeRings() {
	for _, r := range []*ring{&c.samples, &c.others} {
		memory := r.Data
		pools[bits.Len(uint(len(memory)))-1].Put(&memory)
	}
}

// noStack is what a record has behind a stack that is smaller than the copy.
var noStack [perfring.MaxStackSize]byte

func newCPU(m *Machine, number int) *cpu {
	c := &cpu{m: m, number: number, next: base, r: m.plan.draw("cpu", uint64(number)),
		format: perfring.NewFormat(m.attr())}
	c.reads = newStackReader(c)
	for _, r := range []*ring{&c.samples, &c.others} {
		size := m.plan.Ring
		if r == &c.others {
			size = cmp.Or(m.plan.Others, max(size/16, 1<<12))
		}
		r.SimulatedRing = perfring.SimulatedRing{CPU: number, SideBand: r == &c.others, Data: newRing(size), Head: &r.head,
			Tail: &r.tail}
	}
	return c
}

// id is the trailer of a record.
func (c *cpu) id(pid, tid uint32) *perfring.SampleID {
	return &perfring.SampleID{PID: pid, TID: tid, Time: c.m.at, ID: eventID, CPU: uint32(c.number)}
}

// put writes a record to a ring: now, or a little late.
func (c *cpu) put(to *ring, rec []byte, err error) {
	if err != nil {
		panic(err)
	}
	c.m.Reached[perfring.Record(rec).Type().String()]++
	at := c.m.at
	if c.m.happens(c.r, "inverted") {
		at += uint64(c.r.IntN(30_000))
	}
	var buf []byte
	if n := len(c.free); n > 0 {
		buf, c.free = c.free[n-1], c.free[:n-1]
	}
	i := len(to.waiting)
	for i > 0 && to.waiting[i-1].at > at {
		i--
	}
	to.waiting = slices.Insert(to.waiting, i, waiting{at, append(buf[:0], rec...)})
	c.m.at++ // no two records have the same time
}

// write writes the records up to a time into the rings.
func (c *cpu) write(until uint64) {
	for _, r := range []*ring{&c.samples, &c.others} {
		n := 0
		for n < len(r.waiting) && r.waiting[n].at <= until {
			c.writeTo(r, &r.waiting[n])
			c.free = append(c.free, r.waiting[n].rec)
			n++
		}
		r.waiting = slices.Delete(r.waiting, 0, n)
	}
}

// writeTo writes a record if there is room, behind a LOST record for those for which there was none
// (perf_output_begin, kernel/events/ring_buffer.c).
func (c *cpu) writeTo(r *ring, w *waiting) {
	var lost []byte
	if r.lost > 0 {
		id := c.id(0, 0)
		id.Time, _ = c.format.Time(perfring.Record(w.rec))
		lost, _ = perfring.AppendLost(nil, &c.format, &perfring.Lost{ID: eventID, Lost: r.lost}, id)
	}
	head := r.head
	if uint64(len(r.Data))-(head-atomic.LoadUint64(&r.tail)) < uint64(len(lost)+len(w.rec)) {
		r.lost++
		r.dropped++
		c.m.Reached["lost"]++
		c.m.drop(w.rec)
		return
	}
	r.lost = 0
	for _, rec := range [][]byte{lost, w.rec} {
		c.m.tape.take(r, rec)
		at := int(head % uint64(len(r.Data)))
		n := copy(r.Data[at:], rec)
		copy(r.Data, rec[n:])
		head += uint64(len(rec))
	}
	atomic.StoreUint64(&r.head, head)
}

func (c *cpu) comm(t *task, tid uint32, exec bool) {
	rec, err := perfring.AppendComm(c.buf[:0], &c.format, &perfring.Comm{PID: t.pid, TID: tid, Exec: exec,
		Comm: []byte(t.program.comm)}, c.id(t.pid, tid))
	c.put(&c.others, rec, err)
}

func (c *cpu) mmap(t *task, tid uint32, n *mapping) {
	is := n.mmap2(t.pid, tid)
	rec, err := perfring.AppendMmap2(c.buf[:0], &c.format, &is, c.id(t.pid, tid))
	c.put(&c.others, rec, err)
}

// mmap2 is what records tell of a mapping.
func (m *mapping) mmap2(pid, tid uint32) perfring.Mmap2 {
	st := &m.file.stat
	is := perfring.Mmap2{Misc: unix.PERF_RECORD_MISC_USER, PID: pid, TID: tid, Addr: m.start, Len: sizeOf,
		Maj: unix.Major(st.Dev), Min: unix.Minor(st.Dev), Inode: st.Ino, Prot: unix.PROT_READ | unix.PROT_EXEC,
		Flags: unix.MAP_PRIVATE, Path: []byte(m.file.path)}
	if m.file.generated {
		is.Prot, is.Flags = is.Prot|unix.PROT_WRITE, is.Flags|unix.MAP_ANONYMOUS
	}
	return is
}

func (c *cpu) task(kind perfring.RecordType, pid, ppid, tid, ptid uint32) {
	rec, err := recordtest.AppendTask(c.buf[:0], &c.format, kind, &perfring.Task{PID: pid, PPID: ppid, TID: tid,
		PTID: ptid, Time: c.m.at}, c.id(pid, tid))
	c.put(&c.others, rec, err)
}

// throttle says that the kernel holds the event back. The record has the body of a LOST record, and a word more.
func (c *cpu) throttle() {
	b := le.AppendUint32(nil, uint32(perfring.RecordThrottle))
	b = le.AppendUint16(le.AppendUint16(b, 0), 0)
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, c.m.at), eventID), eventID)
	c.put(&c.samples, c.trailed(b, 0), nil)
}

// ksymbol tells of code of the kernel. The record is longer than what was written: see
// [perfring.SampleFormat.Correct].
func (c *cpu) ksymbol() {
	b := le.AppendUint32(nil, uint32(perfring.RecordKsymbol))
	b = le.AppendUint16(le.AppendUint16(b, 0), 0)
	b = le.AppendUint64(b, 0xffff_ffff_c000_0000)
	b = le.AppendUint32(b, 64)
	b = le.AppendUint16(le.AppendUint16(b, 1), 0)
	b = append(b, "bpf_prog_0000000\x00\x00\x00\x00\x00\x00\x00\x00"...)
	c.put(&c.others, c.trailed(b, 8*c.r.IntN(6)), nil)
}

// trailed appends the trailer to a record, and what the ring held before.
func (c *cpu) trailed(b []byte, more int) []byte {
	like, _ := perfring.AppendLost(nil, &c.format, &perfring.Lost{}, c.id(1, 1))
	b = append(b, like[len(like)-c.format.SampleIDSize():]...)
	for range more / 8 {
		b = le.AppendUint64(b, c.r.Uint64())
	}
	le.PutUint16(b[6:], uint16(len(b)))
	return b
}

// sample samples a thread: in its code, or in the kernel.
func (c *cpu) sample(t *task, th *thread) {
	s := th.now(c.r)
	stack := th.copy(s.sp, c.m.plan.Copy)
	misc, chain := uint16(unix.PERF_RECORD_MISC_USER), []uint64(nil)
	if c.r.IntN(4) == 0 {
		misc = unix.PERF_RECORD_MISC_KERNEL
		chain = []uint64{^uint64(127), 0xffff_ffff_8100_0000 + c.r.Uint64N(1<<20)}
	}
	is := sampled{chain: s.chain, copied: len(stack), depth: int(th.segment(s.sp).top - s.sp),
		program: t.program}
	c.m.truth[c.m.at] = is
	if c.m.tape != nil { // the judge forgets what it has judged
		c.m.tape.truth[c.m.at] = is
	}
	rec := c.sampleOf(t.pid, th.tid, misc, chain, &s, stack)
	c.put(&c.samples, rec, nil)
	c.reads.sampled(th, rec)
}

// exited samples a task that has no user part any more.
func (c *cpu) exited(t *task) {
	c.put(&c.samples, c.sampleOf(t.pid, t.pid, unix.PERF_RECORD_MISC_KERNEL,
		[]uint64{^uint64(127), 0xffff_ffff_8100_0000}, nil, nil), nil)
}

func (c *cpu) sampleOf(pid, tid uint32, misc uint16, chain []uint64, s *state, stack []byte) []byte {
	b := le.AppendUint32(c.last[:0], uint32(perfring.RecordSample))
	b = le.AppendUint16(le.AppendUint16(b, misc), 0)
	b = le.AppendUint64(b, eventID)
	ip := uint64(0)
	if s != nil {
		ip = s.pc
	}
	if len(chain) > 1 {
		ip = chain[1]
	}
	b = le.AppendUint64(b, ip)
	b = le.AppendUint32(le.AppendUint32(b, pid), tid)
	b = le.AppendUint64(b, c.m.at)
	b = le.AppendUint32(le.AppendUint32(b, uint32(c.number)), 0)
	b = le.AppendUint64(b, 1_000_000)
	b = le.AppendUint64(b, uint64(len(chain)))
	for _, ip := range chain {
		b = le.AppendUint64(b, ip)
	}
	if s == nil {
		b = le.AppendUint64(b, unix.PERF_SAMPLE_REGS_ABI_NONE)
		b = le.AppendUint64(b, 0) // no stack
	} else {
		b = le.AppendUint64(b, unix.PERF_SAMPLE_REGS_ABI_64)
		for mask := uint64(registers); mask != 0; mask &= mask - 1 {
			v := c.r.Uint64()
			switch bits.TrailingZeros64(mask) {
			case 1:
				v = s.bx
			case 6:
				v = s.bp
			case 7:
				v = s.sp
			case 8:
				v = s.pc
			}
			b = le.AppendUint64(b, v)
		}
		// A record has 65,535 bytes at most (perf_sample_ustack_size, kernel/events/core.c). No stack here is as deep.
		size := min(c.m.plan.Copy, (math.MaxUint16-len(b)-16)&^7)
		b = le.AppendUint64(b, uint64(size))
		b = append(append(b, stack...), noStack[:size-len(stack)]...)
		b = le.AppendUint64(b, uint64(len(stack)))
	}
	le.PutUint16(b[6:], uint16(len(b)))
	c.last = b
	return b
}
