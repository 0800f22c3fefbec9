package capture

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"unspool/perfring"
	"unspool/vmas/process"

	"golang.org/x/sys/unix"
)

// isThere says whether a page of this process is in memory: bit 63 of its entry in /proc/PID/pagemap.
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
	for tries := 0; len(r.under) > 0; tries++ {
		if r.look(); tries == 5000 {
			t.Fatal("the read does not end")
		}
		unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil)
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

// gapProgram spins below pages of its stack that nobody has touched.
const gapProgram = `
#include <unistd.h>

__attribute__((noipa)) static void spin(char *p)
{
	if (write(1, "", 1) < 1)
		return;
	for (;;)
		__asm__ volatile("" : : "r"(p));
}

int main(void)
{
	spin(__builtin_alloca(24 << 10));
	return 0;
}
`

// Gaps of threads that run already are closed soon after a recording has begun, not at the first drain of
// those that come every so often.
func TestGapsAreClosedSoon(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	program := compiled(t, gapProgram, "-O2")
	const freq, most = 999, wakeEvery * 3 / 4
	// A busy machine is late, and who records all processes at the same time may have closed the gaps before.
	for late, tries := 0, 1; ; tries++ {
		cmd := exec.Command(program)
		output := startTelling(t, cmd)
		if _, err := output.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		out, err := Record(t.Context(), Options{
			PIDs: []int{cmd.Process.Pid}, Freq: freq, StackSize: 32 << 10, MaxStack: 256,
			Duration: 400 * time.Millisecond, Output: filepath.Join(t.TempDir(), "perf.data"),
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = cmd.Process.Kill() // the next one has no CPU to share
		gaps, all := out.Stats.Cut[gap], out.Stats.User
		t.Logf("%d of %d copies end at a gap", gaps, all)
		if gaps > 0 && gaps < uint64(freq*most/time.Second) && gaps < all/2 {
			return
		}
		if gaps > 0 {
			late++
		}
		if late == 5 || tries == 30 {
			t.Fatal("gaps are closed late, or by others")
		}
	}
}
