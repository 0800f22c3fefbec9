package session

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"unspool/capture/rights/opener"
	"unspool/capture/session/sessiontest"
	"unspool/perfring"
	testlane "unspool/testdata/lane"
	"unspool/unwind/image/fusetest"
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
	g := newGaps(process.Direct("/proc"))
	base := uint64(uintptr(unsafe.Pointer(&stack[0])))
	g.note(stackGap{pid: uint32(os.Getpid()), start: base + uint64(size), end: base + 3*uint64(size),
		sp: base}, perfring.Now())
	if !g.isNew {
		t.Error("not new")
	}
	testlane.Eventually(t, "the end of the reads", g.isClosed)
	if !isThere(t, stack[size:]) || !isThere(t, stack[2*size:]) {
		t.Error("the gap is there still")
	}
	for at := 0; at < below; at += size {
		if !isThere(t, all[at:]) {
			t.Fatalf("%d bytes below SP, where deeper functions will leave gaps, a page is not there", below-at)
		}
	}
}

// isClosed reports whether no gap waits to be closed.
func (g *gaps) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.busy
}

// Gaps are closed while the memory of another process is locked.
func TestGapsBesideLockedMemory(t *testing.T) {
	t.Parallel()
	hanging, page, _ := fusetest.Lock(t)
	stack := mapped(t, 3*512)
	base := uint64(uintptr(unsafe.Pointer(&stack[0])))
	client, err := opener.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s := New(Config{Format: new(perfring.SampleFormat), Sink: sessiontest.Discard{}, Processes: client, Live: true,
		Join: true})
	s.completer.gaps.note(stackGap{pid: hanging, start: page, end: page + 8, sp: page}, perfring.Now())
	own := stackGap{pid: uint32(os.Getpid()), start: base, end: base + 8*uint64(len(stack)), sp: base}
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&stack[0])), 8*len(stack))
	now := perfring.Now()
	testlane.Eventually(t, "the gap to be closed", func() bool {
		s.completer.gaps.note(own, now) // again, as on a busy machine a read of this process may be given up, too
		now += gapAgain
		return isThere(t, memory) && isThere(t, memory[os.Getpagesize():])
	})
}

// A gap is read once, and again only much later, as it may be one that no read closes; and there are not
// many.
func TestGapsAreReadOnce(t *testing.T) {
	t.Parallel()
	memory := &noted{}
	g := newGaps(memory)
	here := stackGap{pid: 1, start: 0x1000, end: 0x3000}
	deeper := stackGap{pid: 1, start: 0x1ff8, end: 0x2ff8} // the same page
	count := func() int {
		testlane.Eventually(t, "the end of the reads", g.isClosed)
		n := memory.reads
		memory.reads = 0
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
	const tries = 3 * maxCutSpaces
	for i := range uint64(tries) { // as fast as there is room for
		g.note(stackGap{pid: 3, start: i << 12, end: i<<12 + 8}, 2*begin+i*gapShare*uint64(priceOfGap))
		if len(g.read) > maxCutSpaces {
			t.Fatalf("%d gaps are known", len(g.read))
		}
	}
	count()
	for i := range uint64(tries) { // all at once
		g.note(stackGap{pid: 4, start: i << 12, end: i<<12 + 8}, 1000*begin)
	}
	if n, most := count(), int(mostGapTime/priceOfGap)+1; n > most {
		t.Errorf("%d gaps of one moment are closed, want %d at most", n, most)
	}
}

// noted counts reads.
type noted struct {
	process.Access
	reads int
}

func (n *noted) ReadMemory(uint32, []byte, uint64) int {
	n.reads++
	return 0
}

// mapped returns zeros that are read by their address: a variable may be on the stack of its goroutine, which moves.
func mapped(t *testing.T, words int) []uint64 {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, 8*words, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(memory); err != nil {
			t.Error(err)
		}
	})
	return unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), words)
}
