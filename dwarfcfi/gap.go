package dwarfcfi

import "math"

// Gap returns the addresses around pc, from start up to end, that lie between the FDE before
// pc and the one behind it. ok is false when the one before covers pc, or is bad. Without FDEs
// the gap is everything.
func (t *Table) Gap(pc uint64) (start, end uint64, ok bool) {
	start, end = 0, math.MaxUint64
	for _, f := range []*frames{&t.eh, &t.debug} {
		var before FDE
		var behind uint64
		var err error
		if f == &t.eh && t.hdr.count > 0 {
			before, behind, err = t.hdr.around(f, pc)
		} else {
			before, behind, err = f.around(pc)
		}
		if err != nil || before.Covers(pc) {
			return 0, 0, false
		}
		start, end = max(start, before.End), min(end, behind)
	}
	return start, end, start <= pc && pc < end
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

// around is that of [searchTable] by the own index.
func (f *frames) around(pc uint64) (before FDE, behind uint64, err error) {
	x := f.indexed()
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
