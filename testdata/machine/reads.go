package machine

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/rest"
	"unspool/perfring"
)

// A stackReader stands in for the thread that reads the stacks of a CPU's samples, and is the kernel that this one
// asks: it reads at a time of its own, while the sampled thread has its turn or has not.
type stackReader struct {
	m      *Machine
	c      *cpu
	r      *rand.Rand
	shared *rest.Shared // nil until somebody asks
	reader *rest.Reader
	sample perfring.Sample
	clock  uint64
	busy   uint64     // until when
	later  *laterRead // what it reads then, nil for none

	// While it reads, the thread gets on: at the read of memory that has this number.
	thread *thread
	getsOn int
}

// A laterRead is a read that takes its time, or begins late.
type laterRead struct {
	rec    []byte
	thread *thread
	clock  uint64 // when it begins
	at     uint64 // when it ends
}

// A turns is what the scheduler knows of a thread.
type turns struct {
	ran, count uint64
	realTime   bool
	held       uint64 // until when it has no turn
}

const none = -1

func newStackReader(c *cpu) stackReader {
	return stackReader{m: c.m, c: c, r: c.m.plan.draw("reader", uint64(c.number))}
}

// ReadRing is for [session.RingReader].
func (m *Machine) ReadRing(ring *perfring.SampleRing) (stacks *rest.Stacks, tid int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.cpus[ring.CPU].reads
	shared, fd, err := rest.NewShared(rest.SizeFor(ring.Pages, len(m.cpus)))
	if err != nil {
		return nil, 0, err
	}
	unix.Close(fd)
	s.shared, s.reader = shared, rest.NewReader(s, shared)
	return rest.NewStacks(shared), 1, nil
}

// signal is for [perfring.Simulation].
func (m *Machine) signal(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.signals = on
}

// closeReads frees what ReadRing has made.
func (m *Machine) closeReads() {
	for _, c := range m.cpus {
		if c.reads.shared != nil {
			_ = c.reads.shared.Close()
		}
	}
}

// sampled is told of a sample: its stack is read at once, later, or never.
func (s *stackReader) sampled(th *thread, rec []byte) {
	at := s.m.at
	if s.shared == nil || !s.m.signals || at < s.busy || s.m.happens(s.r, "unread") {
		return
	}
	l := &laterRead{rec: rec, thread: th, clock: at + uint64(2_000+s.r.IntN(50_000))}
	switch {
	case s.m.happens(s.r, "readlate"): // and the thread gets on meanwhile
		l.clock = at + latest + uint64(s.r.IntN(3_000_000))
		l.at = l.clock
	case s.m.happens(s.r, "readlong"): // and the thread does not
		l.at = l.clock + uint64(s.r.IntN(60_000_000))
		th.held = l.at
	default:
		s.read(l)
		return
	}
	l.rec = slices.Clone(rec)
	s.later, s.busy = l, l.at
}

// latest is after how long a thread that was sampled may have got on before its stack is read, in ns: rest relies on
// that it has not before.
const latest = 1_000_000

// goOn reads what was to be read up to a time.
func (s *stackReader) goOn(until uint64) {
	if l := s.later; l != nil && l.at <= until {
		s.later = nil
		s.read(l)
		if th := l.thread; th.held == l.at && !th.exited && !th.p.ended && slices.Contains(th.p.threads, th) {
			th.again(s.r) // what was read does not fit the next sample, which is of a stack that is as deep
			s.c.sample(th.p, th)
		}
	}
}

func (s *stackReader) read(l *laterRead) {
	if s.c.format.Sample(l.rec, &s.sample) != nil {
		panic("a sample that is none")
	}
	s.clock, s.thread, s.getsOn = l.clock, l.thread, none
	if l.thread.realTime { // nothing holds it
		l.thread.getOn(s.r)
	}
	switch {
	case l.thread.isInBody(&s.sample) && s.m.happens(s.r, "moved"):
		l.thread.put(l.thread.sp, s.r.Uint64()) // what gets on uses its locals
		l.thread.getOn(s.r)
	case s.m.happens(s.r, "ran"):
		s.getsOn = s.r.IntN(4)
	}
	s.reader.Read(&s.sample)
}

// meanwhile lets a thread get on, or end; then the next one may have its ID, and its stack.
func (s *stackReader) meanwhile() {
	th := s.thread
	if th.exited || th.p.ended || th.tid == th.p.pid || s.r.IntN(4) > 0 {
		th.getOn(s.r)
		return
	}
	s.m.endThread(th.p, th, s.c)
	if s.r.IntN(2) == 0 {
		s.m.startThread(s.r, th.p, s.c)
	}
}

