package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"unspool/capture/counts"
	"unspool/capture/live"
	"unspool/capture/output/human"
	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// Tried is what a trial records.
type Tried uint8

const (
	// Command is a program that is started for it.
	Command Tried = iota
	// Process is one that runs already.
	Process
	// Everything is the whole machine.
	Everything
)

// Trial is what came of a short recording with record's defaults.
type Trial struct {
	Samples  uint64
	User     uint64 // of these, with a user stack
	Complete uint64 // of these, complete ones
	Denied   uint64 // of User: of processes whose mappings may not be read
	Outside  uint64 // not in Samples: of processes outside of this process's PID namespace
	// UserOnly means that the kernel's part of the stacks may not be sampled.
	UserOnly bool
	// Ring is what was said about rings for which too little memory may be locked, "" if they are as large as they should
	// be.
	Ring  string
	Rings perfring.RingUse
}

// tryFor is how long a trial records.
const tryFor = 200 * time.Millisecond

// busy is a command that runs for some seconds if nobody stops it: something has to be sampled, and nothing
// must stay if this process is killed.
var busy = []string{"sh", "-c", "i=0; while [ $i -lt 2000000 ]; do i=$((i+1)); done"}

// record records for a short time, and keeps nothing.
func record(what Tried) (t Trial, err error) {
	nothing, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return t, err
	}
	defer nothing.Close()
	o := live.Options{
		Duration: tryFor, MaxStack: 2048, Output: os.DevNull, CommandStdout: nothing,
		Command: busy, AllCPUs: what == Everything, RaisePriority: true, Note: t.note,
	}
	if o.Events, _, err = perfring.DefaultEvents(); err != nil {
		return t, err
	}
	if what == Process {
		running := exec.Command(busy[0], busy[1:]...)
		if err := running.Start(); err != nil {
			return t, err
		}
		defer func() {
			_ = running.Process.Kill()
			_ = running.Wait()
		}()
		o.Command, o.PIDs = nil, []int{running.Process.Pid}
	}
	out, err := live.Record(context.Background(), o)
	s := &out.Stats
	t.Samples, t.User, t.Complete, t.Denied, t.Outside = s.Samples, s.User, s.Complete(), s.Denied, s.Outside()
	t.Rings = s.Rings
	return t, err
}

// note keeps what recording says about what it could not do as asked.
func (t *Trial) note(text string) {
	switch {
	case strings.Contains(text, ":u"):
		t.UserOnly = true
	case strings.HasPrefix(text, "ring of"):
		t.Ring, _, _ = strings.Cut(text, ":") // what follows is the doctor's business
	}
}

// trials records a command, a process, and the whole machine. The last result is the first trial that
// succeeded, nil if none did.
func (m *Environment) trials() (checks []Check, worked *Trial) {
	for _, what := range []Tried{Command, Process, Everything} {
		t, err := m.Try(what)
		if err == nil && worked == nil {
			worked = &t
		}
		c := m.recorded(what, &t)
		if err != nil {
			c = m.refused(what, err)
		}
		c.Name = [...]string{Command: "command", Process: "process", Everything: "whole machine"}[what]
		checks = append(checks, c)
	}
	if worked == nil {
		for i := range checks {
			checks[i].State = Fail
		}
	}
	return checks, worked
}

// options are what a user gives record for each trial.
var options = [...]string{Command: "-- COMMAND", Process: "-p PID", Everything: "-a"}

// refused is about a recording that failed.
func (m *Environment) refused(what Tried, err error) Check {
	c := Check{State: Warning}
	if what == Everything && isPermission(err) && !m.capabilities().mayPerf() {
		c.Detail = "-a is not permitted: your own programs alone can be recorded, with -p PID or -- COMMAND"
		c.Fix, c.OwnOnly = m.sudo(false), true
		return c
	}
	var ok bool
	if c.Detail, c.Fix, ok = m.Explain(err); !ok {
		c.Detail = err.Error()
	}
	c.Detail = options[what] + " does not work: " + c.Detail
	return c
}

// recorded is about one that did not.
func (m *Environment) recorded(what Tried, t *Trial) Check {
	c := Check{Detail: fmt.Sprintf("%s: %s in %.1f s", options[what], human.Plural(t.Samples, "sample"),
		tryFor.Seconds())}
	if t.User > 0 {
		c.Detail += fmt.Sprintf(", %s complete", human.Percent(t.Complete, t.User))
	}
	outside := t.Outside > 0 || !m.hostNamespace()
	switch {
	case what == Everything && outside:
		c.State = Warning
		c.Detail = fmt.Sprintf("-a sees this container's PID namespace only: of %s in %.1f s, %s of processes "+
			"outside, and left out", human.Plural(t.Samples+t.Outside, "sample"), tryFor.Seconds(),
			areOrIs(t.Outside))
		c.Fix = "docker run --pid=host IMAGE"
	case t.UserOnly:
		c.State = Warning
		c.Detail += ", without kernel stacks (:u)"
		c.Fix = setSysctl("perf_event_paranoid", 1)
	case t.Denied > 0:
		c.State = Warning
		c.Detail += fmt.Sprintf("; %s of processes whose stacks you may not read", areOrIs(t.Denied))
		c.Fix = m.sudo(false)
	case t.Samples == 0:
		c.State = Warning
		c.Detail = fmt.Sprintf("%s opens events, and not one sample came in %.1f s", options[what],
			tryFor.Seconds())
	}
	return c
}

func areOrIs(n uint64) string {
	if n == 1 {
		return "1 is"
	}
	return human.Number(n) + " are"
}

// hostNamespace reports whether this process is in the PID namespace that all others are below of.
func (m *Environment) hostNamespace() bool {
	const first = "pid:[4026531836]" // PROC_PID_INIT_INO in include/linux/proc_ns.h
	link, err := os.Readlink(filepath.Join(m.Proc, "self/ns/pid"))
	return err != nil || link == first
}

// rings is about the memory that the rings of a trial got.
func (m *Environment) rings(t *Trial) Check {
	_, use := perfring.DefaultRings()
	if t != nil {
		use = t.Rings
	}
	c := Check{Name: "ring buffers", Detail: counts.RingsText(&use)}
	if t == nil || t.Ring == "" {
		return c
	}
	c.State = Warning
	c.Detail += "; " + t.Ring + ": samples may be lost when the machine is busy (" + m.lockable() + ")"
	c.Fix = setSysctl("perf_event_mlock_kb", ringMemory())
	return c
}

// lockable is what limits the memory of rings: perf_event_mlock_kb for each CPU, and RLIMIT_MEMLOCK in all
// (perf_mmap in kernel/events/core.c).
func (m *Environment) lockable() string {
	text := "perf_event_mlock_kb is unknown"
	if kb, err := m.sysctl("perf_event_mlock_kb"); err == nil {
		text = fmt.Sprintf("perf_event_mlock_kb is %d", kb)
	}
	if limit, err := m.Limit(unix.RLIMIT_MEMLOCK); err == nil && limit.Cur != unix.RLIM_INFINITY {
		text += fmt.Sprintf(", ulimit -l is %d KiB", limit.Cur>>10)
	}
	return text
}

// ringMemory is what the rings of a CPU take, in KiB.
func ringMemory() int {
	sizes, _ := perfring.DefaultRings()
	return sizes.Locked() >> 10
}
