package capture

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"unspool/perfring"
	testlane "unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/vmas/process"

	"golang.org/x/sys/unix"
)

// isThere reports whether a page of this process is in memory: bit 63 of its entry in /proc/PID/pagemap.
func isThere(t *testing.T, page []byte) bool {
	t.Helper()
	file, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skip(err)
	}
	defer file.Close()
	var entry [8]byte
	at := uintptr(unsafe.Pointer(&page[0])) / uintptr(os.Getpagesize())
	if _, err := file.ReadAt(entry[:], int64(8*at)); err != nil {
		t.Skip(err)
	}
	return binary.LittleEndian.Uint64(entry[:])>>63 != 0
}

// Reading the gap that ends a copy has the next copy go on: its pages are there then, each of them.
func TestGapsAreClosedByReading(t *testing.T) {
	t.Parallel()
	size := os.Getpagesize()
	const below = belowReads * belowSize
	all, err := unix.Mmap(-1, 0, below+3*size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(all) }()
	stack := all[below:]
	stack[0] = 1
	if isThere(t, stack[size:]) {
		t.Fatal("a page is there before it is touched")
	}
	r := newStackReader(process.Direct("/proc"))
	base := uint64(uintptr(unsafe.Pointer(&stack[0])))
	r.noteGap(stackGap{pid: uint32(os.Getpid()), start: base + uint64(size), end: base + 3*uint64(size),
		sp: base}, perfring.Now())
	now := perfring.Now()
	if err := r.watch(now); err != nil {
		t.Fatal(err)
	}
	if !testlane.Soon(func() bool { r.look(); return len(r.under) == 0 }) {
		t.Fatal("the read does not end")
	}
	if !isThere(t, stack[size:]) || !isThere(t, stack[2*size:]) {
		t.Error("the gap is there still")
	}
	for at := 0; at < below; at += size {
		if !isThere(t, all[at:]) {
			t.Fatalf("%d bytes below SP, where deeper functions will leave gaps, a page is not there", below-at)
		}
	}
}

// A gap is read once, and again only much later, as it may be one that no read closes; and there are not
// many.
func TestGapsAreReadOnce(t *testing.T) {
	t.Parallel()
	var g gaps
	here := stackGap{pid: 1, start: 0x1000, end: 0x3000}
	deeper := stackGap{pid: 1, start: 0x1ff8, end: 0x2ff8} // the same page
	count := func() int {
		n := len(g.waiting)
		g.waiting = nil
		return n
	}
	const begin = 10 * gapAgain
	for _, step := range []struct {
		gap  stackGap
		at   uint64
		want int
	}{
		{here, begin, 1},
		{here, begin + 1, 0},
		{deeper, begin + 2, 0},
		{stackGap{pid: 2, start: 0x1000, end: 0x3000}, begin + 3, 1},
		{stackGap{pid: 1, start: 0x2000, end: 0x3000}, begin + 4, 1},
		{here, begin + gapAgain, 1},
	} {
		g.note(step.gap, step.at)
		if n := count(); n != step.want {
			t.Errorf("%+v after %d ns: %d reads, want %d", step.gap, step.at-begin, n, step.want)
		}
	}
	for i := range uint64(3 * maxCutSpaces) {
		g.note(stackGap{pid: 3, start: i << 12, end: i<<12 + 8}, begin)
		if i > 10*maxGaps {
			count()
		}
		if len(g.waiting) > maxGaps || len(g.read) > maxCutSpaces {
			t.Fatalf("%d gaps wait, %d are known", len(g.waiting), len(g.read))
		}
	}
}

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
	o := Faults(Options{Progress: func(st *Stats) {
		// The program goes on until copies are whole.
		if st.Cut[gap] > 0 && st.User > st.Cut[gap]+enoughSamples && !closed.Swap(true) {
			_ = proc.Process.Kill()
		}
	}})
	const most = 100_000 // of samples, a millisecond apart
	out := recordGaps(t, o, func(path string) *programs.Process {
		proc = programs.StartCounted(t, path, most)
		return proc
	})
	t.Logf("%d of %d copies end at a gap", out.Stats.Cut[gap], out.Stats.User)
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
	gaps, all := out.Stats.Cut[gap], out.Stats.User
	testlane.Figure(t, "%d of %d copies end at a gap", gaps, all)
	if gaps == 0 || gaps >= uint64(freq*most/time.Second) || gaps >= all/2 {
		t.Error("gaps are closed late, or by others")
	}
}
