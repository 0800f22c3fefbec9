package asm

import (
	"encoding/binary"
	"slices"

	"unspool/unwind/x86"
)

// This file follows a switch statement through its jump table. Compilers write
//
//	cmp  $most, index
//	ja   default
//	lea  table(%rip), t
//	movslq (t, index, 4), x     the distance of the case from the table
//	add  t, x
//	jmp  *x
//
// in this order, but with other instructions between them, and perhaps with the
// lea far before, so the parts are kept as values in the state. Code that is
// loaded at a fixed address has a table of addresses: jmp *table(, index, 8). The
// number of cases is known from the comparison, or from an and with 2ⁿ-1. A table
// whose length is not known is not read.

// Kinds of values that lead to a jump table. The field at of all of them is the
// table's image address (mod 2³²).
const (
	imageAddress = aligned + 1 + iota // at + off
	caseDistance                      // a 32-bit word of the table
	caseAddress                       // such a word plus the table's address
	caseWord                          // a 64-bit word of the table: an address
)

// maxCases bounds the length of a jump table, and maxRounds how often a function is
// read again because the last reading found more tables.
const (
	maxCases  = 1024
	maxRounds = 10
)

// imageAddr gives the value for an address of the image, if it fits.
func imageAddr(addr uint64) value {
	if addr>>31 != 0 {
		return value{}
	}
	return value{kind: imageAddress, at: int32(addr)}
}

// table is the address in the image that v points to.
func (v value) table() (value, bool) {
	if v.kind != imageAddress {
		return value{}, false
	}
	return value{at: v.at + v.off}, true
}

// tableWord is the value of a load from a table of words of the given size,
// indexed by a register.
func (s *state) tableWord(in *insn, size uint8, kind valueKind) value {
	if !in.HasIndex || in.Scale != size || in.Segment || in.Fixed {
		return value{}
	}
	var t value
	switch {
	case in.Base == x86.None:
		t = imageAddr(uint64(in.Disp))
	case in.Base < 16:
		t = s.regs[in.Base].add(in.Disp)
	}
	if t, ok := t.table(); ok {
		return value{kind: kind, at: t.at}
	}
	return value{}
}

// addRegs is the sum of two registers' values.
func addRegs(a, b value) value {
	if a.kind == caseDistance {
		a, b = b, a
	}
	if t, ok := a.table(); ok && b == (value{kind: caseDistance, at: t.at}) {
		return value{kind: caseAddress, at: t.at}
	}
	return value{}
}

// switched gives the addresses to which an indirect jump leads, nil if its table
// is not understood: all of them must lie in the function.
func (p *paths) switched(s *state, in *insn) []uint64 {
	var v value
	if in.Mod == 3 {
		v = s.regs[in.RM]
	} else {
		v = s.tableWord(in, 8, caseWord)
	}
	if s.cases == 0 || v.kind != caseAddress && v.kind != caseWord {
		return nil
	}
	table := uint64(uint32(v.at))
	size := 4
	if v.kind == caseWord {
		size = 8
	}
	if !p.c.spend(int(s.cases)) {
		return nil
	}
	var buf [8 * maxCases]byte
	words := p.c.read(buf[:size*int(s.cases)], table)
	if len(words) < size*int(s.cases) {
		return nil
	}
	targets := make([]uint64, 0, s.cases)
	for ; len(words) > 0; words = words[size:] {
		var to uint64
		if size == 4 {
			to = table + uint64(int32(binary.LittleEndian.Uint32(words)))
		} else {
			to = binary.LittleEndian.Uint64(words)
		}
		if !p.contains(to) {
			// It may be in the cold part of the function, which lies elsewhere.
			if !p.c.executable(to) {
				return nil
			}
			continue
		}
		targets = append(targets, to)
	}
	slices.Sort(targets)
	return slices.Compact(targets)
}

// follow reads from start, again and again with the jump tables that were found,
// until a reading finds no more tables. It returns false if there is more code
// than a reading may have.
func (p *paths) follow(start uint64) bool {
	clear(p.tables)
	for range maxRounds {
		if p.discover(start, maxInsns) >= maxInsns || !p.solve(start, true) {
			return false
		}
		if more := p.findTables(); !more || p.c.isSpent() {
			return !more && !p.c.isSpent()
		}
	}
	return false
}

// findTables adds the tables of the jumps that were reached, and reports whether
// there are new ones.
func (p *paths) findTables() (more bool) {
	p.eachBlock(func(addr uint64, in *insn, s *state) bool {
		if t, _ := in.turn(addr); t != jumpsFar {
			return true
		}
		if _, known := p.tables[addr]; known {
			return true
		}
		if targets := p.switched(s, in); len(targets) > 0 {
			if p.tables == nil {
				p.tables = make(map[uint64][]uint64)
			}
			p.tables[addr] = targets
			more = true
		}
		return true
	})
	return more
}
