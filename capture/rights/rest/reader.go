package rest

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"unspool/perfring"
	"unspool/vmas/credit"
	"unspool/vmas/sys"
)

// A Reader reads the rest of stacks.
type Reader struct {
	kernel  Kernel
	shared  *Shared
	threads runtimes
	memory  memories
	first   deadline
	buf     [compared]byte
}

// NewReader returns a reader, by a kernel, into a memory.
func NewReader(kernel Kernel, shared *Shared) *Reader {
	return &Reader{kernel: kernel, shared: shared, threads: newRuntimes(), memory: newMemories()}
}

// A turn is the thread that reads the stacks of the samples in one ring, whenever it gets a signal.
type turn struct {
	*Reader
	ring   perfring.SampleRing // its descriptor is open until it is set up
	tap    *perfring.Tap       // of the ring, nil until a first sample has come
	cut    uint64              // bytes of copies that are there for it
	sample perfring.Sample
	credit credit.Credit
	used   time.Duration // CPU time of this thread, when it was charged last
	own    *delays       // nil for a thread that goes before all others of its CPU
}

const (
	// Signal is what the reader is told of a sample by. One that waits already stands for all that follow.
	Signal = unix.SIGIO
	// latest is how long after a sample its stack may begin to be read, if the thread was in its own code, and
	// latestInKernel if it was in the kernel, from where it does not get back before this thread has run.
	latest         = 250 * time.Microsecond
	latestInKernel = time.Millisecond

	// compared is how much of the copy's beginning, and of its end, is compared with what the process has.
	compared = 4 << 10
	// least is how much of a copy has to be the same to show that the thread has not got on.
	least = 256
	// For a sixth of the time, threads may be kept from a CPU by reading, as at very high rates, and for mostTime at
	// once.
	part     = 6
	mostTime = 16 * time.Millisecond
)

// Start begins to read the stacks of the samples in a ring, for the thread tid of this process gets a signal
// for each of them. shared is the descriptor of a [Shared] memory of so many bytes, in which they will be. Of
// copies that are larger than cut bytes, no more is taken for copied: this is for trials.
func Start(ring *perfring.SampleRing, size int, cut uint64) (shared, tid int, err error) {
	memory, shared, err := NewShared(size)
	if err != nil {
		return -1, 0, err
	}
	own := *ring
	if own.FD, err = unix.FcntlInt(uintptr(ring.FD), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		_ = memory.Close()
		unix.Close(shared)
		return -1, 0, err
	}
	type result struct {
		tid int
		err error
	}
	begun := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, as it is bound to a CPU
		r := &turn{Reader: NewReader(linux{}, memory), ring: own, cut: cut, credit: credit.New(part, mostTime)}
		r.first.cpu = ring.CPU
		tid, err := r.bind(ring.CPU)
		if err == nil && r.own == nil {
			add()
			defer remove()
		}
		if begun <- (result{tid, err}); err == nil {
			r.run()
		}
	}()
	is := <-begun
	if is.err != nil {
		unix.Close(own.FD)
		_ = memory.Close()
		unix.Close(shared)
		return -1, 0, is.err
	}
	return shared, is.tid, nil
}

// bind binds this thread to a CPU, and has signals wait until it asks for them.
func (r *turn) bind(cpu int) (tid int, err error) {
	var cpus unix.CPUSet
	cpus.Set(cpu)
	if err := unix.SchedSetaffinity(0, &cpus); err != nil {
		return 0, err
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &unix.Sigset_t{Val: [16]uint64{signals}}, nil); err != nil {
		return 0, err
	}
	if isFirst, err := precede(); err != nil || isFirst {
		return unix.Gettid(), err
	}
	r.own, err = newDelays()
	return unix.Gettid(), err
}

// sliceLength is the time that a reader of ordinary priority asks for at a time: who asks for less than who has the CPU
// gets it at once (sched(7), since Linux 6.12). Before that, who has slept does, mostly.
const sliceLength = 100 * time.Microsecond

// precede gives this thread precedence over the others of this process, if these have real-time priority and it is not
// the highest: while one of them has its turn, the sampled thread can get on elsewhere. Otherwise it asks for short
// turns. isFirst reports whether it always gets the CPU at once.
func precede() (isFirst bool, err error) {
	is, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return false, err
	}
	if is.Policy == unix.SCHED_RR || is.Policy == unix.SCHED_FIFO {
		level := min(is.Priority+1, highest)
		return level > is.Priority, unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: level}, 0)
	}
	is.Runtime = uint64(sliceLength)
	_ = unix.SchedSetAttr(0, is, 0) // it is a wish
	return false, nil
}

