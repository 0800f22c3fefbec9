package perfdata

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/perfring"
	"unspool/testdata/lane"

	"golang.org/x/sys/unix"
)

// The sample_type of the records that sample makes.
const sampleType = unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID |
	unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_PERIOD | unix.PERF_SAMPLE_CALLCHAIN

// liveEvent is a software event with the attributes of a recording with stacks.
func liveEvent(name string, config uint64, ids ...uint64) perfring.Attr {
	return perfring.Attr{Name: name, IDs: ids, PerfEventAttr: unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER5, Config: config, Sample: 999,
		Sample_type:      sampleType | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user: 0xff0fff, Sample_stack_user: 32768, Clockid: unix.CLOCK_MONOTONIC,
		Bits: unix.PerfBitFreq | unix.PerfBitSampleIDAll | unix.PerfBitExcludeCallchainUser |
			unix.PerfBitUseClockID | unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm |
			unix.PerfBitCommExec | unix.PerfBitTask,
	}}
}

// twoEvents have IDs on two CPUs each.
func twoEvents() []perfring.Attr {
	return []perfring.Attr{liveEvent("cpu-clock", 0, 11, 12), liveEvent("task-clock:u", 1, 13, 14)}
}

// sample makes a PERF_RECORD_SAMPLE of sampleType in user code.
func sample(id, time uint64, pid uint32, chain ...uint64) []byte {
	b := appendHeader(nil, perfring.RecordSample, miscUser, recordHeader+8*8+8*len(chain))
	fields := []uint64{id, chain[0], uint64(pid) | uint64(pid)<<32, time, 0, 1001001,
		uint64(len(chain) + 1), perfring.ContextUser}
	for _, x := range append(fields, chain...) {
		b = le.AppendUint64(b, x)
	}
	return b
}

// process makes the records that introduce a process that maps a file.
func process(t testing.TB, f *perfring.SampleFormat, id, time uint64, pid uint32, comm, path string) [][]byte {
	t.Helper()
	trailer := &perfring.SampleID{PID: pid, TID: pid, Time: time, ID: id}
	c, err := perfring.AppendComm(nil, f, &perfring.Comm{PID: pid, TID: pid, Comm: []byte(comm), Exec: true},
		trailer)
	if err != nil {
		t.Fatal(err)
	}
	m, err := perfring.AppendMmap2(nil, f, &perfring.Mmap2{PID: pid, TID: pid, Misc: miscUser, Addr: 0x400000,
		Len:  0x100000,
		Prot: unix.PROT_READ | unix.PROT_EXEC, Flags: unix.MAP_PRIVATE, Path: []byte(path)}, trailer)
	if err != nil {
		t.Fatal(err)
	}
	return [][]byte{c, m}
}

// recording makes the records that tests write: one process, and rounds of samples of the events by turns.
func recording(t testing.TB, events []perfring.Attr, rounds, perRound int) (records [][][]byte) {
	t.Helper()
	f := perfring.NewFormat(&events[0].PerfEventAttr)
	f = f.Unwound()
	time := uint64(1_000_000_000)
	for n := range rounds {
		var round [][]byte
		if n == 0 {
			kernel, _, err := KernelRecords(&f)
			if err != nil {
				t.Log(err)
			}
			round = append(kernel, process(t, &f, events[0].IDs[0], time-1000, 77, "hello", "/opt/app/hello")...)
		}
		for i := range perRound {
			ids := events[i%len(events)].IDs
			round = append(round, sample(ids[i/2%len(ids)], time, 77, 0x401000+uint64(i%7), 0x402000, 0x403000))
			time += 1_000_000
		}
		records = append(records, round)
	}
	return records
}

// write writes a recording; after is called behind each round.
func write(t testing.TB, o Options, records [][][]byte, after func(w *Writer, round int)) *Writer {
	t.Helper()
	w, err := Create(o)
	if err != nil {
		t.Fatal(err)
	}
	for i, round := range records {
		for _, rec := range round {
			if err := w.Write(rec); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Round(); err != nil {
			t.Fatal(err)
		}
		if after != nil {
			after(w, i)
		}
	}
	return w
}

func closeWriter(t testing.TB, w *Writer) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// readAll reads a recording to its end or to its damage.
func readAll(r *Reader) (records [][]byte, err error) {
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		if rec.Type() != perfring.RecordFinishedRound {
			records = append(records, bytes.Clone(rec))
		}
	}
}

func openFile(t testing.TB, path string) *Reader {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// perf runs perf, which must not print errors, and returns its output.
func perf(t testing.TB, stdin []byte, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("perf"); err != nil {
		t.Skip("perf is not installed")
	}
	cmd := lane.UserPerf(args...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	// perf 7.2 warns of recordings that were not finished, whose features are not there yet.
	text := strings.ReplaceAll(stderr.String(), "WARNING: perf.data is missing HEADER_NRCPUS", "")
	if text = strings.ToLower(text); err != nil || strings.Contains(text, "fail") ||
		strings.Contains(text, "warning") {
		t.Errorf("perf %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// recordWithPerf lets perf record the page faults of a shell, and returns the recording. With "-"
// among the arguments it goes through a pipe.
func recordWithPerf(t testing.TB, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("perf"); err != nil {
		t.Skip("perf is not installed")
	}
	path := filepath.Join(t.TempDir(), "perf.data")
	out := path
	if i := slices.Index(args, "-"); i >= 0 {
		args = slices.Delete(slices.Clone(args), i, i+1)
		out = "-"
	}
	if !slices.Contains(args, "-c") {
		each := "1"
		if slices.Contains(args, "--call-graph") {
			each = "7" // so that the rings have room for the stacks
		}
		args = append([]string{"-c", each}, args...)
	}
	if !slices.Contains(args, "-e") {
		args = append([]string{"-e", "page-faults"}, args...)
	}
	const busy = `i=0; while [ $i -lt 100 ]; do i=$((i+1)); done
	(i=0; while [ $i -lt 100 ]; do i=$((i+1)); done; true)
	ls / >/dev/null`
	args = append(append([]string{"record", "--no-bpf-event"}, args...), "-o", out, "--", "sh", "-c", busy)
	cmd := exec.Command("perf", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Skipf("perf %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	if out == "-" {
		if err := os.WriteFile(path, stdout.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}
