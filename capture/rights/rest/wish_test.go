package rest

import "testing"

// TestWish packs wishes into words.
func TestWish(t *testing.T) {
	const sp = 0x7ffd_1234_5678
	for _, c := range []struct{ addr, size, at, room uint64 }{
		{0x7f00_0000_1234, 1, 0x7f00_0000_1000, leastWish},
		{0x7f00_0000_1400, leastWish + 1, 0x7f00_0000_1400, 4 * leastWish},
		{1<<47 - 8, 1 << 40, 1<<47 - 1024, 64 * leastWish},
	} {
		w := wishFor(sp, c.addr, c.size)
		if w.addr() != c.at || w.size() != c.room || !w.isFor(sp) || w.isFor(sp+1<<regionShift) {
			t.Errorf("%+v: %#x of %d bytes", c, w.addr(), w.size())
		}
	}
	if wish(0).isFor(0) {
		t.Error("there is no wish")
	}
}

// TestWishesOfAThread has wishes that grow into one, others beside it, and more than there is room for. They are those
// of one thread and of one stack.
func TestWishesOfAThread(t *testing.T) {
	const sp, heap = 0x7ffd_1234_5678, 0x7f00_0000_0000
	theirs, ours := pair(t, 64<<10)
	for _, c := range []struct {
		addr  uint64
		isNew bool
	}{
		{heap, true},
		{heap + firstWish - 8, false}, // it was to be read, and could not be
		{heap + firstWish, true},
		{heap - 8, true},
		{heap + 1<<30, true},
		{heap + 2<<30, true},
	} {
		if isNew := ours.Wishes(7, sp, c.addr); isNew != c.isNew {
			t.Errorf("%#x: new: %v", c.addr, isNew)
		}
	}
	k := theirs.shape(7)
	if size := k.wishesFor(sp); size != 4*firstWish+2*firstWish {
		t.Errorf("%d bytes: %#x", size, k.wishes)
	}
	if w := k.wishes[0]; w.addr() != heap-1024 {
		t.Errorf("from %#x", w.addr())
	}
	if k = theirs.shape(7); k.wishesFor(sp+1<<regionShift) != 0 {
		t.Error("of another stack")
	}
	if !ours.Wishes(7, sp, heap+3<<30) {
		t.Error("no room for another one")
	}
	ours.Ends(7+uint32(maxThreads), 0)
	if k = theirs.shape(7 + uint32(maxThreads)); k.wishesFor(sp) != 0 {
		t.Error("of another thread")
	}
}
