package dwarfcfi

import (
	"encoding/binary"
	"math"

	"unspool/dwarfcfi/elf"
)

// searchTable is the binary search table of .eh_frame_hdr (LSB Core 5.0, 10.6.2): pairs of
// a start address and the address of its FDE, sorted by the former, searched in place.
type searchTable struct {
	pairs Section // Addr: of the first pair
	bases bases   // datarel means relative to .eh_frame_hdr here
	enc   uint8
	width int // bytes of one value
	count int // 0: no table
}

// parseHdr returns the table of an .eh_frame_hdr, or an empty table if there is none that can be
// searched: also if not all of its entries are there, or if they are in another order. Nobody can tell
// from those where nothing is.
func parseHdr(hdr Section, ptrSize uint8, text uint64) searchTable {
	b := bases{section: hdr.Addr, text: text, data: hdr.Addr, ptrSize: ptrSize}
	c := elf.Cursor{Data: hdr.Data}
	version := c.U8()
	frameEnc, countEnc, enc := c.U8(), c.U8(), c.U8()
	if c.Bad || version != 1 || frameEnc == peOmit || countEnc == peOmit || enc == peOmit {
		return searchTable{}
	}
	b.skip(&c, frameEnc)
	count := b.pointer(&c, countEnc)
	width := fixedSize(enc, ptrSize)
	switch enc &^ peFormat {
	case 0, pePCRel, peTextRel, peDataRel:
	default:
		width = 0
	}
	if c.Bad || width == 0 {
		return searchTable{}
	}
	pairs := hdr.Data[c.Pos:]
	if count > uint64(len(pairs)/(2*width)) {
		return searchTable{}
	}
	b.section += uint64(c.Pos)
	s := searchTable{
		pairs: Section{Addr: b.section, Data: pairs[:2*width*int(count)]},
		bases: b, enc: enc, width: width, count: int(count),
	}
	if !s.isSorted() {
		return searchTable{}
	}
	return s
}

// isDataRel reports whether the table has the one encoding that every linker writes.
func (s *searchTable) isDataRel() bool { return s.enc == peDataRel|peSdata4 && s.bases.ptrSize == 8 }

// isSorted reports whether the starts are in the order that search needs.
func (s *searchTable) isSorted() bool {
	if s.isDataRel() {
		last := int32(math.MinInt32)
		for data := s.pairs.Data; len(data) >= 8; data = data[8:] {
			start := int32(binary.LittleEndian.Uint32(data))
			if start < last {
				return false
			}
			last = start
		}
		return true
	}
	last := uint64(0)
	for i := range s.count {
		start := s.value(2 * i)
		if start < last {
			return false
		}
		last = start
	}
	return true
}

// search returns how many pairs start at or below pc.
func (s *searchTable) search(pc uint64) int {
	if s.isDataRel() {
		return s.searchDataRel(pc)
	}
	low, high := 0, s.count
	for low < high {
		mid := int(uint(low+high) / 2)
		if s.value(2*mid) <= pc {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// searchDataRel does what search does, for the one encoding that every linker writes.
func (s *searchTable) searchDataRel(pc uint64) int {
	want := int64(pc - s.bases.data)
	data := s.pairs.Data
	low, high := 0, s.count
	for low < high {
		mid := int(uint(low+high) / 2)
		if int64(int32(binary.LittleEndian.Uint32(data[8*mid:]))) <= want {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// pair returns the i-th pair: where code starts, and the address of its FDE.
func (s *searchTable) pair(i int) (start, fde uint64) { return s.value(2 * i), s.value(2*i + 1) }

// value is the i-th value of the table: starts at even, FDEs at odd places.
func (s *searchTable) value(i int) uint64 {
	c := elf.Cursor{Data: s.pairs.Data, Pos: i * s.width}
	return s.bases.pointer(&c, s.enc)
}
