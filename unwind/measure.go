package unwind

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
