package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unspool/testdata/programs"
)

// TestContainersPIDNamespace records the whole machine from inside of a PID namespace. What runs outside has
// no PID there: it is left out, counted and reported.
func TestContainersPIDNamespace(t *testing.T) {
	needRoot(t)
	need(t, "unshare")
	burn := programs.Build(t, "burn")
	neighbour := exec.Command(burn, "0")
	if err := neighbour.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		neighbour.Process.Kill()
		neighbour.Wait()
	}()
	dir := t.TempDir()
	stats := filepath.Join(dir, "stats.json")
	e := start(t, dir, unshared("--mount-proc"), "record", "-a", "--stats", stats, "--", burn, "300").
		finish(t, 20*time.Second)
	if e.status != 0 {
		t.Fatal(e.stderr)
	}
	content, err := os.ReadFile(stats)
	if err != nil {
		t.Fatal(err)
	}
	st := readStatistics(t, content)
	st.addUp(t)
	t.Logf("%+v\n%s", st.Samples, e.stderr)
	const said = "outside of this PID namespace"
	if n := st.Samples.ExcludedBy.Outside; n < 50 || !strings.Contains(e.stderr, said) {
		t.Errorf("%d samples of processes outside\n%s", n, e.stderr)
	}
	if st.Samples.User < 50 || st.incomplete() > 0.02 {
		t.Errorf("of the command: %+v, ended: %v", st.Samples, st.Unwind.Ended)
	}

	e = start(t, dir, unshared("--mount-proc"), "doctor").finish(t, 20*time.Second)
	if !strings.Contains(e.stdout, "PID namespace") || !strings.Contains(e.stdout, "--pid=host") {
		t.Errorf("doctor does not say it:\n%s", e.stdout)
	}
	e = start(t, dir, unshared("--kill-child"), "record", "-a", "-d", "0.1").finish(t, 20*time.Second)
	e.fails(t, statusFailure, "/proc shows another PID namespace")
}

// unshared has a command run in a PID namespace of its own.
func unshared(flag string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"unshare", "-p", "-f", flag, cmd.Path}, cmd.Args[1:]...)
		cmd.Path, _ = exec.LookPath("unshare")
	}
}