// signals is the set of them.
const signals = uint64(1) << (Signal - 1)

// run reads stacks, and does not return while the process that these are for is there, unless the ring cannot be
// mapped.
//
// What this thread does may be sampled, too, and each of these samples wakes it: with every system call of the machine,
// say. So being woken is charged like reading, and over its share the thread sleeps, as nothing else gets the CPU
// from it.
func (r *turn) run() {
	parent := unix.Getppid()
	for idle, woken := 0, 0; ; {
		if !wait(&idle, r.first.isOn) {
			if idle == mostIdle {
				r.memory.closeEnded(true)
			}
			continue
		}
		if r.tap == nil {
			if !r.setUp() {
				return
			}
			continue
		}
		r.first.try()
		began := perfring.Now()
		if r.own.beganAtOnce() && r.tap.Newest(&r.sample) {
			s := &r.sample
			s.StackSize, s.DynSize = min(s.StackSize, r.cut), min(s.DynSize, r.cut)
			if r.credit.Allows(credit.At(s.Time)) {
				r.Read(s)
			}
		}
		now := perfring.Now()
		r.credit.Left(credit.At(began))
		r.credit.Spend(r.usedCPU() + priceOfWaking)
		if woken++; woken%64 == 0 {
			if unix.Getppid() != parent {
				unix.Exit(0) // others may not get a CPU to say so
			}
			r.memory.closeEnded(false)
		}
		for !r.credit.Allows(credit.At(now)) {
			sys.Sleep(time.Millisecond)
			now = perfring.Now()
		}
	}
}

// usedCPU returns the CPU time that this thread has used since the last call. While it waits, as for a lock of the
// process that it reads, others have the CPU.
func (r *turn) usedCPU() (since time.Duration) {
	used := sys.ThreadTime()
	since, r.used = used-r.used, used
	return since
}

// setUp maps the ring and makes memory, with the first sample for which there is a signal: many recordings never have
// one. It takes as long as reading some hundred stacks, which is not charged, as reading would be put off for it.
func (r *turn) setUp() (ok bool) {
	tap, err := perfring.NewTap(r.ring.FD, &r.ring.Attr, r.ring.Pages)
	unix.Close(r.ring.FD)
	if err != nil {
		return false
	}
	r.tap = tap
	r.shared.populate()
	r.usedCPU()
	return true
}

const (
	// priceOfWaking is what a wake-up takes besides the time of this thread.
	priceOfWaking = 2 * time.Microsecond
	// mostIdle is how often the waiting is interrupted until it is for as long as it takes.
	mostIdle = 5
)

// wait waits for a signal. As long as signals come, Go's scheduler does not know of the waiting, and interrupts it
// every 10 ms. idle counts how often it did since the last signal.
//
// Whom it interrupts needs another thread of this process to get on. A reader that goes before threads of real-time
// priority, isFirst, cannot rely on that: the others wait for these, for up to 20 ms. So it has the scheduler know of
// the waiting. The monitor, which waits as well, takes less time then.
func wait(idle *int, isFirst bool) (signalled bool) {
	told, limit := isFirst, time.Duration(0)
	switch {
	case *idle >= mostIdle:
		told = true
	case isFirst:
		limit = interval
	}
	err := sys.Sigwait(signals, told, limit)
	if err == nil {
		*idle = 0
		return true
	}
	*idle++
	if err == unix.EINTR {
		runtime.Gosched() // the scheduler asks for it so
	}
	return false
}

// interval is how long a reader waits at a time of whose waiting the scheduler knows.
const interval = 10 * time.Millisecond

// Read reads the rest of the stack of a sample that was just taken, if the copy lacks a part.
func (r *Reader) Read(s *perfring.Sample) {
	r.shared.words[begun].Store(r.kernel.Now())
	r.read(s)
	r.shared.words[begun].Store(0)
}

