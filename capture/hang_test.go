package capture

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unspool/perfring"
	testlane "unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/unwind"
	"unspool/unwind/image/fusetest"
)

// TestMachineRecordingBesideAFileThatHangs records a program on a file system whose server does not answer any more,
// and a Python beside it: the Python's samples are complete, nothing is lost, and the recording ends in time.
func TestMachineRecordingBesideAFileThatHangs(t *testing.T) {
	testlane.Machine(t, 0.9)
	python := pythonItself(t)
	for _, mode := range []fusetest.Mode{fusetest.HangOpen, fusetest.HangRead, fusetest.HangClose} {
		t.Run(string(mode), func(t *testing.T) {
			server, path := programOnFUSE(t)
			hung := programs.Start(t, path, 20)
			honest := startLoop(t, python)
			programs.Warm(t, honest.Process.Pid)
			server.Be(t, mode)
			defer server.Be(t, fusetest.Answer) // so that the program can end

			const duration = 1200 * time.Millisecond
			output := filepath.Join(t.TempDir(), "perf.data")
			began := time.Now()
			out, err := Record(context.Background(), Options{
				PIDs: []int{hung.Process.Pid, honest.Process.Pid}, Freq: 999, StackSize: 65528, MaxStack: 2048,
				Duration: duration, Output: output,
			})
			const start = 5 * time.Second // with other tests beside it; else it takes none
			if took := time.Since(began); err != nil || took > duration+start {
				t.Errorf("a recording of %v took %v, %v", duration, took, err)
			}
			of := samplesOf(t, output)
			n := of[uint32(honest.Process.Pid)]
			complete := out.Stats.Ended[unwind.Root]
			if mode == fusetest.HangClose {
				n += of[uint32(hung.Process.Pid)] // which can be read
			}
			if out.Stats.Lost > 0 || n < 20 || complete*100 < n*99 {
				t.Errorf("%d lost, %d of %d stacks complete, %d of the program that hangs; ended %v, in unread files %v",
					out.Stats.Lost, complete, n, of[uint32(hung.Process.Pid)], out.Stats.Ended,
					out.Trouble.Places(unwind.NoImage))
			}
			why := fmt.Sprint(out.Trouble.File(path))
			if mode != fusetest.HangClose && !strings.Contains(why, path+": not read within 30ms") {
				t.Errorf("of the program that hangs it is said: %s; %d samples, ended %v", why,
					of[uint32(hung.Process.Pid)], out.Stats.Ended)
			}
		})
	}
}

// pythonItself is the interpreter: the program of its name may be a script that takes a second to choose one.
func pythonItself(t *testing.T) (path string) {
	t.Helper()
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Skip("skipped for want of python3: ", err)
	}
	return strings.TrimSpace(string(out))
}

// startLoop returns a Python that is in a loop.
func startLoop(t *testing.T, python string) *exec.Cmd {
	t.Helper()
	loop := exec.Command(python, "-c", "print(flush=True)\nwhile True: sorted(range(100))")
	if _, err := startTelling(t, loop).Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return loop
}

// TestConvertEndsWhileAFileHangs interrupts a conversion that waits for a file.
func TestConvertEndsWhileAFileHangs(t *testing.T) {
	if _, err := exec.LookPath("perf"); err != nil {
		t.Skip("skipped for want of perf")
	}
	t.Parallel()
	server, path := programOnFUSE(t)
	dir := t.TempDir()
	input, output := filepath.Join(dir, "perf.data"), filepath.Join(dir, "out")
	record := exec.Command("perf", "record", "-q", "-N", "-e", "page-faults:u", "-c", "1", "--call-graph", "dwarf,8192",
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
			_, err := Convert(ctx, ConvertOptions{
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

// programOnFUSE shows a program on a file system whose server can hang.
func programOnFUSE(t *testing.T) (server *fusetest.Mount, path string) {
	t.Helper()
	program, err := os.ReadFile(programs.Build(t, "plain", "-static"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "program"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	server = fusetest.Show(t, dir)
	return server, filepath.Join(server.Dir, "program")
}

// samplesOf counts the samples of a recording by process.
func samplesOf(t *testing.T, path string) map[uint32]uint64 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	records, r := readRecords(t, data)
	format := perfring.NewFormat(&r.Events()[0].PerfEventAttr)
	of := make(map[uint32]uint64)
	var sample perfring.Sample
	for _, rec := range records {
		if rec.Type() == perfring.RecordSample && format.Sample(rec, &sample) == nil {
			of[sample.PID]++
		}
	}
	return of
}
