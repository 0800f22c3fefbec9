package live_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unspool/capture/live"
	"unspool/testdata/programs"
	"unspool/unwind"
)

// TestTwinsOfOneBuildID records a program and what patchelf made of it, with other segments and the same
// build ID. Both run at the same time, so that their samples alternate.
func TestTwinsOfOneBuildID(t *testing.T) {
	if _, err := exec.LookPath("patchelf"); err != nil {
		t.Skip("skipped for want of patchelf")
	}
	t.Parallel()
	program := programs.Build(t, "plain", "-no-pie", "-Wl,--build-id")
	twin := filepath.Join(t.TempDir(), "twin")
	const longer = 20 << 10 // than the room that there is
	patched, err := exec.Command("patchelf", "--set-rpath", "/"+strings.Repeat("x", longer), "--output", twin,
		program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, patched)
	}
	both := []*programs.Process{programs.StartCounted(t, program, counted), programs.StartCounted(t, twin, counted)}
	path := filepath.Join(t.TempDir(), "perf.data")
	options := live.Faults(live.Options{StackSize: 16 << 10, MaxStack: 2048, Output: path})
	for _, p := range both {
		options.PIDs = append(options.PIDs, p.Process.Pid)
	}
	out := live.RecordControlled(t, options, func(func()) {
		for _, p := range both {
			p.Continue()
		}
	})
	matched := 0
	for _, s := range stacks(t, path) {
		if s.names[0] != both[0].Chain.Leaf() {
			continue
		}
		if err := both[0].Chain.Match(s.names); err == nil {
			matched += s.count
		} else {
			t.Errorf("%d samples: %.600v", s.count, err)
		}
	}
	if complete := out.Stats.Ended[unwind.Root]; matched != 2*counted || complete < 2*counted {
		t.Errorf("%d of %d stacks match; ended %v", matched, 2*counted, out.Stats.Ended)
	}
}
