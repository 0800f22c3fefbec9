package rest

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/perfring"
)

// A still is a kernel on which one thread stands still. Its stack has zeros but for one byte.
type still struct {
	now     uint64
	touched uint64 // address of a byte that is not 0
}

func (k *still) Now() uint64                              { return k.now }
func (k *still) OpenMemory(uint32) (ProcessMemory, error) { return k, nil }
func (k *still) OpenSchedstat(uint32) (Schedstat, error)  { return ranOnce{}, nil }
func (k *still) Policy(uint32) (policy uint32, err error) { return unix.SCHED_NORMAL, nil }
func (k *still) MappingEnd(addr uint64) (end uint64)      { return addr + 1<<20 }
func (k *still) IsOver() bool                             { return false }
func (k *still) Close()                                   {}

func (k *still) Read(buf []byte, addr uint64) (read int) {
	clear(buf)
	if at := k.touched - addr; at < uint64(len(buf)) {
		buf[at] = 1
	}
	return len(buf)
}

type ranOnce struct{}

func (ranOnce) Read(text []byte) (n int, ok bool) { return copy(text, "1000 0 1\n"), true }
func (ranOnce) Close()                            {}

// TestShortCopies reads the rest of stacks whose copies end at a page that was not there. What is empty or short shows
// nothing of whether the thread has got on. But if it has, something was written to that page.
func TestShortCopies(t *testing.T) {
	const sp, page, tid = 7, 0x7ffd_1234_5000, 77
	for _, c := range []struct {
		base, copied uint64
		touched      uint64
		isRead       bool
	}{
		{page + 64, 0, 0, true},
		{page + 64, 0, page + 56, false},
		{page + 64, 0, page + 4088, false},
		{page + 64, 0, page + 4096, true},
		{page - 8, 8, page - 16, true},
		{page - 8, 8, page + 8, false},
		{page - least, least, page + 8, true},
	} {
		theirs, ours := pair(t, 1<<20)
		ours.Ends(tid, page+64<<10)
		s := &perfring.Sample{PID: tid, TID: tid, Time: 1000, RegsABI: unix.PERF_SAMPLE_REGS_ABI_64, RegsMask: 1 << sp,
			Regs: binary.LittleEndian.AppendUint64(nil, c.base), Stack: make([]byte, c.copied), StackSize: 8192,
			DynSize: c.copied}
		NewReader(&still{now: 2000, touched: c.touched}, theirs).Read(s)
		if got := len(ours.Find(tid, s.Time, c.base+c.copied).Memory) > 0; got != c.isRead {
			t.Errorf("%d bytes were copied at %#x, and one was written at %#x; the rest is read: %v", c.copied, c.base,
				c.touched, got)
		}
	}
}
