package dwarfcfi

import "math"

// Gap returns the range of addresses around pc, from start up to end, that lies between the FDE
// before pc and the FDE behind it. ok is false if the FDE before covers pc, or is bad. Without FDEs
// the gap is the whole address space.
func (t *Table) Gap(pc uint64) (start, end uint64, ok bool) {
	start, end = 0, math.MaxUint64
	for _, f := range []*frames{&t.eh, &t.debug} {
		before, behind, err := t.around(f, pc)
		if err != nil || before.Covers(pc) {
			return 0, 0, false
		}
		start, end = max(start, before.End), min(end, behind)
	}
	return start, end, start <= pc && pc < end
}

// around returns what is around pc in a section: see [searchTable.around].
func (t *Table) around(f *frames, pc uint64) (before FDE, behind uint64, err error) {
	if f == &t.eh && t.hdr.count > 0 {
		return t.hdr.around(f, pc)
	}
	return f.around(pc)
}

// around returns the FDE that starts at or before pc, an empty one if none does, and the
// start of the next one.
func (s *searchTable) around(f *frames, pc uint64) (before FDE, behind uint64, err error) {
	i := s.search(pc)
	behind = math.MaxUint64
	if i < s.count {
		behind, _ = s.pair(i)
	}
	if i == 0 {
		return before, behind, nil
	}
	_, addr := s.pair(i - 1)
	before, err = f.fde(addr - f.Addr)
	return before, behind, err
}

// around does what [searchTable.around] does, with the index that is built here.
func (f *frames) around(pc uint64) (before FDE, behind uint64, err error) {
	x, err := f.indexed()
	if err != nil {
		return before, behind, err
	}
	i := x.search(pc)
	behind = math.MaxUint64
	if i < x.len() {
		behind = x.start(i)
	}
	if i == 0 {
		return before, behind, nil
	}
	before, err = f.fde(x.offset(i - 1))
	return before, behind, err
}
