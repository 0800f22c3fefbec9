package asm

import (
	"cmp"
	std "debug/elf"
	"encoding/binary"
	"io"
	"slices"
	"sort"

	"unspool/dwarfcfi/elf"

	"unspool/unwind/x86"
)

// A codeMap says where functions start in the code that CFI does not cover.
type codeMap struct {
	holes  []Hole   // by address
	starts []uint64 // by address, in holes only
	stops  []uint64 // slots of the GOT, by address: see Code.stops
	whole  bool     // of all the code, not only of the holes that were asked for
}

// A Hole is code that no FDE covers.
type Hole struct{ Lo, Hi uint64 }

// Limits on the work for one file.
const (
	maxSymbols = 1 << 20
	maxCovered = 1 << 20 // FDEs looked at
	maxHoles   = 1 << 16 // kept
	maxStarts  = 1 << 18 // kept
	maxNearby  = 1 << 20 // bytes of a hole that is read without the rest of the code
	maxSwept   = 4 << 20 // bytes of code read for calls: about 25 ms
)

func (m *codeMap) hole(addr uint64) (Hole, bool) { return holeAt(m.holes, addr) }

func (m *codeMap) inHole(addr uint64) bool {
	_, ok := m.hole(addr)
	return ok
}

func holeAt(list []Hole, addr uint64) (Hole, bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].Lo > addr }) - 1
	if i < 0 || addr >= list[i].Hi {
		return Hole{}, false
	}
	return list[i], true
}

// before is the index of the last start at or before addr, -1 for none.
func (m *codeMap) before(addr uint64) int {
	i, ok := slices.BinarySearch(m.starts, addr)
	if !ok {
		i--
	}
	return i
}

func (m *codeMap) isStart(addr uint64) bool {
	_, ok := slices.BinarySearch(m.starts, addr)
	return ok
}

// note adds a hole with its starts, unless it is there.
func (m *codeMap) note(h Hole, starts func(add func(uint64))) {
	i, ok := slices.BinarySearchFunc(m.holes, h.Lo, func(h Hole, lo uint64) int { return cmp.Compare(h.Lo, lo) })
	if ok || len(m.holes) >= maxHoles || len(m.starts) >= maxStarts {
		return
	}
	m.holes = slices.Insert(m.holes, i, h)
	starts(func(addr uint64) {
		m.starts = append(m.starts, addr)
	})
	slices.Sort(m.starts)
	m.starts = slices.Compact(m.starts)
}

// drop removes an address that is not the start of a function after all.
func (m *codeMap) drop(start uint64) {
	if i, ok := slices.BinarySearch(m.starts, start); ok {
		m.starts = slices.Delete(m.starts, i, i+1)
	}
}

// alignment is that of functions, by compilers and linkers.
const alignment = 16

// highest is above all addresses of images, so that sums do not wrap.
const highest = 1 << 62

// aligns reports whether a hole between two functions with CFI is only the padding that
// aligns the second one: with an aligned function in it, the hole would be larger. A
// large file has hundreds of thousands of such holes.
func (h Hole) aligns() bool { return h.Hi%alignment == 0 && h.Hi-h.Lo < alignment }

// holes gives the executable code that CFI does not cover, without the padding that
// aligns functions.
func (c *Code) holes() []Hole {
	var all []Hole
	for r := range c.text {
		all = append(all, Hole{r.Start, r.End})
	}
	all = slices.DeleteFunc(all, func(h Hole) bool { return h.Hi > highest })
	slices.SortFunc(all, func(a, b Hole) int { return cmp.Compare(a.Lo, b.Lo) })
	covered, ok := c.coveredParts(all)
	if !ok {
		return nil
	}
	slices.SortFunc(covered, func(a, b Hole) int { return cmp.Compare(a.Lo, b.Lo) })
	var holes []Hole
	k := 0
	for _, h := range all {
		keep := func(part Hole) {
			if part.Lo < part.Hi && (part.Lo == h.Lo || part.Hi == h.Hi || !part.aligns()) && len(holes) < maxHoles {
				holes = append(holes, part)
			}
		}
		lo := h.Lo
		for ; k < len(covered) && lo < h.Hi && covered[k].Lo < h.Hi; k++ {
			keep(Hole{lo, covered[k].Lo})
			lo = max(lo, covered[k].Hi)
			if covered[k].Hi > h.Hi {
				break
			}
		}
		keep(Hole{lo, h.Hi})
	}
	return holes
}

// text yields the ranges of code: sections, or executable segments in a file without section headers.
func (c *Code) text(yield func(elf.Range) bool) {
	for _, r := range c.layout.Text {
		if !yield(r) {
			return
		}
	}
	if len(c.layout.Text) > 0 {
		return
	}
	for _, l := range c.layout.Loads {
		if l.Flags&elf.PF_X != 0 && l.Vaddr+l.Filesz > l.Vaddr &&
			!yield(elf.Range{Start: l.Vaddr, End: l.Vaddr + l.Filesz}) {
			return
		}
	}
}

