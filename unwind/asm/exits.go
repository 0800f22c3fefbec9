package asm

// This file finds the instructions that lead into a function and out of it, for checks that a caller can
// have called its callee.

// An Exit is an instruction by which a function is left without a call.
type Exit struct {
	At       uint64
	Target   uint64 // where it leads, unless it is indirect
	Indirect bool   // a jump through a register or memory, or by a ret behind setsReturn, as in retpolines
}

// LongestSwept is how many bytes of code [Code.Exits] reads at most.
const LongestSwept = 1 << 20

// Exits lists the jumps by which the code from lo to hi is left, each target once, and hi if the last
// instruction does not end the function. The code is read from front to back: known is false if it holds
// bytes that are not an instruction, so that there may be other exits.
func (c *Code) Exits(lo, hi uint64) (exits []Exit, known bool) {
	if hi < lo || hi-lo > LongestSwept {
		return nil, false
	}
	seen := make(map[uint64]bool)
	add := func(at, target uint64) {
		if (target < lo || target >= hi) && !seen[target] {
			seen[target] = true
			exits = append(exits, Exit{At: at, Target: target})
		}
	}
	var in insn
	var sets bool // the instruction before has put an address where ret finds it
	for at := lo; at < hi; at += uint64(in.Len) {
		if !in.Decode(c.bytes(at)) {
			return exits, false
		}
		t, target := in.turn(at)
		switch {
		case t == branches, t == jumps:
			add(at, target)
		case t == jumpsFar, t == returns && sets:
			exits = append(exits, Exit{At: at, Indirect: true})
		}
		sets = in.setsReturn()
		if next := at + uint64(in.Len); next >= hi && (t == onwards || t == branches) {
			add(at, next)
		}
	}
	return exits, true
}

// PaddedEnd gives the end of the function that begins at start, if the linker has filled the room behind it
// with int3. The end is the first address behind a call or an instruction that does not continue below, from
// which up to the next multiple of 16 there is only int3. PaddedEnd reads at most span bytes.
func (c *Code) PaddedEnd(start, span uint64) (end uint64, ok bool) {
	var in insn
	for at := start; at-start < span; {
		if !in.Decode(c.bytes(at)) {
			return 0, false
		}
		t, _ := in.turn(at)
		at += uint64(in.Len)
		if (!t.goesOn() || t == calls || t == callsFar) && c.isPadded(at) {
			return at, true
		}
	}
	return 0, false
}

// A Call says what the instruction before an address calls.
type Call struct {
	Target   uint64 // of a direct call
	Direct   bool
	Indirect bool // the bytes may be an indirect call; with Direct set, either of the two
}

// CallBefore returns what the instruction before addr calls; neither Direct nor Indirect is set if it is not a
// call.
func (c *Code) CallBefore(addr uint64) (call Call) {
	call.Target, call.Direct = c.DirectCall(addr)
	call.Indirect = c.indirectCallBefore(addr)
	return call
}
