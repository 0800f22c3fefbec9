package rule

import "unsafe"

// Ranges remembers from where to where a rule holds, so that it is not looked for again at each new PC of a
// row that is known. It forgets: each block of offsets has room for a few ranges, and there is room for so
// many blocks. Its zero value is empty.
type Ranges struct {
	blocks []block // the length is a power of two; each has one place
	used   int
}

// A block has the ranges that were put last for 1 KiB of offsets, the latest first. It fills a cache line.
type block struct {
	number uint32 // of the block, from 1 on; 0: there is none
	ranges [5]ruleRange
}

// A ruleRange is the offsets of a rule; to is exclusive.
type ruleRange struct {
	from, to uint32
	rule     Rule
}

const (
	blockShift   = 10
	fewestBlocks = 1 << 4
	mostBlocks   = 1 << 12 // 256 KiB
)

// place is the one for a block, which another block may have.
func (r *Ranges) place(number uint32) *block {
	return &r.blocks[uint64(number)*Spread>>32&uint64(len(r.blocks)-1)]
}

// Get returns the rule for an offset, or None.
func (r *Ranges) Get(off uint32) Rule {
	if len(r.blocks) == 0 {
		return None
	}
	number := off>>blockShift + 1
	b := r.place(number)
	if b.number != number {
		return None
	}
	for i := range b.ranges {
		if g := &b.ranges[i]; g.from <= off && off < g.to {
			return g.rule
		}
	}
	return None
}

// Put remembers that a rule holds from one offset to another, which is exclusive, for the block of off, which
// lies between them.
func (r *Ranges) Put(off, from, to uint32, rule Rule) {
	number := off>>blockShift + 1
	if 2*r.used >= len(r.blocks) && len(r.blocks) < mostBlocks {
		r.grow()
	}
	b := r.place(number)
	if b.number != number {
		if b.number == 0 {
			r.used++
		}
		*b = block{number: number}
	}
	copy(b.ranges[1:], b.ranges[:])
	b.ranges[0] = ruleRange{from, to, rule}
}

func (r *Ranges) grow() {
	old := r.blocks
	r.blocks, r.used = make([]block, max(fewestBlocks, 2*len(old))), 0
	for i := range old {
		if old[i].number != 0 {
			b := r.place(old[i].number)
			if b.number == 0 {
				r.used++
			}
			*b = old[i]
		}
	}
}

// Size returns how many bytes of memory they take.
func (r *Ranges) Size() int { return int(unsafe.Sizeof(block{})) * len(r.blocks) }
