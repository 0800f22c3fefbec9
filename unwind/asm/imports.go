package asm

import (
	"bytes"
	std "debug/elf"
	"encoding/binary"
	"io"
	"slices"

	"unspool/dwarfcfi/elf"

	"unspool/unwind/x86"
)

// This file knows functions of other images that do not return. Behind a call of such a function another one may
// follow: compilers put what ends a program, or throws, behind all else of a function, without padding.

// stopping are the names of such functions of C and C++ libraries, beside those that isThrower knows.
var stopping = map[string]bool{
	"_Exit": true, "_Unwind_Resume": true, "_ZSt21__glibcxx_assert_failPKciS0_S0_": true, "_ZSt9terminatev": true,
	"__assert": true, "__assert_fail": true, "__assert_perror_fail": true, "__chk_fail": true,
	"__cxa_bad_cast": true, "__cxa_bad_typeid": true, "__cxa_call_unexpected": true,
	"__cxa_deleted_virtual": true, "__cxa_pure_virtual": true, "__cxa_rethrow": true, "__cxa_throw": true,
	"__cxa_throw_bad_array_new_length": true, "__fortify_fail": true, "__longjmp_chk": true,
	"__stack_chk_fail": true, "_exit": true, "_longjmp": true, "abort": true, "exit": true, "longjmp": true,
	"pthread_exit": true, "quick_exit": true, "siglongjmp": true,
}

// isThrower reports whether a name is that of a function such as std::__throw_length_error(char const*).
func isThrower(name []byte) bool {
	digits, ok := bytes.CutPrefix(name, []byte("_ZSt"))
	return ok && bytes.HasPrefix(bytes.TrimLeft(digits, "0123456789"), []byte("__throw_"))
}

const (
	maxImports = 1 << 14 // relocations looked at
	relaSize   = 24      // of an Elf64_Rela
)

// stops gives the slots of the GOT, by address, that hold addresses of functions that do not return.
func (c *Code) stops() (slots []uint64) {
	l := c.layout
	if l.Class != elf.ELFCLASS64 || l.Machine != elf.EM_X86_64 || !l.Holds(l.PLTRelocations) {
		return nil
	}
	var buf [128 * relaSize]byte
	all := min(l.PLTRelocations.Size, maxImports*relaSize)
	for done := uint64(0); done < all; done += uint64(len(buf)) {
		n, err := c.r.ReadAt(buf[:min(uint64(len(buf)), all-done)], int64(l.PLTRelocations.Offset+done))
		for b := buf[:n]; len(b) >= relaSize; b = b[relaSize:] {
			info := binary.LittleEndian.Uint64(b[8:])
			if std.R_TYPE64(info) == uint32(std.R_X86_64_JMP_SLOT) && c.doesStop(std.R_SYM64(info)) {
				slots = append(slots, binary.LittleEndian.Uint64(b))
			}
		}
		if err != nil && err != io.EOF || n == 0 {
			break
		}
	}
	slices.Sort(slots)
	return slots
}

// doesStop reports whether a dynamic symbol has the name of a function that does not return.
func (c *Code) doesStop(symbol uint32) bool {
	l := c.layout
	at := uint64(symbol) * std.Sym64Size
	if !l.Holds(l.DynSym) || !l.Holds(l.DynStr) || at+std.Sym64Size > l.DynSym.Size {
		return false
	}
	var entry [4]byte // its name
	if n, _ := c.r.ReadAt(entry[:], int64(l.DynSym.Offset+at)); n < len(entry) {
		return false
	}
	at = uint64(binary.LittleEndian.Uint32(entry[:]))
	if at >= l.DynStr.Size {
		return false
	}
	var text [64]byte
	n, _ := c.r.ReadAt(text[:min(uint64(len(text)), l.DynStr.Size-at)], int64(l.DynStr.Offset+at))
	name, _, ended := bytes.Cut(text[:n], []byte{0})
	return ended && (stopping[string(name)] || isThrower(name))
}

// stubStops reports whether the entry of a procedure linkage table at addr jumps to a function that does not return.
func (c *Code) stubStops(addr uint64) bool {
	const most = 3 // instructions, of which one jumps
	var in insn
	for range most {
		if !in.Decode(c.bytes(addr)) {
			return false
		}
		addr += uint64(in.Len)
		if t, _ := in.turn(addr - uint64(in.Len)); t == jumpsFar && in.Base == x86.RIP {
			_, ok := slices.BinarySearch(c.charted.stops, addr+uint64(in.Disp))
			return ok
		} else if t != onwards {
			return false
		}
	}
	return false
}
