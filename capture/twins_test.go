package capture_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unspool/capture"
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
	both := []*programs.Process{programs.Start(t, program, 20), programs.Start(t, twin, 20)}
	path := filepath.Join(t.TempDir(), "perf.data")
	options := capture.Options{
		Freq: 1999, StackSize: 16 << 10, MaxStack: 2048, Duration: 500 * time.Millisecond, Output: path,
	}
	for _, p := range both {
		options.PIDs = append(options.PIDs, p.Process.Pid)
	}
	out, err := capture.Record(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	samples, matched := 0, 0
	for _, s := range stacks(t, path) {
		samples += s.count
		if err := both[0].Chain.Match(s.names); err == nil {
			matched += s.count
		}
	}
	if samples < 20 || matched*100 < samples*99 {
		t.Errorf("%d of %d stacks match; ended %v", matched, samples, out.Stats.Ended)
	}
	if complete := int(out.Stats.Ended[unwind.Root]); complete*100 < samples*99 {
		t.Errorf("%d of %d stacks are complete", complete, samples)
	}
}
