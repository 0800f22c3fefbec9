package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"unspool/capture/profile"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/unwind"
)

// TestAttacksHarmNoOthers records programs that are made to be expensive to record, a little of each, and a Python
// beside each: nothing is lost, and the Python's stacks are complete.
func TestAttacksHarmNoOthers(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "python3")
	python := pythonItself(t)
	attacks := buildCase(t, "attacks.c")
	script := fmt.Sprintf(`import mmap
print("ready", flush=True)
while input() == "":
	a = mmap.mmap(-1, %[1]d * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
	sorted(range(%[1]d), key=lambda i: a.__setitem__(i * 4096, 1) or i)
	print("done", flush=True)`, touched)
	for _, how := range []string{"expressions", "programs", "code", "mappings", "names"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			attack := programs.StartCounted(t, attacks, counted, how)
			honest := startAsked(t, t.TempDir(), python, "-c", script)
			running := startRecording(t, slices.Concat(programs.Faults(), []string{"-p",
				fmt.Sprintf("%d,%d", attack.Process.Pid, honest.Process.Pid)})...)
			attack.Continue()
			<-attack.Ended()
			honest.next(t)
			running.drained()
			r := running.stop(t)
			beside := besidePython(t, r)
			if r.stats.Samples.Lost > 0 || beside.honest < touched || beside.other < counted ||
				beside.complete+beside.gaps != beside.honest {
				t.Errorf("%v; %d lost; ended: %v", beside, r.stats.Samples.Lost, r.stats.Unwind.Ended)
			}
		})
	}
}

// TestMachineAttacks records programs that are made to be expensive to record, and a Python beside each: nothing is
// lost, the Python's stacks are complete, the recording ends in time and takes no more than the CPU time that
// one program may cost.
func TestMachineAttacks(t *testing.T) {
	lane.Machine(t, 0.9)
	needRoot(t)
	need(t, "python3")
	python := pythonItself(t)
	attacks := buildCase(t, "attacks.c")
	for _, a := range []struct {
		name   string
		how    string // to be attacked
		limits string // of the recorder, in the shell's words
		copies string // bytes of them, if not the default
	}{
		{name: "expressions", how: "expressions"},
		{name: "programs", how: "programs"},
		{name: "code", how: "code"},
		{name: "mappings", how: "mappings"},
		{name: "names", how: "names"},
		{name: "stacks", how: "stacks", copies: "32768"},
		{name: "files", how: "files " + manyFiles(t, 3000), limits: "ulimit -n 300"},
	} {
		t.Run(a.name, func(t *testing.T) {
			const seconds = 2
			// Python begins when the attack is under way.
			script := fmt.Sprintf("%s %d %s & sleep 0.3; timeout %d %s -c 'while True: sorted(range(100))'; true",
				attacks, seconds, a.how, seconds, python)
			args := []string{"-v", "-d", fmt.Sprint(seconds + 1)}
			if a.copies != "" {
				args = append(args, "--stack-size", a.copies)
			}
			r := recordUnder(t, a.limits, append(args, "--", "sh", "-c", script)...)
			if strings.Contains(r.stderr, "a read hangs") {
				t.Errorf("%s", r.stderr)
			}
			beside := besidePython(t, r)
			lane.Figure(t, "%v; %d lost; %.2f of a CPU, %.0f µs a sample, %d MiB", beside, r.stats.Samples.Lost,
				r.stats.Cost.CPUShare, r.stats.Cost.PerSample, r.stats.Cost.MaxRSS>>20)
			beside.whole(t)
			if r.stats.Samples.Lost > 0 {
				t.Errorf("%d lost", r.stats.Samples.Lost)
			}
			if r.stats.Duration > seconds+1.5 || r.stats.Cost.CPUShare > 1 {
				t.Errorf("it took %.2f s, %.2f of a CPU", r.stats.Duration, r.stats.Cost.CPUShare)
			}
		})
	}
}

// foundPython is where Python itself is, asked once.
var foundPython struct {
	sync.Once
	path string
}

// pythonItself is the path of Python: what is in PATH may be a script that looks for it.
func pythonItself(t *testing.T) string {
	t.Helper()
	need(t, "python3")
	foundPython.Do(func() {
		foundPython.path = strings.TrimSpace(output(t, "", "python3", "-c", "import sys; print(sys.executable)"))
	})
	return foundPython.path
}

// manyFiles makes n files, which differ, called 0, 1, and so on.
func manyFiles(t *testing.T, n int) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for i := range n {
		name := fmt.Sprint(i)
		if err := os.WriteFile(filepath.Join(folder, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// recordUnder runs unspool record under limits that the shell sets, as record does without.
func recordUnder(t *testing.T, limits string, args ...string) recording {
	t.Helper()
	if limits == "" {
		return record(t, args...)
	}
	dir := t.TempDir()
	path, stats := filepath.Join(dir, "perf.data"), filepath.Join(dir, "stats.json")
	limited := func(c *exec.Cmd) {
		c.Path, c.Err = "/bin/sh", nil
		c.Args = append([]string{"sh", "-c", limits + ` && exec "$0" "$@"`}, c.Args...)
	}
	args = append([]string{"record", "-o", path, "--stats", stats}, args...)
	e := start(t, dir, limited, args...).finish(t, time.Minute)
	if e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	content, err := os.ReadFile(stats)
	if err != nil {
		t.Fatal(err)
	}
	return recording{path, readStatistics(t, content), e}
}

// beside counts the user stacks of Python, those of them that have pages which were never touched, as happens while it
// begins, and those of what was recorded beside it.
type beside struct{ honest, complete, gaps, other uint64 }

func besidePython(t *testing.T, r recording) (b beside) {
	t.Helper()
	p := ownProfile(t, r.path)
	for _, s := range p.Samples {
		switch {
		case !strings.HasPrefix(p.Threads[s.Thread].Comm, "python3"):
			b.other += s.Count
		case s.End != profile.Unsaid:
			b.honest += s.Count
			if s.End == profile.Complete || s.End == profile.Joined {
				b.complete += s.Count
			}
			if s.End == profile.Ended(unwind.DumpTooShort) {
				b.gaps += s.Count
			}
		}
	}
	return b
}

func (b beside) String() string {
	return fmt.Sprintf("%d of %d of Python's stacks are complete, %d samples of others", b.complete, b.honest,
		b.other)
}

// whole compares what was recorded of Python with what is expected.
func (b beside) whole(t *testing.T) {
	t.Helper()
	if b.honest < enough || b.other < enough || b.complete*100 < b.honest*99 {
		t.Error(b)
	}
}
