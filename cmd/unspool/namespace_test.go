package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/testdata/programs"
)

// TestContainersPIDNamespace records the whole machine from inside of a PID namespace. What runs outside has
// no PID there: it is left out, counted and reported.
func TestContainersPIDNamespace(t *testing.T) {
	t.Parallel()
	program := namespaceMark.build(t)
	need(t, "mkfifo")
	programs.NeedMounts(t)
	dir := t.TempDir()
	// The neighbour, outside, goes when the command inside has begun, which ends when the neighbour has.
	output(t, dir, "mkfifo", "begun", "over")
	outside := exec.Command("sh", "-c", fmt.Sprintf("read x <begun; %s =%d; echo >over", program, counted))
	outside.Dir = dir
	if err := programs.StartTied(t, outside); err != nil {
		t.Fatal(err)
	}
	defer func() {
		outside.Process.Kill()
		outside.Wait()
	}()
	stats := filepath.Join(dir, "stats.json")
	e := start(t, dir, unshared("--mount-proc"), slices.Concat([]string{"record", "-a", "--stats", stats},
		namespaceMark.options(),
		[]string{"--", "sh", "-c", fmt.Sprintf("echo >begun; %s =%d; read x <over", program, counted)})...).
		finish(t, 2*time.Minute)
	if e.status != 0 {
		t.Fatal(e.stderr)
	}
	content, err := os.ReadFile(stats)
	if err != nil {
		t.Fatal(err)
	}
	st := readStatistics(t, content)
	st.addUp(t)
	const said = "outside of this PID namespace"
	if n := st.Samples.ExcludedBy.Outside; n != counted || !strings.Contains(e.stderr, said) {
		t.Errorf("%d samples of processes outside, want %d\n%s", n, counted, e.stderr)
	}
	if st.Samples.User != counted || st.Unwind.Complete != counted {
		t.Errorf("of the command: %+v, ended: %v", st.Samples, st.Unwind.Ended)
	}

	e = start(t, dir, unshared("--mount-proc"), "doctor").finish(t, time.Minute)
	if !strings.Contains(e.stdout, "PID namespace") || !strings.Contains(e.stdout, "--pid=host") {
		t.Errorf("doctor does not say it:\n%s", e.stdout)
	}
	e = start(t, dir, unshared("--kill-child"), "record", "-a", "-d", "0.1").finish(t, time.Minute)
	e.fails(t, statusFailure, "/proc shows another PID namespace")
}

// unshared has a command run in a PID namespace of its own.
func unshared(flag string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"unshare", "-p", "-f", flag, cmd.Path}, cmd.Args[1:]...)
		cmd.Path, _ = exec.LookPath("unshare")
	}
}
