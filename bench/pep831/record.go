package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/perfring"
)

// A task is a program with a fixed amount of work.
type task struct {
	name string
	args []string      // before the number of rounds
	each time.Duration // CPU time of a round
}

// tasks are the programs that are recorded. How long a round of theirs takes is measured once.
func (b *bench) tasks(names ...string) (list []task, err error) {
	script := b.root + "/bench/pep831/programs/work.py"
	for _, name := range names {
		t := task{name: name, args: []string{b.path("walk"), "work"}}
		if kind, ok := strings.CutPrefix(name, "python3, "); ok {
			t.args = []string{b.python, script, kind}
		}
		// Until the start is a small part of it.
		for rounds := 20; t.each*time.Duration(rounds) < 500*time.Millisecond; rounds *= 4 {
			least := time.Hour // other programs can only add to it
			for range 3 {
				r, err := b.record(nil, &t, rounds)
				if err != nil {
					return nil, err
				}
				least = min(least, r.program)
			}
			t.each = least / time.Duration(rounds)
		}
		list = append(list, t)
	}
	return list, nil
}

// rounds is how many rounds take so many seconds.
func (t *task) rounds(seconds float64) int { return max(1, int(seconds*1e9/float64(max(1, t.each)))) }

// A way is a command that records the command behind it in the file DATA.
type way struct {
	name string
	args []string
}

// Words in the arguments of ways that stand for files.
const (
	inData  = "DATA"
	inStats = "STATS"
)

func (b *bench) byPerf(name string, freq int, graph string) *way {
	return &way{name, []string{b.perfs[0].path, "record", "-q", "-e", "cpu-clock", "-F", strconv.Itoa(freq),
		"--call-graph", graph, "-o", inData, "--"}}
}

func (b *bench) byUnspool(name string, freq int, options ...string) *way {
	args := []string{b.unspool, "record", "-q", "-e", "cpu-clock", "-F", strconv.Itoa(freq), "-o", inData,
		"--stats", inStats}
	return &way{name, append(append(args, options...), "--")}
}

// A recording is what became of one.
type recording struct {
	path    string
	bytes   int64
	program time.Duration // CPU time of the program, as it says itself
	all     time.Duration // and that of the recorder, too
	finish  time.Duration // from the end of the work to the end of the recorder
	samples int
	lost    int

	// of unspool's only
	user, complete, frames int
}

// record runs the task, under a recorder unless by is nil.
func (b *bench) record(by *way, t *task, rounds int) (*recording, error) {
	r := &recording{path: b.path("recorded.data")}
	files := strings.NewReplacer(inData, r.path, inStats, b.path("stats.json"))
	var args []string
	if by != nil {
		for _, a := range by.args {
			args = append(args, files.Replace(a))
		}
	}
	done := b.path("done")
	args = append(append(args, t.args...), strconv.Itoa(rounds), done)
	c, err := execute(0, io.Discard, args...)
	if err != nil {
		return nil, err
	}
	r.all = c.cpu
	text, err := os.ReadFile(done)
	if err != nil {
		return nil, err
	}
	var end, program int64
	if _, err := fmt.Sscan(string(text), &end, &program); err != nil {
		return nil, err
	}
	r.program, r.finish = time.Duration(program), time.Duration(c.end-end)
	if by == nil {
		return r, nil
	}
	info, err := os.Stat(r.path)
	if err != nil {
		return nil, err
	}
	r.bytes = info.Size()
	if by.args[0] != b.unspool {
		return r, r.count()
	}
	return r, r.readStats(b.path("stats.json"))
}

// readStats reads what unspool says of its recording.
func (r *recording) readStats(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var s struct {
		Samples struct{ Total, User, Lost int }
		Unwind  struct{ Complete, Frames int }
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	r.samples, r.user, r.lost = s.Samples.Total, s.Samples.User, s.Samples.Lost
	r.complete, r.frames = s.Unwind.Complete, s.Unwind.Frames
	return nil
}

// count counts the samples of a recording.
func (r *recording) count() error {
	rd, err := perfdata.Open(r.path)
	if err != nil {
		return err
	}
	defer rd.Close()
	return rd.Ordered(func(rec perfring.Record, _ *perfring.SampleFormat, _ uint64) error {
		switch rec.Type() {
		case perfring.RecordSample:
			r.samples++
		case perfring.RecordLost:
			var lost perfring.Lost
			if err := perfring.DecodeLost(rec, &lost); err != nil {
				return err
			}
			r.lost += int(lost.Lost)
		case perfring.RecordLostSamples:
			var lost perfring.LostSamples
			if err := perfring.DecodeLostSamples(rec, &lost); err != nil {
				return err
			}
			r.lost += int(lost.Lost)
		}
		return nil
	})
}

// A cost is the time that a command took, with the processes that it has started and waited for.
type cost struct {
	cpu, elapsed time.Duration
	end          int64 // by the monotonic clock, ns
	cut          bool  // it was killed when its time was over
}

// execute runs a command, for at most as long as limit if that is not 0.
func execute(limit time.Duration, stdout io.Writer, args ...string) (c cost, err error) {
	cmd := exec.Command(args[0], args[1:]...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, &stderr, time.Second
	// How long a script of Python takes depends on it otherwise.
	cmd.Env = append(os.Environ(), "PYTHONHASHSEED=0")
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return c, err
	}
	stop := func() bool { return true }
	if limit > 0 {
		stop = time.AfterFunc(limit, func() { _ = cmd.Process.Kill() }).Stop
	}
	err = cmd.Wait()
	c.cut = !stop()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return c, err
	}
	c.elapsed, c.end = time.Since(begun), now.Nano()
	c.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if err != nil && !c.cut {
		text := stderr.Bytes()
		return c, errors.Join(fmt.Errorf("%s: %w", strings.Join(args, " "), err),
			errors.New(string(text[max(0, len(text)-1000):])))
	}
	return c, nil
}
