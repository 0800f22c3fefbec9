package live

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unspool/capture/perfdata"
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
			server, path := fusetest.Program(t)
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
	if _, err := programs.Telling(t, loop).Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return loop
}

// samplesOf counts the samples of a recording by process.
func samplesOf(t *testing.T, path string) map[uint32]uint64 {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	of := make(map[uint32]uint64)
	var sample perfring.Sample
	if err := r.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
		if rec.Type() == perfring.RecordSample && f.Sample(rec, &sample) == nil {
			of[sample.PID]++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return of
}
