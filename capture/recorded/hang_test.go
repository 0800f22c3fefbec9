package recorded

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	testlane "unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/unwind/image/fusetest"
)

// TestConvertEndsWhileAFileHangs interrupts a conversion that waits for a file.
func TestConvertEndsWhileAFileHangs(t *testing.T) {
	if _, err := exec.LookPath("perf"); err != nil {
		t.Skip("skipped for want of perf")
	}
	t.Parallel()
	server, path := fusetest.Program(t)
	dir := t.TempDir()
	input, output := filepath.Join(dir, "perf.data"), filepath.Join(dir, "out")
	record := testlane.UserPerf("record", "-q", "-N", "-e", "page-faults:u", "-c", "1", "--call-graph", "dwarf,8192",
		"-o", input, "--", path, programs.Times(20))
	if out, err := record.CombinedOutput(); err != nil {
		t.Skipf("skipped for want of a perf that records here: %v: %s", err, out)
	}
	defer server.Be(t, fusetest.Answer)
	for _, jobs := range []int{1, 2} {
		server.Be(t, fusetest.Answer) // what the one before has asked
		server.Be(t, fusetest.HangOpen)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			_, err := Convert(ctx, Options{
				Input: input, Output: output, Cache: dir, MaxStack: 100, Jobs: jobs,
			})
			ended <- err
		}()
		server.AwaitHeld(t)
		select {
		case <-ended:
			t.Errorf("-j %d: it did not wait for the file", jobs)
		default:
		}
		cancel()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("-j %d: it waits on", jobs)
		}
	}
}
