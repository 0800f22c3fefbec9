package recorded

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/session/sessiontest"
	"unspool/perfring"
)

// TestConvertEndsWhenItIsToldTo interrupts a conversion of many records at its beginning: what has been read
// is converted into a complete recording, and the error says how much that is.
func TestConvertEndsWhenItIsToldTo(t *testing.T) {
	r := everyType(t)
	r.events[0].PerfEventAttr.Sample_type &^= unix.PERF_SAMPLE_STACK_USER | unix.PERF_SAMPLE_REGS_USER
	const all = 500_000 // more than are converted until the reader, another goroutine, is told
	r.records = nil
	for i := range uint64(all) {
		r.records = append(r.records, sessiontest.RawRecord(perfring.RecordSwitch, 5+i, 1))
		if i%100 == 99 {
			r.records = append(r.records, sessiontest.ARecord(perfring.RecordFinishedRound))
		}
	}
	input := inMemory(t, r.file())
	defer input.Close()
	for _, jobs := range []int{1, 2} {
		output := filepath.Join(t.TempDir(), "out")
		ctx, cancel := context.WithCancel(context.Background())
		// A recording without stacks is noted before its first record is taken.
		_, err := Convert(ctx, Options{Input: input.Name(), Output: output, Cache: "/",
			MaxStack: 100, Jobs: jobs, Note: func(string) {
				cancel()
				time.Sleep(20 * time.Millisecond) // which takes a moment
			}})
		cancel()
		if err == nil || !strings.HasPrefix(err.Error(), "interrupted after ") {
			t.Fatalf("-j %d: %v", jobs, err)
		}
		b, err := os.ReadFile(output)
		if err != nil {
			t.Fatal(err)
		}
		if records, _ := readRecords(t, b); len(records) == 0 || len(records) >= all {
			t.Errorf("-j %d: %d of %d records", jobs, len(records), all)
		}
	}
}

// TestConvertEndsWhileItWaitsForItsInput interrupts a conversion of a FIFO that nobody has opened for
// writing.
func TestConvertEndsWhileItWaitsForItsInput(t *testing.T) {
	dir := t.TempDir()
	input, output := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := unix.Mkfifo(input, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		out, err := Convert(ctx, Options{Input: input, Output: output, MaxStack: 100})
		if out.Started {
			t.Error("the output was begun")
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "interrupted before it began") {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits on")
	}
	if w, err := os.OpenFile(input, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
		w.Close() // lets go of the goroutine that still opens it
	}
	if _, err := os.Stat(output); err == nil {
		t.Error("there is an output")
	}
}
