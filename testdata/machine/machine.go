package machine

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Machine is what is recorded. Everything that happens on it happens when it is asked up to a time: see advance.
type Machine struct {
	plan  Plan
	began time.Time
	mu    sync.Mutex

	files   map[string]*file // by path
	program []*file
	library []*file

	generated []*file

	processes []*task // that live, in the order in which they began
	started   uint64  // how many have begun
	byPID     map[uint32]*task
	nextPID   uint32
	freed     []uint32
	stacks    uint64 // of threads that have begun

	cpus  []*cpu
	order order  // of what happens on them
	at    uint64 // up to when all has happened
	over  bool   // nothing happens any more
	large large
	asked map[string]uint64

	tape    *tape // nil unless it is converted
	signals bool  // stacks are read when they are sampled

	names map[uint32][]string // by PID, all that processes have had; not of large machines
	// What was sampled, for the judge.
	truth   map[uint64]sampled // by time
	Reached map[string]int     // how often each fault has happened, and each record was written
}

// A sampled is what a sample has to be.
type sampled struct {
	chain  []uint64
	copied int // how many bytes of its stack
	depth  int // and how many there are

	program *program
}

// base is the time at which a recording begins, in ns: later than that of any clock here, as files were written before.
const base = 1 << 60

// period is the mean time between two things that happen on a CPU.
const period = 500 * time.Microsecond

// newMachine makes a machine of files, which have to be there.
func newMachine(p Plan, files []*file) *Machine {
	m := &Machine{plan: p, began: time.Now(), files: make(map[string]*file), byPID: make(map[uint32]*task), nextPID: 100,
		at: base, asked: make(map[string]uint64), truth: make(map[uint64]sampled), names: make(map[uint32][]string),
		Reached: make(map[string]int)}
	for i, f := range files {
		if f.generated {
			m.generated = append(m.generated, f)
			continue
		}
		if f.strange && !p.has("strange") || f.alike != p.has("alike") {
			continue
		}
		own := *f
		if p.Output == "convert" { // which looks for files where they were
			own.path = own.real
		}
		m.files[own.path] = &own
		if i%2 == 0 {
			m.program = append(m.program, &own)
		} else {
			m.library = append(m.library, &own)
		}
	}
	for i := range p.CPUs {
		m.cpus = append(m.cpus, newCPU(m, i))
	}
	m.order = slices.Clone(m.cpus) // which is a heap, as they all begin at the same time
	r := p.draw("begin")
	for range p.Processes {
		t := m.spawn(r, 1)
		m.execute(r, t, nil)
		for range r.IntN(p.Threads) {
			m.startThread(r, t, nil)
		}
	}
	if p.Output == "convert" {
		m.tape = newTape(m)
	}
	if p.isLarge() {
		m.large = newLarge(m)
	}
	return m
}

// An order is a heap of CPUs: on the first one, something happens next.
type order []*cpu

func (o order) Len() int      { return len(o) }
func (o order) Swap(i, j int) { o[i], o[j] = o[j], o[i] }
func (o order) Push(any)      {} // there are as many CPUs at the end
func (o order) Pop() any      { return nil }

func (o order) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(o[i].next, o[j].next), cmp.Compare(o[i].number, o[j].number)) < 0
}

// now is the time of the machine's clock.
func (m *Machine) now() uint64 { return base + uint64(time.Since(m.began)) }

// happens reports whether a fault happens that could.
func (m *Machine) happens(r *rand.Rand, fault string) bool { return m.oneOf(8, r, fault) }

// happensOften is happens for one of three times.
func (m *Machine) happensOften(r *rand.Rand, fault string) bool { return m.oneOf(3, r, fault) }

func (m *Machine) oneOf(n int, r *rand.Rand, fault string) bool {
	if !m.plan.has(fault) || r.IntN(n) > 0 {
		return false
	}
	m.Reached[fault]++
	return true
}

// spawn makes a process without mappings and threads.
func (m *Machine) spawn(r *rand.Rand, parent uint32) *task {
	pid := m.newID(r)
	t := &task{pid: pid, ppid: parent, started: (m.at - base) / 1e7,
		program: &program{comm: fmt.Sprintf("task-%d", pid)}}
	t.started += m.started // no two processes of a PID began at the same time
	m.started++
	m.processes = append(m.processes, t)
	m.byPID[pid] = t
	return t
}

// newID is the ID of a new thread.
func (m *Machine) newID(r *rand.Rand) (id uint32) {
	if n := len(m.freed); n > 0 && m.plan.has("reuse") && r.IntN(2) == 0 {
		m.Reached["reuse"]++
		id, m.freed = m.freed[n-1], m.freed[:n-1]
		return id
	}
	id = m.nextPID
	m.nextPID += 1 + uint32(r.IntN(3))
	return id
}

