package asm

import (
	"encoding/binary"
	"strings"
	"testing"

	"unspool/dwarfcfi/elf"

	"unspool/unwind/rule"
	"unspool/unwind/x86"
)

// tangled is a function of 12,000 pushes and pops in a loop, to which ways lead back on which ever fewer
// registers hold SP: it is read once for each.
func tangled() string {
	registers := []byte{x86.AX, x86.BX, x86.CX, x86.DX, x86.SI, x86.DI}
	var b strings.Builder
	for _, reg := range registers {
		b.Write([]byte{0x48, 0x89, 0xe0 | reg}) // mov %rsp, reg
	}
	head := b.Len()
	b.WriteString(strings.Repeat("\x41\x50\x41\x58", 6000)) // push %r8; pop %r8
	const jcc, kill = 6, 10
	back := b.Len() + jcc*len(registers) + 1
	for i := range registers {
		at := b.Len() + jcc
		b.WriteString("\x0f\x82" + little(back+kill*i-at)) // jc
	}
	b.WriteByte(0xc3)
	for _, reg := range registers {
		b.WriteString(string([]byte{0xb8 + reg}) + little(0)) // mov $0, reg
		b.WriteString("\xe9" + little(head-b.Len()-5))        // jmp
	}
	return b.String()
}

func little(n int) string { return string(binary.LittleEndian.AppendUint32(nil, uint32(int32(n)))) }

// TestWorkForOneRule asks for a rule of code that takes long to read: that ends, says nothing, and leaves
// nothing behind that is not known; other code has its rules.
func TestWorkForOneRule(t *testing.T) {
	const base = 0x1000
	slow := tangled()
	text := slow + slow + slow + "\x50\x90\x58\xc3" // push, nop, pop, ret
	n := uint64(len(slow))
	layout := &elf.Layout{
		Loads: []elf.Load{{Vaddr: base, Filesz: uint64(len(text)), Memsz: uint64(len(text)),
			Flags: elf.PF_R | elf.PF_X}},
		Text: []elf.Range{{Name: ".text", Start: base, End: base + uint64(len(text))}},
	}
	c := New(strings.NewReader(text), layout, Covered{})
	c.charted = &codeMap{whole: true, holes: []Hole{{base, base + uint64(len(text))}},
		starts: []uint64{base, base + n, base + 2*n, base + 3*n}}
	if r, ok := c.Rule(base + 2*n + 10_000); ok {
		t.Errorf("%v", r)
	}
	if over := -c.left; over <= 0 || over > mostWork/100 {
		t.Errorf("the work exceeds what is permitted by %d", over)
	}
	if c.readings[base+n] != nil {
		t.Error("what was read of a function, but not to its end, is kept")
	}
	if r, ok := c.Rule(base + 3*n + 1); !ok || r != rule.GuessSP.With(2, 0) {
		t.Errorf("%v %v", r, ok)
	}
}
