package profile

import "hash/maphash"

// index finds the entry with a key in a slice that grows. It needs eight bytes for each entry besides the
// slice; a map would hold the keys as well.
type index[K comparable] struct {
	key   func(i int32) K // of an entry of the slice
	seed  maphash.Seed
	first []int32 // by hash: the newest entry, plus one
	next  []int32 // by entry: the one before with the same hash, plus one
}

// newIndex makes the index of an empty slice that is expected to grow to n entries.
func newIndex[K comparable](n int, key func(i int32) K) *index[K] {
	size := 64
	for size < n {
		size *= 2
	}
	return &index[K]{key: key, seed: maphash.MakeSeed(), first: make([]int32, size), next: make([]int32, 0, n)}
}

// find returns the entry with a key.
func (x *index[K]) find(k K) (int32, bool) {
	for i := x.first[x.slot(k)]; i != 0; i = x.next[i-1] {
		if x.key(i-1) == k {
			return i - 1, true
		}
	}
	return 0, false
}

// add adds the slice's next entry, which has this key.
func (x *index[K]) add(k K) {
	if len(x.next) == len(x.first) {
		x.first = make([]int32, 2*len(x.first))
		for i := range x.next {
			x.link(int32(i), x.key(int32(i)))
		}
	}
	x.next = append(x.next, 0)
	x.link(int32(len(x.next)-1), k)
}

func (x *index[K]) link(i int32, k K) {
	slot := x.slot(k)
	x.next[i], x.first[slot] = x.first[slot], i+1
}

func (x *index[K]) slot(k K) int {
	return int(maphash.Comparable(x.seed, k) & uint64(len(x.first)-1))
}
