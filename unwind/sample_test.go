package unwind

import (
	"encoding/binary"
	"testing"
	"unspool/unwind/rule"
)

// perfMask is what perf asks for on x86-64: all but DS, ES, FS and GS.
const perfMask = 0xff0fff

// perfWords are registers as a sample has them.
func perfWords(n int, word func(i int) uint64) (b []byte) {
	for i := range n {
		b = binary.LittleEndian.AppendUint64(b, word(i))
	}
	return b
}

func TestSetPerfPutsRegistersWhereDWARFHasThem(t *testing.T) {
	var r Regs
	r.SetPerf(rule.AMD64, perfMask, perfWords(20, func(i int) uint64 { return 100 + uint64(i) }))
	// perf: AX BX CX DX SI DI BP SP IP FLAGS CS SS R8 … R15.
	want := [rule.NumRegs]uint64{100, 103, 102, 101, 104, 105, 106, 107, 112, 113, 114, 115, 116, 117, 118, 119,
		108}
	for n, w := range want {
		if v, ok := r.Get(n); !ok || v != w {
			t.Errorf("register %d: %d %v, want %d", n, v, ok, w)
		}
	}
	r.SetPerf(rule.AMD64, 1<<7|1<<8, perfWords(2, func(i int) uint64 { return uint64(i) }))
	if r.Known != 1<<rule.SP|1<<rule.IP {
		t.Errorf("of SP and IP, known are %#x", r.Known)
	}
	r.SetPerf(rule.AMD64, perfMask, perfWords(3, func(i int) uint64 { return uint64(i) }))
	if r.Known != 1<<0|1<<rule.BX|1<<2 {
		t.Errorf("of a sample cut short, known are %#x", r.Known)
	}
}

func TestUnsavedRegistersAreUnknown(t *testing.T) {
	var r Regs
	r.SetPerf(rule.AMD64, perfMask, perfWords(20, func(i int) uint64 {
		switch i {
		case 1, 16, 17, 18: // RBX, R12, R13, R14
			return ^uint64(0)
		case 0: // RAX is always saved: -1 is its value
			return ^uint64(0)
		}
		return uint64(i)
	}))
	r.DropUnsaved()
	for n, known := range map[int]bool{0: true, rule.BX: false, 12: false, 13: false, 14: false, 15: true,
		rule.BP: true} {
		if _, ok := r.Get(n); ok != known {
			t.Errorf("register %d known: %v, want %v", n, ok, known)
		}
	}
}
