package asm

import "unspool/unwind/x86"

// This file is about functions with and without a frame pointer whose starts a call or padding tells.

// FrameCalled gives the function that the call before addr calls, if that begins by making a frame, or does
// so after it has moved arguments from one register to another.
func (c *Code) FrameCalled(addr uint64) (start uint64, ok bool) {
	start, ok = c.DirectCall(addr)
	return start, ok && c.judge(&c.framed, start, (*Code).findFrame)
}

func (c *Code) findFrame(start uint64) bool {
	const most = 8 // instructions
	var in insn
	for at, n := start, 0; n < most; n++ {
		if c.findEntry(at) {
			return true
		}
		if !in.Decode(c.bytes(at)) || in.movesStack() || in.Writes()&(x86.Bit(x86.SP)|x86.Bit(x86.BP)) != 0 {
			return false
		}
		if t, _ := in.turn(at); t != onwards {
			return false
		}
		at += uint64(in.Len)
	}
	return false
}

// FrameSize gives how far below BP the function that begins at start, by making a frame, moves SP first:
// words above that were not pushed by what it calls.
func (c *Code) FrameSize(start uint64) (n uint64) {
	const most = 32 // instructions
	var in insn
	words := -1 // BP is pushed before it points to the frame
	for range most {
		if !in.Decode(c.bytes(start)) {
			break
		}
		if t, _ := in.turn(start); t != onwards {
			break
		}
		if words += in.pushes(); in.isSubSP() {
			n += uint64(max(in.Imm, 0))
			break
		}
		start += uint64(in.Len)
	}
	return n + 8*uint64(max(words, 0))
}

// MayReturn reports whether addr follows a call in the function from start to end, or not far behind the start
// where the end is not known and 0.
func (c *Code) MayReturn(start, end, addr uint64) bool {
	most := uint64(mostOfFunction)
	if end != 0 {
		most = end - start
	}
	return addr > start && addr-start <= most && c.FollowsCall(addr)
}

// mostOfFunction is how far [Code.Within] reads.
const mostOfFunction = 16 << 10

// Within reports whether the instructions from the start of a function on, read one behind the other, come to
// addr before they come to where another function may begin: behind padding, at an address that is aligned as
// functions are, or where a frame is made at such an address.
func (c *Code) Within(start, addr uint64) bool {
	return addr-start <= mostOfFunction && c.answer(&c.within, start, addr, (*Code).leadsTo)
}

func (c *Code) leadsTo(start, addr uint64) bool {
	var in insn
	at, padded := start, false
	for ; at < addr; at += uint64(in.Len) {
		if at != start && at%alignment == 0 && (padded || c.entersFrame(at)) || !in.Decode(c.bytes(at)) {
			return false
		}
		padded = in.isPadding()
	}
	return at == addr
}

// Untouched reports whether the instructions from the start of a function to addr, read one behind the other,
// leave SP and BP alone.
func (c *Code) Untouched(start, addr uint64) bool {
	return c.Within(start, addr) && c.answer(&c.untouched, start, addr, (*Code).touchesNothing)
}

func (c *Code) touchesNothing(start, addr uint64) bool {
	var in insn
	for at := start; at < addr; at += uint64(in.Len) {
		if !in.Decode(c.bytes(at)) || in.movesStack() || in.Writes()&(x86.Bit(x86.SP)|x86.Bit(x86.BP)) != 0 {
			return false
		}
	}
	return true
}

// An ofFunction is the answer to a question about an address in a function: yes in the lowest bit, and above
// it the start of the function and 1. Zero means that it was not asked.
type ofFunction uint32

// answer keeps the first answer for each address: one address is seldom asked about with two starts.
func (c *Code) answer(
	kept *answers[ofFunction], start, addr uint64, find func(*Code, uint64, uint64) bool,
) bool {
	const most = 1<<31 - 2
	if addr > most || start > addr {
		return find(c, start, addr)
	}
	known, of := kept.get(uint32(addr)), ofFunction(start+1)<<1
	if known&^1 == of {
		return known != of
	}
	yes := find(c, start, addr)
	if yes {
		of |= 1
	}
	if known == 0 {
		kept.put(uint32(addr), of)
	}
	return yes
}

// Frameless reports whether addr is an instruction of a function that has not touched BP: none of those from the
// traps that align it up to addr does. Other padding may align a loop.
func (c *Code) Frameless(addr uint64) bool {
	return c.answer(&c.frameless, 0, addr, (*Code).isFrameless)
}

func (c *Code) isFrameless(_, addr uint64) bool {
	traps := []byte{0xcc, 0xcc}
	start := addr &^ (alignment - 1)
	for ; !c.follows(start, traps); start -= alignment {
		if addr-start > mostOfFunction || start < alignment {
			return false
		}
	}
	var in insn
	for start < addr {
		if !in.Decode(c.bytes(start)) || in.Writes()&x86.Bit(x86.BP) != 0 || c.follows(start+uint64(in.Len), pushBP) {
			return false
		}
		start += uint64(in.Len)
	}
	return start == addr
}

// EndOfReturning gives the end of the function that begins at start, if traps behind it tell where that is
// and no jump leads out of the function; otherwise 0.
func (c *Code) EndOfReturning(start uint64) uint64 {
	if start>>32 != 0 {
		return 0
	}
	size := c.returning.get(uint32(start))
	if size == 0 {
		size = c.sizeOfReturning(start)
		c.returning.put(uint32(start), size)
	}
	if size == leftByJumps {
		return 0
	}
	return start + uint64(size)
}

// A functionSize is that of a function that is left by returning only. Zero means that it is not known.
type functionSize uint32

const leftByJumps functionSize = 1<<32 - 1 // or its end is not found

func (c *Code) sizeOfReturning(start uint64) functionSize {
	var in insn
	farthest := start // to which a jump leads
	for at := start; at-start < mostOfFunction; {
		if !in.Decode(c.bytes(at)) {
			break
		}
		t, target := in.turn(at)
		switch t {
		case jumpsFar:
			return leftByJumps
		case branches, jumps:
			if target-start > mostOfFunction { // or below start
				return leftByJumps
			}
			farthest = max(farthest, target)
		}
		at += uint64(in.Len)
		if at > farthest && (!t.goesOn() || t == calls || t == callsFar) && c.isPadded(at) {
			return functionSize(at - start)
		}
	}
	return leftByJumps
}
