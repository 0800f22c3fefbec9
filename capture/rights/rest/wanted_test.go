package rest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWanted has what is read of stacks of all shapes, behind a copy that ends at an address.
func TestWanted(t *testing.T) {
	const kib, end = 1 << 10, 0x7000_0000
	for _, c := range []struct {
		name      string
		known     shape
		memoryEnd uint64
		want      wanted
	}{
		{"nothing is known", shape{}, 0, wanted{behind: firstRest}},
		{"the memory ends soon", shape{}, end + 200*kib, wanted{behind: 200 * kib}},
		{
			"the memory ends late", shape{}, end + 1700*kib,
			wanted{firstRest, end + 1700*kib - nearRoot, nearRoot},
		},
		{"all is read up to the end of the memory", shape{}, end + 700*kib, wanted{behind: 700 * kib}},
		{"all of it is read", shape{end: end + 900*kib, large: end + 100*kib, above: end + 700*kib}, 0,
			wanted{behind: 900*kib + aboveRoot}},
		{"the root is near", shape{end: end + 16*kib}, 0, wanted{behind: 16*kib + aboveRoot}},
		{
			"the root is far", shape{end: end + 1800*kib}, 0,
			wanted{mostRead, end + 1800*kib + aboveRoot - nearRoot, nearRoot},
		},
		{
			"a large frame near the root", shape{end: end + 1600*kib, large: end + 20*kib, above: end + 1590*kib}, 0,
			wanted{leastBehind, end + 1600*kib + aboveRoot - nearRoot, nearRoot},
		},
		{
			"a large frame far below", shape{end: end + 1900*kib, large: end + 100*kib, above: end + 1700*kib}, 0,
			wanted{100 * kib, end + 1700*kib, 200*kib + aboveRoot},
		},
		{
			"it begins in the copy", shape{end: end + 1900*kib, large: end - 10*kib, above: end + 30*kib}, 0,
			wanted{30 * kib, end + 30*kib, mostRead},
		},
		{
			"the root is not known", shape{large: end + 80*kib, above: end + 700*kib}, 0,
			wanted{80 * kib, end + 700*kib, firstRest},
		},
		{
			"the large frame has been left", shape{end: end + 1900*kib, large: end - 80*kib, above: end - 10*kib}, 0,
			wanted{mostRead, end + 1900*kib + aboveRoot - nearRoot, nearRoot},
		},
		{
			"the memory ends below the large frame",
			shape{large: end + 80*kib, above: end + 1700*kib}, end + 1500*kib,
			wanted{firstRest, end + 1500*kib - nearRoot, nearRoot},
		},
		{"the memory has ended", shape{}, end - 8, wanted{}},
	} {
		if got := c.known.wanted(end, c.memoryEnd); got != c.want {
			t.Errorf("%s: %d KiB, %d KiB from %+d KiB, want %d KiB, %d KiB from %+d KiB", c.name,
				got.behind/kib, got.more/kib, int64(got.above-end)/kib,
				c.want.behind/kib, c.want.more/kib, int64(c.want.above-end)/kib)
		}
	}
}

// TestMemoryEnd asks where mappings of this process end.
func TestMemoryEnd(t *testing.T) {
	page := uint64(os.Getpagesize())
	const none = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	mapped, err := unix.MmapPtr(-1, 0, nil, uintptr(8*page), unix.PROT_NONE, none)
	if err != nil {
		t.Fatal(err)
	}
	at := uint64(uintptr(mapped))
	defer func() { _ = unix.MunmapPtr(mapped, uintptr(8*page)) }()
	const access = unix.PROT_READ | unix.PROT_WRITE
	if _, err := unix.MmapPtr(-1, 0, mapped, uintptr(4*page), access, none|unix.MAP_FIXED); err != nil {
		t.Fatal(err)
	}
	memory := own(t)
	// Memory that may not be read has no end.
	for addr, want := range map[uint64]uint64{at + page: at + 4*page, at + 4*page: 0, 0: 0, 1 << 63: 0} {
		if got := memoryEnd(memory, addr); got != want {
			t.Errorf("%#x for %#x of a mapping from %#x to %#x", got, addr, at, at+4*page)
		}
	}
}
