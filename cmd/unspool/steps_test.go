package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/profile"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// Recordings step by step: a program stops, or waits for a line, until what it has done so far has been taken from
// the rings. What is read from a process when its samples are drained is there then.

// recordSteps is recordCounted for a program that stops (SIGSTOP) after each of its steps, the last one, too.
func recordSteps(t testing.TB, proc *programs.Process, steps int, options ...string) recording {
	t.Helper()
	pid := proc.Process.Pid
	r := startRecording(t, slices.Concat(programs.Faults(), []string{"-p", strconv.Itoa(pid)}, options)...)
	for range steps {
		proc.Continue()
		untilStopped(t, pid)
		r.drained()
	}
	return r.stop(t)
}

// recordSteppedCommand is recordSteps for a command: its mappings are known from the kernel's records only.
func recordSteppedCommand(t testing.TB, steps int, options []string, path string, args ...string) (recording,
	programs.Chain) {
	t.Helper()
	told := filepath.Join(t.TempDir(), "pid")
	r := startRecording(t, slices.Concat(programs.Faults(), options, []string{"--", "sh", "-c",
		`echo $$ >"$0" && exec "$@"`, told, path, fmt.Sprintf("@%d", counted)}, args)...)
	pid := pidIn(t, told)
	for step := range steps + 1 { // it stops with its chain printed first
		if step > 0 {
			unix.Kill(pid, unix.SIGCONT)
		}
		untilStopped(t, pid)
		r.drained()
	}
	r.control("stop")
	unix.Kill(pid, unix.SIGCONT) // so that it ends
	got := r.end(t)
	chain, err := programs.ParseChain(firstLine(got.stdout))
	if err != nil {
		t.Fatal(err)
	}
	return got, chain
}

// pidIn waits for a file with a PID, and returns that.
func pidIn(t testing.TB, path string) (pid int) {
	t.Helper()
	lane.Eventually(t, "a PID in "+path, func() bool {
		text, err := os.ReadFile(path)
		if err == nil && strings.HasSuffix(string(text), "\n") {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil && pid != 0
	})
	return pid
}

// An asked process does its next step when it is told to, by a line, and says when it has done it.
type asked struct {
	*exec.Cmd
	lines *bufio.Reader
	in    io.Writer
}

// startAsked starts a program that says "ready" first.
func startAsked(t testing.TB, dir string, command ...string) *asked {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := programs.StartTied(t, cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		// CPython writes there wherever it runs.
		os.Remove(fmt.Sprintf("/tmp/perf-%d.map", cmd.Process.Pid))
		os.Remove(fmt.Sprintf("/tmp/jit-%d.dump", cmd.Process.Pid))
	})
	a := &asked{cmd, bufio.NewReader(out), in}
	a.says(t, "ready")
	return a
}

// says expects a line.
func (a *asked) says(t testing.TB, want string) {
	t.Helper()
	late := time.AfterFunc(2*time.Minute, func() { a.Process.Kill() })
	defer late.Stop()
	if line, err := a.lines.ReadString('\n'); line != want+"\n" {
		t.Fatalf("%s said %q, %v, not %q", a.Cmd, line, err, want)
	}
}

// next has the process do its next step, and waits until it has.
func (a *asked) next(t testing.TB) {
	t.Helper()
	if _, err := io.WriteString(a.in, "\n"); err != nil {
		t.Fatal(err)
	}
	a.says(t, "done")
}

// matchEnd compares all stacks at a chain's end with the chain, and counts them.
func matchEnd(t testing.TB, p *profile.Profile, chain programs.Chain) (n int) {
	t.Helper()
	for _, s := range p.Samples {
		stack := userStack(p, s.Node)
		if len(stack) == 0 || stack[0] != chain.Leaf() {
			continue
		}
		if err := chain.Match(stack); err != nil {
			t.Errorf("%d samples: %.600s\n  all frames, leaf first: %.600s", s.Count, err, describe(p, s.Node))
		}
		n += int(s.Count)
	}
	return n
}
