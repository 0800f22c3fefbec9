// Package jittest has CFI as runtimes write it into jitdumps, for tests.
package jittest

import "encoding/binary"

// EhFrame is an .eh_frame that lies behind code of the given size: a CIE with
// the state at a function's entry, and an FDE with the instructions.
func EhFrame(size uint64, insns []byte) []byte {
	cie := []byte{0x14, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0}
	at := len(cie) + 8 // where the FDE says which code it is about
	fde := binary.LittleEndian.AppendUint32(nil, uint32(len(cie)+4))
	fde = binary.LittleEndian.AppendUint32(fde, -uint32((size+7)&^7)-uint32(at))
	fde = binary.LittleEndian.AppendUint32(fde, uint32(size))
	fde = append(append(fde, 0), insns...)
	fde = append(fde, make([]byte, -len(fde)&7)...)
	return append(binary.LittleEndian.AppendUint32(cie, uint32(len(fde))), fde...)
}

// Instructions of CFI, for code as their comments have it.
var (
	// sub $8, %rsp; call *%rcx; add $8, %rsp; ret
	Trampoline = []byte{0x44, 0x0e, 16, 0x46, 0x0e, 8}
	// push %rbp; mov %rsp, %rbp; ...
	Framed = []byte{0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6}
)
