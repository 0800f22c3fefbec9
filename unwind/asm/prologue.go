package asm

import (
	"bytes"
	"encoding/binary"

	"unspool/unwind/rule"
	"unspool/unwind/x86"
)

// This file is about methods that HotSpot's compilers have made. Their prologue makes the whole frame, and SP stays
// where that has left it up to the epilogue. A method that is compiled on stack replacement may have no epilogue: the
// only way out of its loop leads back to the interpreter.

// stackBang is mov %eax,disp32(%rsp): methods that call others touch the end of the stack first
// (MacroAssembler::verified_entry).
var stackBang = []byte{0x89, 0x84, 0x24}

// prologueAt reads the prologue of a method at the beginning of code: how long it is, how many bytes it takes from SP,
// and how many lie between SP and the CFA behind it. BP is saved below the return address.
func prologueAt(code []byte) (size int, room, frame uint32, ok bool) {
	const page = 4096
	b, banged := bytes.CutPrefix(code, stackBang)
	if banged {
		if len(b) < 5 {
			return 0, 0, 0, false
		}
		if at := int32(binary.LittleEndian.Uint32(b)); at%page != 0 || at >= 0 || b[4] != 0x55 {
			return 0, 0, 0, false
		}
		b = b[5:] // and push %rbp
	}
	switch {
	case len(b) >= 7 && b[0] == 0x48 && b[1] == 0x81 && b[2] == 0xec: // sub $imm32,%rsp
		room, b = binary.LittleEndian.Uint32(b[3:]), b[7:]
	case len(b) >= 4 && b[0] == 0x48 && b[1] == 0x83 && b[2] == 0xec && b[3] < 0x80: // sub $imm8,%rsp
		room, b = uint32(b[3]), b[4:]
	default:
		return 0, 0, 0, false
	}
	if frame = room + 16; !banged { // mov %rbp,room-8(%rsp)
		frame = room + 8
		var at uint32
		switch {
		case len(b) >= 5 && b[0] == 0x48 && b[1] == 0x89 && b[2] == 0x6c && b[3] == 0x24:
			at, b = uint32(int8(b[4])), b[5:]
		case len(b) >= 8 && b[0] == 0x48 && b[1] == 0x89 && b[2] == 0xac && b[3] == 0x24:
			at, b = binary.LittleEndian.Uint32(b[4:]), b[8:]
		default:
			return 0, 0, 0, false
		}
		if at != room-8 {
			return 0, 0, 0, false
		}
	}
	return len(code) - len(b), room, frame, room%8 == 0 && room < 1<<20
}

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
