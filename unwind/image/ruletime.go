package image

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"unspool/vmas/credit"
	"unspool/vmas/sys"
)

// A ruleTime bounds the time that is spent on finding rules for new PCs: a few microseconds each for ordinary
// programs, but without limit for tables and code that are made to take long. So the goroutine that walks has
// a credit for each process, and one for all processes together, small enough that the rings do not overflow
// meanwhile. They are charged with CPU time: on a busy machine, waiting for a CPU is not the process's fault.
type ruleTime struct {
	limited bool
	process *processTime // the process whose stack is walked
	byPID   [256]processTime
	all     credit.Credit
	read    cpuTimes  // the last ones
	cpuAt   time.Time // when that was
}

// cpuTimes are those of a thread, and of all threads together.
type cpuTimes struct {
	tid         int
	thread, all time.Duration
}

// since returns the CPU time that has passed since other times. If the goroutine has moved to another thread, that is
// no more than what all threads had.
func (c *cpuTimes) since(before *cpuTimes) time.Duration {
	if c.tid != before.tid {
		return c.all - before.all
	}
	return c.thread - before.thread
}

// A processTime is what may be spent for a process.
type processTime struct {
	pid    uint32
	known  bool
	credit credit.Credit
}

const (
	ruleShare    = 4 // rules for one process take one in so many of the time
	mostRuleTime = 50 * time.Millisecond
	// The same for all processes together.
	ruleShareOfAll    = 2
	mostRuleTimeOfAll = 150 * time.Millisecond
	// Times below brief are charged as they are: a thread that waits for a CPU waits longer than that, and
	// reading the CPU time of a thread takes as long as finding a rule.
	brief = 100 * time.Microsecond
	// freshCPU is how old the last reading of the CPU time may be when work begins: what was done since then is
	// charged, too.
	freshCPU = time.Millisecond
)

func newRuleTime(limited bool) ruleTime {
	return ruleTime{limited: limited, all: credit.New(ruleShareOfAll, mostRuleTimeOfAll)}
}

// use makes a process the one that is charged.
func (t *ruleTime) use(pid uint32) {
	p := &t.byPID[pid%uint32(len(t.byPID))]
	if p.pid != pid || !p.known {
		*p = processTime{pid, true, credit.New(ruleShare, mostRuleTime)}
	}
	t.process = p
}

// begin reports whether a rule may be found now, and when that began: the zero time if nothing is charged.
func (t *ruleTime) begin() (began time.Time, ok bool) {
	if !t.limited || t.process == nil {
		return began, true
	}
	began = time.Now()
	if began.Sub(t.cpuAt) > freshCPU {
		t.spent(began)
	}
	own, all := t.process.credit.Allows(began), t.all.Allows(began)
	return began, own && all
}

// end charges for a rule.
func (t *ruleTime) end(began time.Time) {
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

// spent is the CPU time of the goroutine since it was last asked for, as far as that is known.
func (t *ruleTime) spent(now time.Time) time.Duration {
	before := t.read
	t.read, t.cpuAt = cpuTimes{unix.Gettid(), sys.ThreadTime(), sys.ProcessTime()}, now
	return t.read.since(&before)
}

// resetCPU forgets CPU time that is not to be charged: the thread has done something else since work began.
func (t *ruleTime) resetCPU() {
	if t.limited {
		t.spent(time.Now())
	}
}

// charge charges for CPU time: for no more than the time that has passed, as other threads may have had it, too.
func (t *ruleTime) charge(cpu, passed time.Duration) {
	if cpu < 0 || cpu > passed {
		cpu = passed
	}
	t.process.credit.Spend(cpu)
	t.all.Spend(cpu)
}

// Walks says whose stack is walked next, and adopts the debug files that have come late: rules that were
// found without them are dropped.
func (s *Store) Walks(pid uint32) {
	if s.rules.limited {
		s.rules.use(pid)
	}
	if len(s.late) > 0 {
		s.takeIn()
	}
}

// Begin reports whether the process whose stack is walked has credit left for reading tables or code, and when
// that began.
func (s *Store) Begin() (began time.Time, ok bool) { return s.rules.begin() }

// End charges the process whose stack is walked for what was begun.
func (s *Store) End(began time.Time) { s.rules.end(began) }

// overBudget reports once that rules of the image are skipped, as looking for them has taken too long.
func (im *Image) overBudget() {
	if !im.skipped {
		im.skipped = true
		im.store.Report(im.Path, fmt.Errorf("%s: its tables or code take too long to read: some stacks end there",
			im.Path))
	}
}
