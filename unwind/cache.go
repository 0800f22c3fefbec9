package unwind

// A cache maps file offsets to rules: an open-addressing table of 8-byte
// entries, the offset in the low half and the rule in the high one. An
// entry of zero is empty, as no rule is zero.
type cache struct {
	entries []uint64 // a power of two long
	shift   uint     // 64 - log2(len(entries))
	used    int
}

const (
	cacheSmallest = 1 << 8
	// cacheLargest bounds what one image may cost: 16 MiB. A table that is
	// full at this size starts afresh.
	cacheLargest = 1 << 21
)

// spread is the factor of Knuth's multiplicative hash, 2^64/φ.
const spread = 0x9e3779b97f4a7c15

// slot spreads neighbouring offsets.
func (c *cache) slot(off uint32) uint64 {
	return uint64(off) * spread >> c.shift
}

// table is where peek looks, never empty.
func (c *cache) table() (entries []uint64, shift uint) {
	if len(c.entries) == 0 {
		return noEntries[:], 63
	}
	return c.entries, c.shift
}

var noEntries [1]uint64

// get returns the rule for an offset, or noRule.
func (c *cache) get(off uint32) rule {
	e := c.entries
	if len(e) == 0 {
		return noRule
	}
	mask := uint64(len(e) - 1)
	for i := c.slot(off); ; i++ {
		v := e[i&mask]
		if uint32(v) == off && v>>32 != 0 {
			return rule(v >> 32)
		}
		if v == 0 {
			return noRule
		}
	}
}

// put remembers the rule for an offset that get did not find.
func (c *cache) put(off uint32, r rule) {
	if 2*c.used >= len(c.entries) {
		c.grow()
	}
	c.insert(off, r)
	c.used++
}

func (c *cache) insert(off uint32, r rule) {
	mask := uint64(len(c.entries) - 1)
	i := c.slot(off)
	for c.entries[i&mask] != 0 {
		i++
	}
	c.entries[i&mask] = uint64(r)<<32 | uint64(off)
}

func (c *cache) grow() {
	old := c.entries
	size := max(cacheSmallest, 2*len(old))
	if size > cacheLargest {
		clear(old)
		c.used = 0
		return
	}
	c.entries = make([]uint64, size)
	c.shift = 64
	for n := size; n > 1; n >>= 1 {
		c.shift--
	}
	for _, v := range old {
		if v != 0 {
			c.insert(uint32(v), rule(v>>32))
		}
	}
}