// coveredParts gives the parts of the code that CFI covers. Two that only padding keeps apart, inside of one
// of the ranges, are one: most FDEs follow each other, and touching new memory takes longer than reading
// them. ok is false if there are too many.
func (c *Code) coveredParts(ranges []Hole) (parts []Hole, ok bool) {
	if c.covered.FDEs == nil {
		return nil, true
	}
	var in Hole // the range that holds the last part
	for start, end := range c.covered.FDEs {
		if start >= end {
			continue
		}
		if n := len(parts); n > 0 {
			last := &parts[n-1]
			gap := Hole{last.Hi, start}
			if gap.Lo == gap.Hi || gap.Lo < gap.Hi && gap.aligns() && gap.Lo > in.Lo && gap.Hi < in.Hi {
				last.Hi = end
				continue
			}
		}
		if len(parts) >= maxCovered {
			return nil, false
		}
		parts = append(parts, Hole{start, end})
		if start < in.Lo || start >= in.Hi {
			in = Hole{}
			for _, r := range ranges {
				if start >= r.Lo && start < r.Hi {
					in = r
					break
				}
			}
		}
	}
	return parts, true
}

// skipPadding gives the first instruction of a hole that is not padding. Linkers put zeros between sections.
func (c *Code) skipPadding(h Hole) uint64 {
	var in insn
	addr := h.Lo
	for addr < h.Hi && addr < h.Lo+64 {
		switch b := c.bytes(addr); {
		case len(b) > 0 && b[0] == 0:
			addr++
		case in.Decode(b) && in.isPadding():
			addr += uint64(in.Len)
		default:
			return addr
		}
	}
	return addr
}

// sweep reads all the code for calls, and for instructions that take the address of a
// function. If functions are not aligned, an address counts as that of a function only
// right behind the end of another function.
func (c *Code) sweep(m *codeMap, add func(uint64)) {
	var in insn
	left := uint64(maxSwept)
	text := c.layout.Text
	ranges := make([]Hole, 0, len(text))
	for _, r := range text {
		ranges = append(ranges, Hole{r.Start, r.End})
	}
	if len(ranges) == 0 {
		ranges = c.holes()
	}
	for _, h := range ranges {
		var b []byte // from addr on
		for addr := h.Lo; addr < h.Hi && left > 0; {
			if len(b) < pageOver {
				if b = c.bytes(addr); len(b) == 0 {
					break
				}
			}
			n := uint64(1)
			if in.Decode(b) {
				n = uint64(in.Len)
				t, target := in.turn(addr)
				switch {
				case t == calls && in.Imm != 0:
					add(target)
				case in.IsLEA() && in.Base == x86.RIP:
					if target = addr + n + uint64(in.Disp); m.inHole(target) {
						if target%alignment == 0 || c.followsEnd(target) {
							add(target)
						}
						b = nil // the page may have been replaced
					}
				case c.layout.Type == elf.ET_EXEC && in.setsConstant():
					if target = uint64(in.Imm); m.inHole(target) {
						if c.followsEnd(target) {
							add(target)
						}
						b = nil
					}
				}
			}
			addr += n
			left -= min(left, n)
			b = b[min(n, uint64(len(b))):]
		}
	}
}

// isFunction reports whether addr, to which a word of the data points, is the start of a
// function.
func (c *Code) isFunction(addr uint64, constant bool) bool {
	if !c.executable(addr) {
		return false
	}
	begins := c.beginsFunction(addr)
	if constant {
		return begins && c.followsEnd(addr)
	}
	return begins || c.followsEnd(addr)
}

// maxPointed is how many bytes of data are read for pointers to functions.
const maxPointed = 1 << 20

// pointers adds the functions whose addresses are in data, as in tables of functions of a
// file that is not relocated. An address in constant data, which has the tables of
// switches too, counts only if the code there begins as functions do.
func (c *Code) pointers(m *codeMap, add func(uint64)) {
	left := uint64(maxPointed)
	var buf [4096]byte
	for i := range c.layout.Loads {
		l := &c.layout.Loads[i]
		constant := l.Flags&elf.PF_W == 0
		if l.Flags&elf.PF_X != 0 || constant && c.layout.Type != elf.ET_EXEC || l.Vaddr+l.Filesz < l.Vaddr {
			continue
		}
		for addr := (l.Vaddr + 7) &^ 7; addr < l.Vaddr+l.Filesz && left > 0; addr += uint64(len(buf)) {
			b := c.read(buf[:min(uint64(len(buf)), l.Vaddr+l.Filesz-addr)], addr)
			for ; len(b) >= 8; b = b[8:] {
				if to := binary.LittleEndian.Uint64(b); m.inHole(to) && c.isFunction(to, constant) {
					add(to)
				}
			}
			left -= min(left, uint64(len(buf)))
		}
	}
}

// symbols adds the functions of the symbol tables.
func (c *Code) symbols(add func(uint64)) {
	if c.layout.Class != elf.ELFCLASS64 {
		return
	}
	left := maxSymbols
	for _, table := range c.layout.Symbols {
		if table.Packed == elf.Plain {
			c.symbolsIn(table, add, &left)
		}
	}
}

// symbolsIn adds the functions of one symbol table, and reads at most left symbols. A table
// that reaches beyond the end of the file is read up to that end.
func (c *Code) symbolsIn(table elf.Extent, add func(uint64), left *int) {
	const size = std.Sym64Size
	var buf [256 * size]byte
	for done := uint64(0); done < table.Size && *left > 0; done += uint64(len(buf)) {
		want := min(uint64(len(buf)), table.Size-done)
		n, err := c.r.ReadAt(buf[:want], int64(table.Offset+done))
		for b := buf[:n]; len(b) >= size && *left > 0; b = b[size:] {
			*left--
			kind := std.ST_TYPE(b[4])
			defined := binary.LittleEndian.Uint16(b[6:]) != 0
			if defined && (kind == std.STT_FUNC || kind == std.STT_GNU_IFUNC) {
				add(binary.LittleEndian.Uint64(b[8:]))
			}
		}
		if err != nil && err != io.EOF || n == 0 {
			break
		}
	}
}
