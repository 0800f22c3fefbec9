package rest

import (
	"math/bits"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Shared is memory that two processes share: positions, what is known of threads, and stacks in order of
// time. Each process takes what the other one may have written for what anybody may have: it checks it.
//
//	page      positions
//	8 pages   what is known of threads, by the remainder of the TID
//	the rest  stacks, each with its head
type Shared struct {
	memory  []byte
	words   *[pageWords]atomic.Uint64 // of the first page
	threads *[maxThreads]thread
	stacks  []byte
	size    uint64 // of stacks, a power of two
}

const (
	page       = 4096
	pageWords  = page / 8
	maxThreads = 8 * page / int(unsafe.Sizeof(thread{}))
	stacksAt   = 9 * page

	// MostSize is how many bytes there are for stacks at most. Only those that are used take memory.
	MostSize = 32 << 20
	// ahead is how many of them are made before they are used, for all CPUs together, and mostAhead for one: to
	// use some pages for the first time takes longer than to read a stack.
	ahead     = 32 << 20
	mostAhead = 2 << 20

	// Words of the first page, each in a cache line of its own.
	written = 0  // the position behind the last stack; whoever reads writes it
	taken   = 8  // that of the first one that is still needed; whoever walks writes it
	begun   = 32 // when the read that is under way has begun, 0 if there is none
	// Where all stacks before a position have been taken, the next one is put at the beginning of the memory:
	// whoever reads says so by these, from which position and to which one. A word of 0 is no position.
	from = 24
	to   = 25
	// A [GrowthOffsets], the one that was told last; whoever walks writes it.
	lastGrowth = 40
)

// NewShared makes such memory with so many bytes for stacks, a power of two. The descriptor is for the other
// process.
func NewShared(size int) (s *Shared, fd int, err error) {
	if size < page || size > MostSize || size&(size-1) != 0 {
		return nil, -1, unix.EINVAL
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate("stacks", flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate("stacks", flags)
	}
	if err != nil {
		return nil, -1, err
	}
	err = unix.Ftruncate(fd, int64(stacksAt+size))
	if err == nil {
		// If it became smaller, reading it would end the process.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		s, err = OpenShared(fd)
	}
	if err != nil {
		unix.Close(fd)
		return nil, -1, err
	}
	return s, fd, nil
}

// mostForAll is how many bytes there are for stacks for all CPUs together, unless rings are larger.
const mostForAll = 256 << 20

// SizeFor is how many bytes there are for what is read, for a ring of so many pages, on a machine of CPUs. How much is
// read of a stack does not depend on how much of it is copied, so small rings are no reason for fewer.
func SizeFor(pages, cpus int) int {
	share := 1 << (bits.Len(uint(mostForAll/max(cpus, 1))) - 1)
	return min(max(2*pages*os.Getpagesize(), share), MostSize)
}

// OpenShared maps what another process has made, whose size cannot change. The descriptor is not needed any more
// afterwards.
func OpenShared(fd int) (*Shared, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	size := int(st.Size) - stacksAt
	if size < page || size > MostSize || size&(size-1) != 0 {
		return nil, unix.EINVAL
	}
	memory, err := unix.Mmap(fd, 0, stacksAt+size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return &Shared{
		memory:  memory,
		words:   (*[pageWords]atomic.Uint64)(unsafe.Pointer(&memory[0])),
		threads: (*[maxThreads]thread)(unsafe.Pointer(&memory[page])),
		stacks:  memory[stacksAt:],
		size:    uint64(size),
	}, nil
}

// Close unmaps it.
func (s *Shared) Close() error { return unix.Munmap(s.memory) }

// A head is ahead of each stack.
type head struct {
	size  uint64 // bytes behind the copy that were read, and wraps if the next head is where the memory begins
	tid   uint64
	time  uint64 // of the sample
	start uint64 // address of the first byte: where the copy ends
	above uint64 // address of what was read beyond a large frame
	more  uint64 // bytes of that
	// If Go's runtime was to make the stack of a goroutine larger, this is SP in its morestack, g is the
	// goroutine's, and above is its stack.
	morestack, g uint64
	// What was read for the thread's wishes, one after the other.
	wished [maxWishes]struct{ addr, size uint64 }
	_      [2]uint64 // so that its size is a power of two
}

// data is how many bytes follow the head.
func (h *head) data() (n uint64) {
	n = h.size + h.more
	for i := range h.wished {
		n += h.wished[i].size
	}
	return n
}

const (
	headSize = uint64(unsafe.Sizeof(head{}))
	wraps    = ^uint64(0)
)

// headAt is the head at a position. There is room for it, as positions are multiples of its size.
func (s *Shared) headAt(pos uint64) *head { return (*head)(unsafe.Pointer(&s.stacks[pos&(s.size-1)])) }

// span is how many bytes a stack takes with its head.
func span(size uint64) uint64 { return headSize + (size+headSize-1)/headSize*headSize }

// populate makes memory that will be used soon.
func (s *Shared) populate() {
	size := min(len(s.memory), mostAhead, ahead/runtime.NumCPU())
	_ = unix.Madvise(s.memory[:size&^(page-1)], unix.MADV_POPULATE_WRITE) // since Linux 5.14
}

// room returns memory for a stack of at most so many bytes at the next position, nil if there is none now.
func (s *Shared) room(size uint64) (memory []byte) {
	at, tail := s.words[written].Load(), s.words[taken].Load()
	if tail == s.words[from].Load() {
		tail = max(tail, s.words[to].Load())
	}
	if at%headSize != 0 || at-tail > s.size || span(size) > s.size {
		return nil
	}
	used := at & (s.size - 1)
	if at == tail && used > 0 { // what was used lately is in the caches
		at += s.size - used
		s.words[to].Store(at)
		s.words[from].Store(tail)
		s.words[written].Store(at)
		tail, used = at, 0
	}
	free := s.size - (at - tail)
	if left := s.size - used; left < span(size) { // it does not fit in ahead of the end
		if free < left+span(size) {
			return nil
		}
		s.headAt(at).size = wraps
		at += left
		s.words[written].Store(at)
	} else if free < span(size) {
		return nil
	}
	from := at&(s.size-1) + headSize
	return s.stacks[from : from+size : from+size]
}

// jump is where the next stack is, if not at a position; all stacks are ahead of end.
func (s *Shared) jump(pos, end uint64) (next uint64, ok bool) {
	next = s.words[to].Load()
	return next, pos == s.words[from].Load() && pos < next && next <= end && next%headSize == 0
}

// put gives the stack that was read into the room that there was to whoever walks.
func (s *Shared) put(h head) {
	at := s.words[written].Load()
	*s.headAt(at) = h
	s.words[written].Store(at + span(h.data()))
}

// A thread is what is known of the stack of one, for the next time that it is read. The words are written one
// after the other: one that does not belong to the others has something else read, which is of no use then.
type thread struct {
	stack atomic.Uint64 // a depth
	// In the stack is a large frame, which is not read, from its SP, large, to near its end, above. They are 0
	// where none is known.
	large, above atomic.Uint64
	// If it runs Go, this is a [GrowthOffsets]; otherwise it is 0.
	growth sharedGrowth
	wishes [maxWishes]atomic.Uint64 // each a wish
}

// A depth is, in one word, a TID, and where the thread's outermost frame is.
type depth uint64

const (
	depthKnown = depth(1) << 63 // there is one
	tidBits    = 22             // PID_MAX_LIMIT
	endShift   = 10             // the end is rounded up to 1 KiB
	endBits    = 47 - endShift
)

// depthOf is that of a thread whose stack ends there, 0 if it is not known where.
func depthOf(tid uint32, end uint64) depth {
	end = (end + 1<<endShift - 1) >> endShift
	if end >= 1<<endBits {
		end = 0
	}
	return depthKnown | depth(tid&(1<<tidBits-1))<<endBits | depth(end)
}

// isOf reports whether it is that of a thread.
func (d depth) isOf(tid uint32) bool {
	return d&depthKnown != 0 && uint32(d>>endBits)&(1<<tidBits-1) == tid
}

// end is where the stack ends, 0 if that is not known.
func (d depth) end() uint64 { return uint64(d&(1<<endBits-1)) << endShift }

// thread is what is known of a thread. isKnown reports whether that is anything.
func (s *Shared) thread(tid uint32) (t *thread, isKnown bool) {
	t = &s.threads[tid%uint32(maxThreads)]
	return t, depth(t.stack.Load()).isOf(tid)
}