// execute gives a process another program. c is the CPU, nil before the recording.
func (m *Machine) execute(r *rand.Rand, t *task, c *cpu) { m.executeFile(r, t, nil, c) }

// executeFile is execute for a program, any one for nil.
func (m *Machine) executeFile(r *rand.Rand, t *task, f *file, c *cpu) {
	first := &thread{tid: t.pid, p: t, turns: new(turns)}
	for _, th := range t.threads {
		if th.exited = th.tid != t.pid; !th.exited {
			first.turns = th.turns
		}
	}
	t.maps, t.threads, t.spare = nil, nil, nil
	t.program = &program{fmt.Sprintf("program-%d", r.IntN(100)), c != nil, make(map[mapped]bool), 0}
	m.nameOf(t)
	if c != nil {
		c.comm(t, t.pid, true)
	}
	if f == nil {
		f = m.program[r.IntN(len(m.program))]
	}
	m.mapFile(r, t, f, c, t.pid)
	for range 1 + r.IntN(2) {
		m.mapFile(r, t, m.library[r.IntN(len(m.library))], c, t.pid)
	}
	m.generate(r, t, c)
	first.begin(t.maps[0], &t.maps[0].file.image.functions[0], 0x7ffc_0000_0000+uint64(r.IntN(1<<20))<<12)
	t.threads = append(t.threads, first)
}

// mapFile maps a file at a new address.
func (m *Machine) mapFile(r *rand.Rand, t *task, f *file, c *cpu, tid uint32) {
	if f.replacedBy != nil {
		f = f.replacedBy
	}
	at := uint64(0x5500_0000_0000) + uint64(r.IntN(1<<24))<<16
	for slices.ContainsFunc(t.maps, func(o *mapping) bool { return o.start == at }) {
		at += 1 << 16
	}
	if m.plan.has("fixed") {
		for at = 0x5555_0000_0000; slices.ContainsFunc(t.maps, func(o *mapping) bool { return o.start == at }); {
			at += 1 << 16
		}
		m.Reached["fixed"]++
	}
	n := &mapping{at, f}
	t.maps = append(t.maps, n)
	t.program.note(m, n)
	if f.strange {
		m.Reached["strange"]++
	}
	if c != nil {
		c.mmap(t, tid, n)
	}
}

// startThread starts a thread.
func (m *Machine) startThread(r *rand.Rand, t *task, c *cpu) {
	th := &thread{tid: m.newID(r), p: t, turns: new(turns)}
	th.realTime = m.happens(r, "realtime")
	m.stacks++
	top := uint64(0x7f00_0000_0000) + m.stacks<<24
	if n := len(t.spare); n > 0 && m.happens(r, "samestack") {
		top = t.spare[n-1].top
		t.spare = t.spare[:n-1]
	}
	lib := t.maps[1]
	th.begin(lib, &lib.file.image.functions[1], top)
	t.threads = append(t.threads, th)
	if c != nil {
		c.task(recordFork, t.pid, t.pid, th.tid, t.pid)
	}
}

// advance lets everything happen up to a time. The caller holds mu.
func (m *Machine) advance(until uint64) {
	if m.over { // what was to be written later is not
		m.at = max(m.at, until)
		return
	}
	for m.order[0].next <= until {
		next := m.order[0]
		m.at = max(m.at, next.next)
		if m.signals {
			for _, c := range m.cpus {
				c.reads.goOn(m.at)
			}
		}
		m.happen(next)
		next.write(m.at) // not only at the end: there may be thousands by then
		next.next += m.pause(next)
		heap.Fix(&m.order, 0)
	}
	m.at = max(m.at, until)
	for _, c := range m.cpus {
		c.reads.goOn(until)
		c.write(until)
	}
	m.tape.round(until, false)
}

// happen lets something happen on a CPU.
func (m *Machine) happen(c *cpu) {
	r := c.r
	if c.offline {
		return
	}
	if m.plan.isLarge() && m.happenLarge(c) {
		return
	}
	alive := m.processes
	if len(alive) == 0 || len(alive) < m.plan.Processes && r.IntN(10) == 0 {
		m.fork(r, c, alive)
		return
	}
	t := alive[r.IntN(len(alive))]
	th := t.threads[r.IntN(len(t.threads))]
	if t.isHeld(m.at) {
		return
	}
	switch r.IntN(60) {
	case 0:
		if len(t.threads) < m.plan.Threads {
			m.startThread(r, t, c)
		}
	case 1:
		if len(t.threads) > 1 && th.tid != t.pid {
			m.endThread(t, th, c)
		}
	case 2:
		if m.happensOften(r, "exec") {
			m.execute(r, t, c)
		}
	case 3:
		if m.plan.has("vanish") || m.plan.has("reuse") {
			m.end(r, t, c)
		}
	case 4:
		if m.happens(r, "fork") {
			m.fork(r, c, alive)
		}
	case 5:
		m.changeLibrary(r, t, c, th)
	case 6:
		if m.happens(r, "replaced") {
			m.replace(r)
		}
	case 7:
		if len(m.cpus) > 1 && c.number > 0 && m.happens(r, "offline") {
			c.offline = true
		}
	case 8:
		if m.happens(r, "throttled") {
			c.throttle()
		}
	case 9:
		if m.happens(r, "trailers") {
			c.ksymbol()
		}
	case 10:
		m.regenerate(r, t)
	default:
		th.step(r, 6+r.IntN(20))
		if th.handled() == 0 && th.room() && m.happens(r, "signal") {
			th.interrupt(r)
		} else if m.happens(r, "alike") {
			th.otherwise(r)
		}
		c.sample(t, th)
	}
}

