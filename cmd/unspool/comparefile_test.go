package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// TestComparesPerfsRecordings compares what perf record wrote into a file and into a pipe: both say how much
// of each stack was copied.
func TestComparesPerfsRecordings(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	program := programs.Build(t, "plain")
	for _, output := range []string{"file", "pipe"} {
		t.Run(output, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "perf.data")
			to := path
			if output == "pipe" {
				to = "-"
			}
			cmd := lane.UserPerf(slices.Concat([]string{"record", "-q", "-B", "-N", "-m", "8M",
				"--call-graph", "dwarf,16384", "-o", to}, programs.Faults(),
				[]string{"--", program, programs.Times(counted)})...)
			if output == "pipe" {
				f, err := os.Create(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				cmd.Stdout = f
			}
			if err := cmd.Run(); err != nil {
				t.Skipf("%v: %v", cmd, err)
			}
			e := unspool(t, t.TempDir(), "compare", "-q", "--json", path)
			if e.status != 0 {
				t.Fatalf("status %d: %s", e.status, e.stderr)
			}
			var r struct {
				Samples    uint64
				StackSizes []struct{ Bytes int } `json:"stack_sizes"`
				Classes    map[string]struct {
					Samples uint64
					Share   float64
				}
			}
			if err := json.Unmarshal([]byte(e.stdout), &r); err != nil {
				t.Fatal(err)
			}
			sum, largest := uint64(0), ""
			for key, c := range r.Classes {
				sum += c.Samples
				if c.Share >= r.Classes[largest].Share {
					largest = key
				}
			}
			if r.Samples < counted || sum != r.Samples {
				t.Errorf("%d samples, %d in classes", r.Samples, sum)
			}
			if n := len(r.StackSizes); n != 3 || r.StackSizes[n-1].Bytes != 16384 {
				t.Errorf("stack sizes: %+v", r.StackSizes)
			}
			if output == "pipe" {
				return
			}
			// The same file with --fail-under: status 1, one line for the class below the limit, and the same
			// result.
			asked := largest + "=100"
			want := fmt.Sprintf("unspool: %s: %.2f %% of the samples, less than 100 %%\n", largest,
				100*r.Classes[largest].Share)
			if r.Classes[largest].Share == 1 {
				asked, want = "both_stop=50", "unspool: both_stop: 0.00 % of the samples, less than 50 %\n"
			}
			e = unspool(t, t.TempDir(), "compare", "-q", "--json", "--fail-under", largest+"=1",
				"--fail-under", asked, path)
			if e.status != statusUnder || e.stderr != want || !json.Valid([]byte(e.stdout)) {
				t.Errorf("--fail-under %s: status %d, %q, want %q", asked, e.status, e.stderr, want)
			}
			e = unspool(t, t.TempDir(), "compare", "-q", "--fail-under", largest+"=1", path)
			if e.status != 0 {
				t.Errorf("--fail-under %s=1: status %d, %s", largest, e.status, e.stderr)
			}
		})
	}
	if e := unspool(t, t.TempDir(), "compare", "-"); e.status != statusFailure {
		t.Errorf("a pipe: status %d", e.status)
	}
}

// TestSecondInterruptEndsACompare interrupts a comparison of a file while it asks for the packages of what it
// blames. The first signal lets it come to its end, the second one ends it at once.
func TestSecondInterruptEndsACompare(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	dir := t.TempDir()
	data, asked := placed(t, "raw"), filepath.Join(dir, "asked")
	// A package manager that is slow.
	text := "#!/bin/sh\n: >" + asked + "\nexec sleep 600\n"
	if err := writeProgram(filepath.Join(dir, "rpm"), []byte(text)); err != nil {
		t.Fatal(err)
	}
	r := start(t, dir, func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TMPDIR="+dir)
	}, "compare", "-q", "--no-sandbox", data) // the package manager is a script, which writes a file
	lane.Eventually(t, "a question for a package", func() bool {
		_, err := os.Stat(asked)
		return err == nil
	})
	r.Process.Signal(syscall.SIGINT)
	lane.Eventually(t, "the signal to be taken", func() bool { return hasTakenSignals(r.Process.Pid) })
	if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", r.Process.Pid)); err != nil {
		t.Errorf("the first signal has ended it: %v", err)
	}
	lane.Eventually(t, "the end by another signal", func() bool { // it takes a moment until the first one is followed
		r.Process.Signal(syscall.SIGINT)
		return r.hasEnded()
	})
	if e := r.finish(t, time.Minute); e.status != 128+2 {
		t.Errorf("status %d: %s", e.status, e.stderr)
	}
}
