package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// A recording that ends with what it records says so, and how one that comes back is recorded.
func TestRecordSaysWhatHasEnded(t *testing.T) {
	t.Parallel()
	needRoot(t)
	path := buildToucher(t, "ends-by-name")
	name := filepath.Base(path)
	const over = "unspool: the recording is over, as "
	for _, output := range []string{"perf.data", "out.folded"} {
		for _, processes := range []int{1, 2} {
			var touchers []*toucher
			for range processes {
				touchers = append(touchers, runToucher(t, exec.Command(path)))
			}
			r, control := startControlled(t, t.TempDir(), slices.Concat([]string{"record", "-o", output}, programs.Faults(),
				[]string{"-p", name})...)
			control("enable")
			for _, p := range touchers {
				p.touch(counted)
				p.end()
			}
			e := r.finish(t, time.Minute)
			want := fmt.Sprintf("process %s (%d) has ended; -G UNIT", name, touchers[0].pid)
			if processes > 1 {
				want = fmt.Sprintf("the processes called %s have ended; -G UNIT", name)
			}
			if e.status != 0 || strings.Count(e.stderr, over+want) != 1 || !strings.Contains(e.stderr, "--wait") {
				t.Errorf("%d processes, %s: no %q in\n%s", processes, output, want, e.stderr)
			}
		}
	}
	// One that is asked to end does not say it.
	p := runToucher(t, exec.Command(path))
	s := startRecording(t, append(programs.Faults(), "-p", strconv.Itoa(p.pid))...)
	p.touch(counted)
	if e := s.stop(t); strings.Contains(e.stderr, over) {
		t.Errorf("it is still there:\n%s", e.stderr)
	}
}

// --wait waits for a process with a name. One that has ended, and whose parent has not asked how, is none.
func TestRecordWaitsForAProcess(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	path, dir := buildToucher(t, "comes-later"), t.TempDir()
	over := exec.Command(path)
	if err := over.Start(); err != nil { // its input is empty
		t.Fatal(err)
	}
	defer over.Wait()
	lane.Eventually(t, "the end of a process", func() bool { return isOver(over.Process.Pid) })
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	data := filepath.Join(dir, "perf.data")
	r, control := startControlledAs(t, dir, func(cmd *exec.Cmd) { cmd.Stderr = said },
		slices.Concat([]string{"record", "-o", data}, programs.Faults(),
			[]string{"-p", filepath.Base(path), "--wait"})...)
	lane.Eventually(t, "a recording that waits", func() bool {
		return strings.Contains(string(mustRead(t, said.Name())), "no process is called comes-later yet: waiting for one\n")
	})
	p := runToucher(t, exec.Command(path))
	control("enable")
	p.touch(counted)
	control("stop")
	if e := r.finish(t, time.Minute); e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, mustRead(t, said.Name()))
	}
	samples := perfScript(t, data)
	if theirs := of(samples, p.pid); len(theirs) != len(samples) || len(touching(theirs)) != counted {
		t.Errorf("%d samples, %d of the process, %d in touches_leaf", len(samples), len(theirs), len(touching(theirs)))
	}
}

// A unit is found by its name, wherever its cgroup is, and only if no other has the name.
func TestRecordOfUnit(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	parent := makeCgroup(t, fmt.Sprintf("unspool-%d.slice", os.Getpid()))
	name := fmt.Sprintf("unspool-shop-%d", os.Getpid())
	unit := func(parents ...string) string {
		t.Helper()
		dir := parent
		for _, name := range append(parents, name+".service") {
			dir = filepath.Join(dir, name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			made := dir
			t.Cleanup(func() {
				lane.Eventually(t, "the cgroup to be empty", func() bool {
					err := os.Remove(made)
					return err == nil || os.IsNotExist(err)
				})
			})
		}
		return dir
	}
	dir := unit()
	other, p := startToucher(t), startToucher(t)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.pid)), 0o644); err != nil {
		t.Skipf("cgroups cannot be changed here: %v", err)
	}
	for _, given := range []string{name, name + ".service"} {
		s := startRecording(t, append(programs.Faults(), "-G", given)...)
		other.touch(counted)
		p.touch(counted)
		only(t, s.stop(t), p, counted)
	}
	second := unit("user")
	for _, given := range []string{name, name + ".service"} {
		e := unspool(t, t.TempDir(), "record", "-G", given)
		e.fails(t, statusFailure, "several cgroups have that name, give the path of one: ")
		for _, dir := range []string{dir, second} {
			if path, _ := filepath.Rel(filepath.Dir(parent), dir); !strings.Contains(e.stderr, path) {
				t.Errorf("no %s in %s", path, e.stderr)
			}
		}
	}

	// A recording says when its cgroup was removed.
	s := startRecording(t, append(programs.Faults(), "-G", second)...)
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	if e := s.stop(t); !strings.Contains(e.stderr, "the cgroup "+second+" was removed meanwhile") {
		t.Error(e.stderr)
	}
}

// A search for a unit is bounded.
func TestSearchForUnitIsBounded(t *testing.T) {
	root := t.TempDir()
	for i := range 30 {
		if err := os.MkdirAll(filepath.Join(root, fmt.Sprint(i%3), fmt.Sprint(i), "x.service"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	left := 1000
	if units, err := findUnits(root, "x", &left); err != nil || len(units) != 30 {
		t.Errorf("%q, %v", units, err)
	}
	left = 20
	if units, err := findUnits(root, "x", &left); err == nil || !strings.Contains(err.Error(), "too many cgroups") {
		t.Errorf("%q, %v", units, err)
	}
}
