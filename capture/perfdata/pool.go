package perfdata

import (
	"cmp"

	"golang.org/x/sys/unix"
)

// A block is a piece of the recording.
type block struct {
	data    []byte
	holds   int  // records that somebody wants to keep
	filling bool // a scanner reads into it
}

// blockSize is how much is read at once. 256 KiB is in the second-level cache of most machines
// when it is looked at.
const blockSize = 256 << 10

// A pool has the blocks of a recording. Most are read without anything being kept back, and need one
// block. Those with raw stacks of several CPUs need fifty: such memory comes in huge pages where the
// kernel has them, as 64 page faults cost more than what is read into a block, and does not count as
// the garbage collector's, which would begin to look for garbage where there is none.
type pool struct {
	most   int // how many may be held; 0: maxHeld
	free   []*block
	made   int
	rest   []byte // of the last arena
	arenas [][]byte
}

const (
	maxHeld   = 2 * maxQueue / blockSize
	fromHeap  = 2       // so many blocks
	arenaSize = 2 << 20 // a huge page
)

// take returns a block that nobody holds, for a scanner to read into.
func (p *pool) take() *block {
	b := p.unused()
	b.filling = true
	return b
}

func (p *pool) unused() *block {
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b
	}
	if p.made++; p.made > fromHeap && p.enoughRest() {
		b := &block{data: p.rest[:blockSize:blockSize]}
		p.rest = p.rest[blockSize:]
		return b
	}
	return &block{data: make([]byte, blockSize)}
}

// isCrowded reports whether more blocks are held than may be.
func (p *pool) isCrowded() bool { return p.made-len(p.free) > cmp.Or(p.most, maxHeld) }

// enoughRest maps another arena if the last one is used up. It is false where there is no memory for one.
func (p *pool) enoughRest() bool {
	if len(p.rest) > 0 {
		return true
	}
	arena, err := unix.Mmap(-1, 0, arenaSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
	if err != nil {
		return false
	}
	unix.Madvise(arena, unix.MADV_HUGEPAGE) // fails where the kernel has none
	p.arenas = append(p.arenas, arena)
	p.rest = arena
	return true
}

// release gives the memory of all blocks back: nobody holds any more.
func (p *pool) release() {
	for _, arena := range p.arenas {
		unix.Munmap(arena)
	}
	*p = pool{}
}
