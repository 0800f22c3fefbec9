package unwind

import (
	"unsafe"
	"unspool/unwind/rule"
)

// What measurements need to know of a walk and of what it leaves behind.

// SavedBP gives the address that the BP of frame i was loaded from. ok is false where it was not
// loaded, and in frames that were not found by a fast rule.
func (r *Result) SavedBP(i int) (addr uint64, ok bool) {
	if i == 0 {
		return 0, false
	}
	slot := r.Frames[i-1].saved
	if slot == 0 || slot == noSlot {
		return 0, false
	}
	return r.Frames[i].SP - uint64(slot), true
}

// Rules returns how many rules the images hold, one for each PC that was looked up, and how many
// bytes of memory these take.
func (s *Images) Rules() (n, size int) {
	add := func(im *Image) {
		n += im.rules.Len()
		size += im.rules.Size() + int(unsafe.Sizeof(rule.WideRule{}))*cap(im.wide)
	}
	for _, im := range s.byID {
		add(im)
	}
	for _, im := range s.byInode {
		add(im)
	}
	return n, size
}
