package asm

import (
	"unspool/unwind/rule"

	"unspool/unwind/x86"
)

// This file is about methods that HotSpot's compilers have made. Their prologue makes the whole frame, and SP stays
// where that has left it up to the epilogue. A method that is compiled on stack replacement may have no epilogue: the
// only way out of its loop leads back to the interpreter.

// ByPrologue gives the rule for pc, an instruction of a method, by the last prologue before it in the window. All
// instructions between have to leave SP alone, but for the ends of epilogues.
func (w *Window) ByPrologue(pc uint64) (r rule.Rule, ok bool) {
	if pc < w.lo || pc > w.hi {
		return rule.None, false
	}
	code := w.data[:pc-w.lo]
	for i := len(code) - 1; i >= 0; i-- {
		if code[i] != stackBang[0] && code[i] != 0x48 {
			continue
		}
		size, room, frame, ok := prologueAt(code[i:])
		if !ok {
			continue
		}
		words, fits := rule.InWords(int64(frame))
		if !fits || !w.staysInFrame(w.lo+uint64(i+size), pc, room) {
			return rule.None, false
		}
		return rule.GuessSP.With(words, 2), true
	}
	return rule.None, false
}

// staysInFrame reports whether pc is an instruction of the code that begins at an address, and SP is there what it is
// at the beginning: only epilogues give back the room that the prologue took, and what follows them is reached from
// before.
func (w *Window) staysInFrame(at, pc uint64, room uint32) bool {
	const halt = 0xf4 // fills what is left of a method
	var in insn
	inFrame := true
	for ; at < pc; at += uint64(in.Len) {
		if !in.Decode(w.code.bytes(at)) || in.Map == 0 && in.Op == halt {
			return false
		}
		switch t, _ := in.turn(at); {
		case t == returns:
			inFrame = true
		case t == calls, t == callsFar:
		case !in.movesStack() && in.Writes()&x86.Bit(x86.SP) == 0:
		case inFrame && !in.givesBack(room):
			return false
		default:
			inFrame = false
		}
	}
	return at == pc && inFrame
}