func (r *Reader) read(s *perfring.Sample) {
	const sp = 7 // PERF_REG_X86_SP (asm/perf_regs.h)
	base, ok := s.Reg(sp)
	if !ok || s.RegsABI != unix.PERF_SAMPLE_REGS_ABI_64 {
		return
	}
	copyEnd := base + s.DynSize
	known := r.shared.shape(s.TID)
	wished := known.wishesFor(base)
	if known.isIn(copyEnd) && known.growth.Return == 0 && wished == 0 || isLate(s, r.kernel.Now()) {
		return
	}
	memory := r.memory.of(r.kernel, s.PID)
	if memory == nil {
		return
	}
	morestack := known.growth.at(s, base)
	if known.isKnown && known.growth.Return != 0 { // a thread runs one goroutine after the other
		if end, ok := endOfGoroutine(memory, s, base); ok {
			known.end = end
		}
	}
	if known.isIn(copyEnd) && morestack == 0 && wished == 0 {
		return
	}
	isKept := isOrdinary(r.kernel, s.TID)
	if !isKept && !r.first.keeps(s.TID) {
		return
	}
	thread := r.threads.begin(r.kernel, s.TID)
	if thread == nil || isLate(s, r.kernel.Now()) {
		return
	}
	h := head{tid: uint64(s.TID), time: s.Time, start: copyEnd}
	w, goroutine := find(memory, s, &known, morestack, &h)
	room := r.shared.room(w.behind + w.more + wished)
	if len(room) == 0 || !readInto(room, memory, &w, &known, &h) {
		return
	}
	if !r.isThere(memory, s, base) {
		memory.Close() // a process that was made by vfork(2) has had its parent's, which is there on
		return
	}
	if h.morestack != 0 {
		if again, ok := known.growth.goroutine(memory, s, morestack); !ok || again != goroutine {
			return
		}
	}
	if h.g != 0 && h.more >= 8 {
		// Where the goroutine has its larger stack already, this word was not copied there.
		binary.NativeEndian.PutUint64(room, goroutine.returns)
	}
	if !thread.hasRun() && (isKept || r.first.keeps(s.TID)) {
		r.shared.put(h)
	}
}

// isLate reports whether it is too late at a time to begin to read the stack of a sample.
func isLate(s *perfring.Sample, now uint64) bool {
	late := latest
	if s.CPUMode() == unix.PERF_RECORD_MISC_KERNEL {
		late = latestInKernel
	}
	return now-min(s.Time, now) > uint64(late)
}

// readInto reads what is wanted, and sets how much there was. It is false if that is nothing.
func readInto(room []byte, memory *memory, w *wanted, k *shape, h *head) bool {
	if w.behind > 0 {
		h.size = uint64(memory.Read(room[:w.behind], h.start))
	}
	if w.more > 0 { // also if what is behind the copy, in a large frame, was never touched
		h.more = uint64(memory.Read(room[h.size:][:w.more], w.above))
	}
	for i, wish := range k.wishes {
		if wish != 0 {
			to := &h.wished[i]
			to.addr = wish.addr()
			to.size = uint64(memory.Read(room[h.data():][:wish.size()], to.addr))
		}
	}
	return h.data() > 0
}

// isThere reports whether the process still has the same as the copy at the copy's beginning and at its end.
// This comes after the rest was read: a thread that gets on changes the beginning first.
func (r *Reader) isThere(memory *memory, s *perfring.Sample, base uint64) bool {
	last := min(s.DynSize, compared)
	first := min(s.DynSize-last, compared)
	from := s.DynSize - last
	return r.has(memory, base, s.Stack[:first]) && r.has(memory, base+from, s.Stack[from:s.DynSize]) &&
		(s.DynSize >= least || s.DynSize == s.StackSize || r.isUntouched(memory, base+s.DynSize))
}

// isUntouched reports whether nothing was written to the page around an address so far: the kernel gives out pages of
// zeros. It may be there, as samples of page faults come before the kernel has given out the page, and the reader has
// its turn after that. Where the stack has not grown down to it, there is nothing to read.
func (r *Reader) isUntouched(memory *memory, addr uint64) bool {
	have := r.buf[:memory.Read(r.buf[:], addr&^(compared-1))]
	var zeros [compared]byte
	return bytes.Equal(have, zeros[:len(have)])
}

// has reports whether the process has bytes at an address.
func (r *Reader) has(memory *memory, addr uint64, want []byte) bool {
	have := r.buf[:len(want)]
	return memory.Read(have, addr) == len(have) && bytes.Equal(have, want)
}
