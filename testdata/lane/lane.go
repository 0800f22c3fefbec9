// Package lane says which tests need what, so that a test fails for a fault only.
//
// There are two lanes. `make test` has every test that does not depend on time: what it wants to know is counted,
// replayed or computed. `make test-machine` has the tests that only a real, timed machine can show something to. They
// are named TestMachine…, begin with [Machine], run one at a time, and are repeated by .ci/machine: up to three runs,
// of which one has to be good.
package lane

import (
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// Machine begins a test of the timed lane. good is the share of its runs, from 0.8 to 1, that are expected to be
// good on an idle machine with two CPUs: three bad runs in a row are a fault then, at worst but for one time in 125.
func Machine(t testing.TB, good float64) {
	t.Helper()
	if good < 0.8 || good > 1 {
		t.Fatalf("%v of the runs are expected to be good, which is not from 0.8 to 1", good)
	}
	if os.Getenv("UNSPOOL_LANE") != "machine" {
		t.Skip("left to make test-machine: it judges by time")
	}
	t.Logf("lane: good %.0f", good*100)
}

// Figure tells a figure of a run, which .ci/machine prints.
func Figure(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Logf("figure: "+format, args...)
}

// Root skips a test that only root can do.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
}

// Tools skips a test for which a program is missing.
func Tools(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

// UserPerf is a command of perf that finds an empty list of the kernel's functions. Each time that perf starts, it
// reads that list up to four times, which takes nine tenths of the CPU time of a short recording. It is for recordings
// whose events are all of user code, and for readers that no test asks about the kernel.
func UserPerf(args ...string) *exec.Cmd {
	if !canMount() {
		return exec.Command("perf", args...)
	}
	return exec.Command("unshare", append([]string{"--mount", "sh", "-c",
		`mount --bind /dev/null /proc/kallsyms && exec perf "$@"`, "perf"}, args...)...)
}

// canMount reports whether this process may mount files for a process that it starts.
var canMount = sync.OnceValue(func() bool {
	return exec.Command("unshare", "--mount", "mount", "--bind", os.DevNull, "/proc/kallsyms").Run() == nil
})

// Soon reports whether something holds, or comes to hold within a minute, for which no machine takes as long.
func Soon(holds func() bool) bool {
	const longest = 10 * time.Millisecond
	end := time.Now().Add(time.Minute)
	for wait := time.Millisecond; !holds(); wait = min(2*wait, longest) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(wait)
	}
	return true
}

// Eventually waits until something holds, and fails the test if that is not [Soon].
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !Soon(holds) {
		t.Fatalf("waited in vain for %s", what)
	}
}
