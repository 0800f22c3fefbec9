package main

import (
	"fmt"
	"os"
	"os/exec"
	"time"

	"unspool/capture/perfdata"
	"unspool/capture/session"
	"unspool/perfring"
	"unspool/unwind/link"

	"golang.org/x/sys/unix"
)

// A trial cuts the copies of samples to a size, and completes their stacks as convert does, or, one of those of a
// program, atOnce: as record does, with what is read when the samples are taken.
type trial struct {
	size   uint64
	atOnce bool
	outcome
	session *session.Session
}

// A liveRun records a command with the largest copies, and hands the samples to trials while the command
// runs.
type liveRun struct {
	truth
	source *perfring.Source
	whole  *session.Session
	trials []*trial

	sample perfring.Sample
	cut    []byte
}

// live runs a command. Its trials have their outcomes after that.
func live(c *exec.Cmd, freq int, trials ...*trial) error {
	c.Stderr = os.Stderr
	goOn, err := startHeld(c)
	if err != nil {
		return err
	}
	defer goOn()
	// It has inherited the priority of this process, and with real-time priority nothing is read at its samples.
	if err := unix.SchedSetAttr(c.Process.Pid, &unix.SchedAttr{}, 0); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	events, _, err := perfring.DefaultEvents()
	if err != nil {
		return err
	}
	r := liveRun{truth: newTruth(), trials: trials}
	r.source, err = perfring.Open(perfring.Target{PIDs: []int{c.Process.Pid}}, perfring.Options{
		Events: events, Freq: uint64(freq), StackSize: perfring.MaxStackSize, Pages: 4096,
	})
	if err != nil {
		return err
	}
	defer r.source.Close()
	if err := r.begin(c.Process.Pid); err != nil {
		return err
	}
	goOn()
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		case <-time.After(session.JoinAfter):
		}
		if err := r.drain(); err != nil {
			return err
		}
	}
	for _, t := range trials {
		if err := t.session.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// startHeld starts a command that does nothing before goOn is called: it may be over soon after that.
func startHeld(c *exec.Cmd) (goOn func(), err error) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		return nil, err
	}
	wait, held, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer wait.Close()
	c.ExtraFiles = []*os.File{wait}
	c.Args = append([]string{"sh", "-c", `read line <&3; exec "$@" 3<&-`, "sh", c.Path}, c.Args[1:]...)
	c.Path = shell
	if err := c.Start(); err != nil {
		held.Close()
		return nil, err
	}
	return func() { held.Close() }, nil
}

// begin makes the sessions, and begins to sample.
func (r *liveRun) begin(pid int) error {
	config := session.Config{Format: r.source.Format(), Proc: "/proc", MaxStack: 2048, Live: true}
	config.Sink = sink(r.note)
	r.whole = session.New(config)
	sessions := []*session.Session{r.whole}
	for _, t := range r.trials {
		config.Live, config.Join, config.JoinAfter = t.atOnce, true, session.JoinAfterRecorded
		if t.atOnce {
			config.JoinAfter = session.JoinAfter
		}
		config.Sink = sink(func(w *perfdata.Walked) { t.count(w, &r.truth) })
		t.session = session.New(config)
		sessions = append(sessions, t.session)
	}
	for _, t := range r.trials {
		if t.atOnce {
			t.session.ReadRest(r.source, direct{t.size})
		}
	}
	if err := r.source.Enable(); err != nil {
		return err
	}
	for _, s := range sessions {
		if err := s.Seed([]int{pid}); err != nil {
			return err
		}
	}
	return nil
}

// drain hands what the rings hold to all sessions.
func (r *liveRun) drain() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	if err := r.source.Drain(r.record); err != nil {
		return err
	}
	for _, t := range r.trials {
		if err := t.session.Settle(uint64(now.Nano())); err != nil {
			return err
		}
	}
	return nil
}

func (r *liveRun) record(rec perfring.Record) error {
	if err := r.whole.Record(rec); err != nil {
		return err
	}
	for _, t := range r.trials {
		cut := rec
		if rec.Type() == perfring.RecordSample {
			f := r.source.Format()
			if err := f.Sample(rec, &r.sample); err != nil {
				return err
			}
			var err error
			if r.cut, err = perfring.AppendCut(r.cut[:0], rec, &r.sample, t.size); err != nil {
				return err
			}
			cut = r.cut
		}
		if err := t.session.Record(cut); err != nil {
			return err
		}
	}
	return nil
}

// line is one line of text: the share of the samples that each way completed.
func (o *outcome) line() string {
	read := o.links[link.Read]
	s := fmt.Sprintf("%d samples: %s complete by the copy, %s read at once, %s joined, %d of both wrong; %s in all",
		o.all, o.share(o.byCopy), o.share(read), o.share(o.joined-read), o.wrong, o.share(o.byCopy+o.joined))
	for i, words := range []string{"doubtful", "disagree", "one-sided", "unseen"} {
		s += fmt.Sprintf(", %s %s", o.share(o.links[left[i]]), words)
	}
	return s
}
