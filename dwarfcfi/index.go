package dwarfcfi

import (
	"cmp"
	"math"
	"slices"
)

// index finds FDEs by address in a section that has no search table. Start addresses are kept
// relative to the lowest one: nearly every image spans less than 4 GiB, and then an FDE costs
// 8 bytes.
type index struct {
	base uint64
	near []near
	far  []far // instead of near, for an image that spans more
	// err is returned for an address that no FDE covers: ErrNoFDE, or the error of the first
	// bad entry if there was one, since that entry may have covered the address.
	err error
}

type near struct{ start, offset uint32 }

type far struct {
	start  uint64
	offset uint32
}

// find finds the FDE that covers pc through the index.
func (f *frames) find(pc uint64) (FDE, error) {
	x, err := f.indexed()
	if err != nil {
		return FDE{}, err
	}
	i := x.search(pc)
	from, upTo := uint64(0), uint64(math.MaxUint64)
	if i < x.len() {
		upTo = x.start(i)
	}
	// Several FDEs may have the same start: where the linker dropped a copy of an inline
	// function, its FDE stays in .debug_frame with start 0 or with the start of the copy kept.
	for tries := 0; i > 0 && tries < 4; tries++ {
		i--
		d, err := f.fde(x.offset(i))
		if err != nil {
			return FDE{}, err
		}
		if d.Covers(pc) {
			d.from, d.upTo = from, upTo
			return d, nil
		}
		from = max(from, d.End)
	}
	return FDE{}, x.err
}

// indexed returns the index, which the first call builds. The error is that of Section.Fetch.
func (f *frames) indexed() (*index, error) {
	if f.index == nil {
		if err := f.fetch(0, len(f.Data)); err != nil {
			return nil, err
		}
		f.index = f.buildIndex()
	}
	return f.index, nil
}

// search returns how many entries start at or below pc.
func (x *index) search(pc uint64) int {
	if x.far != nil {
		i, _ := slices.BinarySearchFunc(x.far, pc, func(e far, pc uint64) int {
			if e.start <= pc {
				return -1
			}
			return 1
		})
		return i
	}
	if pc < x.base {
		return 0
	}
	want := pc - x.base
	low, high := 0, len(x.near)
	for low < high {
		mid := int(uint(low+high) / 2)
		if uint64(x.near[mid].start) <= want {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

func (x *index) offset(i int) uint64 {
	if x.far != nil {
		return uint64(x.far[i].offset)
	}
	return uint64(x.near[i].offset)
}

func (x *index) len() int { return max(len(x.near), len(x.far)) }

func (x *index) start(i int) uint64 {
	if x.far != nil {
		return x.far[i].start
	}
	return x.base + uint64(x.near[i].start)
}

// buildIndex reads the section once to count its FDEs and a second time to store them, so that
// no more is allocated than is kept. Empty FDEs are left out.
func (f *frames) buildIndex() *index {
	x := &index{err: ErrNoFDE}
	count, low, high := 0, uint64(math.MaxUint64), uint64(0)
	for d, err := range f.all() {
		if err != nil {
			if x.err == ErrNoFDE {
				x.err = err
			}
			continue
		}
		if d.Start < d.End {
			count++
			low, high = min(low, d.Start), max(high, d.Start)
		}
	}
	if count == 0 {
		return x
	}
	x.base = low
	if high-low <= math.MaxUint32 {
		x.near = make([]near, 0, count)
	} else {
		x.far = make([]far, 0, count)
	}
	for d, err := range f.all() {
		switch {
		case err != nil || d.Start >= d.End:
		case x.far != nil:
			x.far = append(x.far, far{d.Start, uint32(d.Offset)})
		default:
			x.near = append(x.near, near{uint32(d.Start - low), uint32(d.Offset)})
		}
	}
	slices.SortFunc(x.near, func(a, b near) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.offset, b.offset))
	})
	slices.SortFunc(x.far, func(a, b far) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.offset, b.offset))
	})
	return x
}
