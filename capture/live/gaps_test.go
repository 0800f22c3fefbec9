package live

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"unspool/capture/counts"
	testlane "unspool/testdata/lane"
	"unspool/testdata/programs"
)

// recordGaps records a program whose first copies end at a gap.
func recordGaps(t *testing.T, o Options, start func(path string) *programs.Process) Outcome {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	proc := start(programs.BuildFile(t, "testdata/gap.c"))
	o.PIDs, o.StackSize, o.MaxStack = []int{proc.Process.Pid}, 32<<10, 256
	o.Output = filepath.Join(t.TempDir(), "perf.data")
	return RecordControlled(t, o, func(func()) { proc.Continue() })
}

// A gap at which the first copies end is closed: later copies go on.
func TestGapsAreClosed(t *testing.T) {
	t.Parallel()
	var closed atomic.Bool
	var proc *programs.Process
	o := Faults(Options{Progress: func(st *counts.Stats) {
		// The program goes on until copies are whole.
		if st.Cut[counts.Gap] > 0 && st.User > st.Cut[counts.Gap]+enoughSamples && !closed.Swap(true) {
			_ = proc.Process.Kill()
		}
	}})
	const most = 100_000 // of samples, a millisecond apart
	out := recordGaps(t, o, func(path string) *programs.Process {
		proc = programs.StartCounted(t, path, most)
		return proc
	})
	t.Logf("%d of %d copies end at a gap", out.Stats.Cut[counts.Gap], out.Stats.User)
	if !closed.Load() {
		t.Error("the gap is there still, or never was")
	}
}

// Gaps of threads that run already are closed soon after a recording has begun, not at the first drain of
// those that come every so often.
func TestMachineGapsAreClosedSoon(t *testing.T) {
	testlane.Machine(t, 0.9)
	const freq, most = 999, wakeEvery * 3 / 4
	out := recordGaps(t, Options{Freq: freq, Duration: 400 * time.Millisecond},
		func(path string) *programs.Process { return programs.Start(t, path, 20) })
	gaps, all := out.Stats.Cut[counts.Gap], out.Stats.User
	testlane.Figure(t, "%d of %d copies end at a gap", gaps, all)
	if gaps == 0 || gaps >= uint64(freq*most/time.Second) || gaps >= all/2 {
		t.Error("gaps are closed late, or by others")
	}
}
