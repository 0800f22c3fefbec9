package live

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"unspool/capture/counts"
	testlane "unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/unwind"
	"unspool/unwind/link"
)

// cutPrograms are the variants of the program in testdata/cut.c, whose stacks no sample holds.
var cutPrograms = []string{"deep", "frame", "frames", "realigned", "leaf"}

// recordCut records one of them until it ends, or for a while.
func recordCut(t *testing.T, o Options, proc *programs.Process) *counts.Stats {
	t.Helper()
	o.PIDs, o.StackSize, o.MaxStack = []int{proc.Process.Pid}, 8192, 256
	o.Output = filepath.Join(t.TempDir(), "perf.data")
	out := RecordControlled(t, o, func(func()) { proc.Continue() })
	t.Logf("%d of %d stacks are completed by reading, %d frames", out.Stats.Links[link.Read], out.Stats.User,
		out.Stats.FramesBy[unwind.ByLive])
	return &out.Stats
}

// Of a stack that no sample holds, what the copy cuts off is read from the process, but of CFI alone.
func TestCutStacksAreRead(t *testing.T) {
	t.Parallel()
	testlane.Root(t)
	for _, kind := range cutPrograms {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path := programs.BuildFile(t, "testdata/cut.c")
			// The program goes on until some were read.
			proc := programs.StartCounted(t, path, 100_000, kind)
			var done atomic.Bool
			st := recordCut(t, Faults(Options{Progress: func(st *counts.Stats) {
				if st.Links[link.Read] > enoughSamples && !done.Swap(true) {
					_ = proc.Process.Kill()
				}
			}}), proc)
			if joined, frames := st.Links[link.Read], st.FramesBy[unwind.ByLive]; !done.Load() || frames < 30*joined {
				t.Errorf("%d stacks are completed, by %d frames", joined, frames)
			}
			strict := recordCut(t, Faults(Options{Strict: true}), programs.StartCounted(t, path, 200, kind))
			if joined, frames := strict.Links[link.Read], strict.FramesBy[unwind.ByLive]; joined+frames > 0 {
				t.Error("some are read, and were not to be")
			}
		})
	}
}

// Most of the stacks that no sample holds are completed.
func TestMachineMostCutStacksAreRead(t *testing.T) {
	testlane.Machine(t, 0.9)
	testlane.Root(t)
	path := programs.BuildFile(t, "testdata/cut.c")
	for _, kind := range cutPrograms {
		proc := programs.Start(t, path, 20, kind)
		st := recordCut(t, Options{Freq: 999, Duration: time.Second}, proc)
		_ = proc.Process.Kill()
		joined, frames := st.Links[link.Read], st.FramesBy[unwind.ByLive]
		cut := st.User - (st.Complete() - joined)
		testlane.Figure(t, "%s: %d stacks, %d cut off, %d of these completed, by %d frames", kind, st.User, cut, joined,
			frames)
		if st.User < enoughSamples || joined < cut/2 || frames < 30*joined {
			t.Errorf("%s: most are not completed, or by a part of their frames", kind)
		}
	}
}

// enoughSamples is after how many of them something has to be so.
const enoughSamples = 100
