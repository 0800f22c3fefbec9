package profile

import "hash/maphash"

// index finds the entry with a key in a slice that grows. A map would hold the keys as well, and look at more
// memory: a look-up is one place in slots, and one entry.
type index[K comparable] struct {
	key   func(i int32) K // of an entry of the slice
	seed  maphash.Seed
	slots []slot // at most three of four are in use; an entry is in the first free one from its hash on
	n     int    // entries
}

// A slot is free if next is 0.
type slot struct {
	hash uint32
	next int32 // the entry after the one that is meant
}

// newIndex makes the index of an empty slice that is expected to grow to n entries.
func newIndex[K comparable](n int, key func(i int32) K) *index[K] {
	size := 64
	for size*3 < n*4 {
		size *= 2
	}
	return &index[K]{key: key, seed: maphash.MakeSeed(), slots: make([]slot, size)}
}

// find returns the entry with a key.
func (x *index[K]) find(k K) (int32, bool) {
	hash := x.hash(k)
	for i := x.place(hash); x.slots[i].next != 0; i = x.place(i + 1) {
		if s := x.slots[i]; s.hash == hash && x.key(s.next-1) == k {
			return s.next - 1, true
		}
	}
	return 0, false
}

// add adds the slice's next entry, which has this key.
func (x *index[K]) add(k K) {
	if 4*(x.n+1) > 3*len(x.slots) {
		old := x.slots
		x.slots = make([]slot, 2*len(old))
		for _, s := range old {
			if s.next != 0 {
				x.put(s)
			}
		}
	}
	x.n++
	x.put(slot{x.hash(k), int32(x.n)})
}

func (x *index[K]) put(s slot) {
	i := x.place(s.hash)
	for x.slots[i].next != 0 {
		i = x.place(i + 1)
	}
	x.slots[i] = s
}

func (x *index[K]) hash(k K) uint32 { return uint32(maphash.Comparable(x.seed, k)) }

// place is the slot of a number.
func (x *index[K]) place(n uint32) uint32 { return n & uint32(len(x.slots)-1) }
