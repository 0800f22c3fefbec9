package image

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A thrift bounds the time that is spent on finding rules for new PCs: a few microseconds each for ordinary
// programs, but without limit for tables and code that are made to take long. So the goroutine that walks has
// a credit of time for each process, which grows with time, and one for all processes together, small enough
// that the rings do not overflow meanwhile. It is charged with CPU time: on a busy machine, waiting for a CPU
// is not the process's fault.
type thrift struct {
	limited bool
	account *account // of the process whose stack is walked
	byPID   [256]account
	all     account
	cpu     time.Duration // of the thread, when it was read last
	cpuAt   time.Time     // and when that was
}

// An account is a credit of time, and the time at which it was last updated.
type account struct {
	pid    uint32
	credit time.Duration
	at     time.Time
}

const (
	thriftShare    = 4 // a process's credit grows by this part of the time
	mostThrift     = 50 * time.Millisecond
	thriftShareAll = 2 // the credit of all grows by this part
	mostThriftAll  = 150 * time.Millisecond
	// Times below brief are charged as they are: a thread that waits for a CPU waits longer than that, and
	// reading the CPU time of a thread takes as long as finding a rule.
	brief = 100 * time.Microsecond
	// freshCPU is how old the last reading of the CPU time may be when work begins: what was done since then is
	// charged, too.
	freshCPU = time.Millisecond
)

func newThrift(limited bool) thrift {
	return thrift{limited: limited, all: account{credit: mostThriftAll, at: time.Now()}}
}

// use makes a process the one that is charged.
func (t *thrift) use(pid uint32) {
	a := &t.byPID[pid%uint32(len(t.byPID))]
	if a.pid != pid || a.at.IsZero() {
		*a = account{pid: pid, credit: mostThrift, at: time.Now()}
	}
	t.account = a
}

// grow lets the credit grow by a part of the time, up to most.
func (a *account) grow(now time.Time, share, most time.Duration) {
	a.credit = min(a.credit+now.Sub(a.at)/share, most)
	a.at = now
}

// begin reports whether a rule may be found now, and when that began: the zero time if nothing is charged.
func (t *thrift) begin() (began time.Time, ok bool) {
	if !t.limited || t.account == nil {
		return began, true
	}
	began = time.Now()
	if began.Sub(t.cpuAt) > freshCPU {
		t.spent(began)
	}
	t.account.grow(began, thriftShare, mostThrift)
	t.all.grow(began, thriftShareAll, mostThriftAll)
	return began, t.account.credit > 0 && t.all.credit > 0
}

// end charges for a rule.
func (t *thrift) end(began time.Time) {
	if began.IsZero() {
		return
	}
	passed := time.Since(began)
	cpu := passed
	if passed > brief {
		cpu = t.spent(began.Add(passed))
	}
	t.charge(cpu, passed)
}

// spent is the CPU time of the thread since it was last asked for.
func (t *thrift) spent(now time.Time) time.Duration {
	before := t.cpu
	t.cpu, t.cpuAt = threadTime(), now
	return t.cpu - before
}

// goOn notes that the thread has done something else since work began.
func (t *thrift) goOn() {
	if t.limited {
		t.spent(time.Now())
	}
}

// charge charges for CPU time. If that is negative or more than the time that has passed, the goroutine has
// moved to another thread, and the time that has passed is charged.
func (t *thrift) charge(cpu, passed time.Duration) {
	if cpu < 0 || cpu > passed {
		cpu = passed
	}
	t.account.credit -= cpu
	t.all.credit -= cpu
}

// threadTime is the CPU time of the calling thread. It is read by a raw system call, as Go's scheduler would
// wake its monitor thread at each ordinary one, which costs more than all the rest.
func threadTime() time.Duration {
	var now unix.Timespec
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID,
		uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		return -1
	}
	return time.Duration(now.Nano())
}

// Walks says whose stack is walked next, and adopts the debug files that have come late: rules that were
// found without them are dropped.
func (s *Store) Walks(pid uint32) {
	if s.thrift.limited {
		s.thrift.use(pid)
	}
	if len(s.late) > 0 {
		s.takeIn()
	}
}

// Begin reports whether the process whose stack is walked has credit left for reading tables or code, and when
// that began.
func (s *Store) Begin() (began time.Time, ok bool) { return s.thrift.begin() }

// End charges the process whose stack is walked for what was begun.
func (s *Store) End(began time.Time) { s.thrift.end(began) }

// spares notes that a rule of the image is not looked for, as that has taken too long already. The image is
// reported once.
func (im *Image) spares() {
	if !im.spared {
		im.spared = true
		im.store.Report(im.Path, fmt.Errorf("%s: its tables or code take too long to read: some stacks end there",
			im.Path))
	}
}