// isInBody reports whether a sample of a thread is of where its innermost function has locals.
func (t *thread) isInBody(s *perfring.Sample) bool {
	sp, _ := s.Reg(7)
	l := t.last()
	return sp == t.sp && l.f.frame >= 8 && sp < l.cfa
}

// getOn lets a thread run: it returns from some functions, and calls others, or the same ones.
func (t *thread) getOn(r *rand.Rand) {
	if t.exited || t.p.ended {
		return
	}
	t.ran += uint64(1 + r.IntN(100_000))
	t.count++
	if r.IntN(2) == 0 {
		t.again(r)
		return
	}
	for range r.IntN(len(t.frames)) {
		t.leave()
	}
	for range 1 + r.IntN(4) {
		if t.room() {
			t.enter(r)
		}
	}
}

// Now is for [rest.Kernel].
func (s *stackReader) Now() uint64 {
	s.clock += uint64(s.r.IntN(5_000))
	return s.clock
}

// OpenMemory is for [rest.Kernel].
func (s *stackReader) OpenMemory(pid uint32) (rest.ProcessMemory, error) {
	m := &memory{s: s, pid: pid}
	if !m.open() {
		return nil, fs.ErrNotExist
	}
	return m, nil
}

// OpenSchedstat is for [rest.Kernel].
func (s *stackReader) OpenSchedstat(tid uint32) (rest.Schedstat, error) {
	if th := s.m.threadOf(tid); th != nil {
		return schedstat{th}, nil
	}
	return nil, fs.ErrNotExist
}

// Policy is for [rest.Kernel].
func (s *stackReader) Policy(tid uint32) (policy uint32, err error) {
	switch th := s.m.threadOf(tid); {
	case th == nil:
		return 0, unix.ESRCH
	case th.realTime:
		return unix.SCHED_RR, nil
	}
	return unix.SCHED_NORMAL, nil
}

// threadOf is the thread of an ID, nil for none.
func (m *Machine) threadOf(tid uint32) *thread {
	for _, p := range m.processes {
		for _, th := range p.threads {
			if th.tid == tid && !p.ended {
				return th
			}
		}
	}
	return nil
}

// A schedstat is the file of a thread, which tells nothing once the thread has ended.
type schedstat struct{ of *thread }

// Read is for [rest.Schedstat].
func (s schedstat) Read(text []byte) (n int, ok bool) {
	if s.of.exited || s.of.p.ended {
		return 0, false
	}
	return copy(text, fmt.Sprintf("%d 0 %d\n", s.of.ran, s.of.count)), true
}

// Close is for [rest.Schedstat].
func (schedstat) Close() {}

// A memory is that of a process as long as it runs one program: see process.MemoryReader.
type memory struct {
	s     *stackReader
	pid   uint32
	p     *task
	first *thread // of the program
}

func (m *memory) open() (ok bool) {
	p := m.s.m.byPID[m.pid]
	if p == nil || p.ended || len(p.threads) == 0 {
		return false
	}
	m.p, m.first = p, p.threads[0]
	return true
}

// IsOver is for [rest.ProcessMemory].
func (m *memory) IsOver() bool { return m.p == nil || m.p.ended || m.p.threads[0] != m.first }

// Close is for [rest.ProcessMemory].
func (m *memory) Close() { m.p = nil }

// Read is for [rest.ProcessMemory].
func (m *memory) Read(buf []byte, addr uint64) (read int) {
	if m.s.getsOn--; m.s.getsOn == none {
		m.s.meanwhile()
	}
	if m.IsOver() && !m.open() {
		return 0
	}
	if m.s.m.happens(m.s.r, "readshort") {
		buf = buf[:m.s.r.IntN(len(buf)+1)]
	}
	if s := m.p.stackAt(addr); s.holds(addr) {
		read = copy(buf, s.from(addr))
	}
	return read
}

// MappingEnd is for [rest.ProcessMemory].
func (m *memory) MappingEnd(addr uint64) (end uint64) {
	if m.IsOver() {
		return 0
	}
	return m.p.stackAt(addr).top
}

// stackAt is the stack on which an address is, empty for none. Stacks of threads that have ended stay mapped.
func (p *task) stackAt(addr uint64) segment {
	for _, all := range [][]*thread{p.threads, p.spare} {
		for _, th := range all {
			if s := th.segment(addr); s.holds(addr) {
				return s
			}
		}
	}
	return segment{}
}

// isHeld reports whether any of a process's threads has no turn yet.
func (p *task) isHeld(at uint64) bool {
	return slices.ContainsFunc(p.threads, func(th *thread) bool { return th.held > at })
}
