package rule

// A Cache maps file offsets to rules: an open-addressing table of 8-byte
// entries, the offset in the low half and the rule in the high one. An
// entry of zero is empty, as no rule is zero. Its zero value is an empty cache.
type Cache struct {
	entries []uint64 // the length is a power of two
	shift   uint     // 64 - log2(len(entries))
	used    int
}

const (
	cacheSmallest = 1 << 8
	// cacheLargest bounds the memory for one image: 16 MiB. A table that is full
	// at this size is emptied.
	cacheLargest = 1 << 21
)

// Spread is the factor of Knuth's multiplicative hash, 2^64/φ.
const Spread = 0x9e3779b97f4a7c15

// Len returns how many rules there are.
func (c *Cache) Len() int { return c.used }

// Size returns how many bytes of memory they take.
func (c *Cache) Size() int { return 8 * len(c.entries) }

// slot is the first place for an offset; it is far apart for neighbouring offsets.
func (c *Cache) slot(off uint32) uint64 {
	return uint64(off) * Spread >> c.shift
}

// Table returns the entries, at least one, so that a caller can read the first place for an offset without
// a call: entries[off*Spread>>(shift&63)]. They belong to the cache, and are valid until the next
// [Cache.Put].
func (c *Cache) Table() (entries []uint64, shift uint) {
	if len(c.entries) == 0 {
		return noEntries[:], 63
	}
	return c.entries, c.shift
}

// noEntries is the table of an empty cache.
var noEntries [1]uint64

// Get returns the rule for an offset, or None.
func (c *Cache) Get(off uint32) Rule {
	e := c.entries
	if len(e) == 0 {
		return None
	}
	mask := uint64(len(e) - 1)
	for i := c.slot(off); ; i++ {
		v := e[i&mask]
		if uint32(v) == off && v>>32 != 0 {
			return Rule(v >> 32)
		}
		if v == 0 {
			return None
		}
	}
}

// Put remembers the rule for an offset that [Cache.Get] did not find.
func (c *Cache) Put(off uint32, r Rule) {
	if 2*c.used >= len(c.entries) {
		c.grow()
	}
	c.insert(off, r)
	c.used++
}

func (c *Cache) insert(off uint32, r Rule) {
	mask := uint64(len(c.entries) - 1)
	i := c.slot(off)
	for c.entries[i&mask] != 0 {
		i++
	}
	c.entries[i&mask] = uint64(r)<<32 | uint64(off)
}

func (c *Cache) grow() {
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
			c.insert(uint32(v), Rule(v>>32))
		}
	}
}