// fork makes a process: from another one, or from none.
func (m *Machine) fork(r *rand.Rand, c *cpu, alive []*task) {
	if len(alive) > 0 && len(alive) < m.plan.Processes+4 {
		child := m.forkTask(r, c, alive[r.IntN(len(alive))])
		if r.IntN(2) == 0 {
			m.execute(r, child, c)
		}
		return
	}
	if len(alive) == 0 {
		t := m.spawn(r, 1)
		c.task(recordFork, t.pid, 1, t.pid, 1)
		m.execute(r, t, c)
	}
}

// forkTask forks a process: one of its threads goes on in the child.
func (m *Machine) forkTask(r *rand.Rand, c *cpu, parent *task) *task {
	th := parent.threads[r.IntN(len(parent.threads))]
	child := m.spawn(r, parent.pid)
	child.program = parent.program.fork()
	m.nameOf(child)
	child.maps = make([]*mapping, len(parent.maps))
	for i, o := range parent.maps {
		child.maps[i] = &mapping{o.start, o.file}
	}
	child.threads = []*thread{th.fork(child, child.pid)}
	c.task(recordFork, child.pid, parent.pid, child.pid, th.tid)
	return child
}

func (m *Machine) endThread(t *task, th *thread, c *cpu) {
	t.threads = slices.DeleteFunc(t.threads, func(o *thread) bool { return o == th })
	th.exited = true
	t.spare = append(t.spare, th)
	m.freed = append(m.freed, th.tid)
	c.task(recordExit, t.pid, t.pid, th.tid, t.pid)
}

// end ends a process.
func (m *Machine) end(r *rand.Rand, t *task, c *cpu) {
	if m.plan.has("vanish") {
		m.Reached["vanish"]++
	}
	for _, th := range t.threads {
		if th.tid != t.pid {
			c.task(recordExit, t.pid, t.ppid, th.tid, t.pid)
		}
	}
	c.task(recordExit, t.pid, t.ppid, t.pid, t.ppid)
	if m.happens(r, "exits") {
		c.exited(t)
	}
	t.ended, t.maps, t.threads = true, nil, nil
	m.processes = slices.DeleteFunc(m.processes, func(o *task) bool { return o == t })
	if m.plan.has("reuse") {
		m.freed = append(m.freed, t.pid)
	}
}

// library_ loads another library, or one in the place of one that no stack is in.
func (m *Machine) changeLibrary(r *rand.Rand, t *task, c *cpu, th *thread) {
	f := m.library[r.IntN(len(m.library))]
	for i, o := range t.maps[1:] {
		if !o.file.generated && !t.isUsed(o) && m.happens(r, "dlclose") {
			if f.replacedBy != nil {
				f = f.replacedBy
			}
			n := &mapping{o.start, f}
			t.maps[1+i] = n
			t.program.note(m, n)
			c.mmap(t, th.tid, n)
			return
		}
	}
	if len(t.maps) < 6 {
		m.mapFile(r, t, f, c, th.tid)
	}
}

// replace puts another file at the path of one.
func (m *Machine) replace(r *rand.Rand) {
	all := [2][]*file{m.program, m.library}[r.IntN(2)]
	old, other := all[r.IntN(len(all))], all[r.IntN(len(all))]
	if old.replacedBy == nil && old != other && other.replacedBy == nil {
		is := *other
		is.path = old.path
		old.replacedBy = &is
	}
}

// attr is how the events are opened.
func (m *Machine) attr() *unix.PerfEventAttr {
	a := &unix.PerfEventAttr{
		Sample_type: unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME |
			unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_PERIOD | unix.PERF_SAMPLE_CALLCHAIN | unix.PERF_SAMPLE_REGS_USER |
			unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user: registers, Sample_stack_user: uint32(m.plan.Copy), Bits: unix.PerfBitSampleIDAll,
	}
	if m.plan.Hz > 0 {
		a.Sample, a.Bits = uint64(m.plan.Hz), a.Bits|unix.PerfBitFreq
	}
	return a
}
