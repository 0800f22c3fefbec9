package unwind

import (
	"encoding/binary"
	"slices"
	"testing"

	"unspool/unwind/rule"
	"unspool/vmas"
)

// callSites has functions that end in a call, so that the address it returns to is the first one of
// the next function, or beyond all code, and code that a signal handler returns to.
const callSites = `
	.text
	.globl _start
computed:
	.cfi_startproc
	.cfi_def_cfa rbx, 16
	call last
	.cfi_endproc
last:
	.cfi_startproc
	sub $24, %rsp
	.cfi_def_cfa_offset 32
	call leaf
	.cfi_endproc
leaf:
	.cfi_startproc
	ret
	.cfi_endproc
	.cfi_startproc simple
	.cfi_signal_frame
	.cfi_def_cfa rsp, 32
	.cfi_offset rip, -8
	.cfi_same_value rbp
	nop
restorer:
	nop
	.cfi_endproc
handler:
	.cfi_startproc
	ret
	.cfi_endproc
_start:
	.cfi_startproc
	.cfi_undefined rip
	call last
	.cfi_endproc
in_start:
	nop
	.section .note.GNU-stack,"",@progbits
`

// madeCopy makes a copy of a stack at madeSP. As long as it begins on a word, the walk can read it by words.
func madeCopy(aligned bool, words ...uint64) *Stack {
	memory := make([]byte, 8*len(words)+1)
	data := memory[:8*len(words)]
	if !aligned {
		data = memory[1:]
	}
	for i, w := range words {
		binary.LittleEndian.PutUint64(data[8*i:], w)
	}
	return &Stack{Base: madeSP, Data: data, Asked: uint64(len(data))}
}

// evaluators are the ways to evaluate the same rules.
var evaluators = []struct {
	name          string
	aligned, slow bool
	thread        uint32
}{
	{"word by word", true, false, 0},
	{"step by step", false, false, 0},
	{"in general", false, true, 0},
	{"after the same walk", true, false, 1},
}

// TestReturnAddressesAreLookedUpInTheCall walks over calls that end their function. Interrupted frames, by
// the sample or by a signal, are looked up at their PC itself.
func TestReturnAddressesAreLookedUpInTheCall(t *testing.T) {
	space, images, at := labelledProgram(t, callSites)
	leaf, inStart, handler, restorer := at["leaf"], at["in_start"], at["handler"], at["restorer"]
	inComputed, inLast := at["last"], leaf // what these return to

	// The mapping ends where the code does.
	whole := *firstMapping(space)
	table := vmas.NewTable("")
	table.Mmap(1, vmas.Map{Addr: whole.Start, Len: inStart - whole.Start, Prot: whole.Prot,
		Name: []byte(whole.File.Path)})
	space = table.Space(1)
	for _, c := range []struct {
		name  string
		pc    uint64
		words []uint64
		want  []uint64
	}{
		{"interrupted at the first byte of a function", leaf, []uint64{inLast, 0, 0, 0, inStart, 1},
			[]uint64{leaf, inLast, inStart}},
		{"interrupted by a signal at the first byte of a function", handler,
			[]uint64{restorer, 0, 0, 0, leaf, inLast, 0, 0, 0, inStart, 1},
			[]uint64{handler, restorer, leaf, inLast, inStart}},
		{"below a function whose CFA takes another register", leaf,
			[]uint64{inLast, 0, 0, 0, inComputed, 0, inStart, 1},
			[]uint64{leaf, inLast, inComputed, inStart}},
	} {
		for _, e := range evaluators {
			u := NewUnwinder(images)
			u.slow = e.slow
			var regs Regs
			regs.set(rule.IP, c.pc)
			regs.set(rule.SP, madeSP)
			regs.set(rule.BP, 0)
			regs.set(rule.BX, madeSP+40) // computed's
			stack := madeCopy(e.aligned, c.words...)
			stack.Thread = e.thread
			for range 1 + 2*e.thread {
				got := u.Unwind(space, &regs, stack)
				if !slices.Equal(got.IPs, c.want) || got.End != Root {
					t.Errorf("%s, %s: %#x, %v; want %#x", c.name, e.name, got.IPs, got.End, c.want)
				}
			}
		}
	}
}

// TestCFAGoesUp walks to a frame whose CFA is computed from a BP that points below it, so that the caller
// would be further down, or where the callee is.
func TestCFAGoesUp(t *testing.T) {
	space, images, at := pointerProgram(t)
	inWork, inRecurse, inMain, inStart := at["in_work"], at["in_recurse"], at["in_main"], at["in_start"]
	const recurseSP = madeSP + 24
	for _, c := range []struct {
		name string
		bp   uint64
		want []uint64
		end  Reason
	}{
		{"two words up", recurseSP, []uint64{inWork, inRecurse, inMain, inStart}, Root},
		{"one word up", recurseSP - 8, []uint64{inWork, inRecurse, inRecurse}, BadCFI},
		{"where it is", recurseSP - 16, []uint64{inWork, inRecurse}, BadCFI},
		{"further down", recurseSP - 24, []uint64{inWork, inRecurse}, BadCFI},
		{"below the copy", madeSP - 4096, []uint64{inWork, inRecurse}, NotCopied},
		{"nowhere", ^uint64(15), []uint64{inWork, inRecurse}, BadCFI},
	} {
		for _, e := range evaluators {
			u := NewUnwinder(images)
			u.slow, u.MaxFrames = e.slow, 50
			var regs Regs
			regs.set(rule.IP, inWork)
			regs.set(rule.SP, madeSP)
			regs.set(rule.BP, c.bp)
			// work's locals and return address, recurse's frame pointer and return address, main's. One word
			// up, CFA-8 is where recurse's frame pointer is: it is a return address, too.
			words := []uint64{0, inRecurse, inRecurse, madeSP + 40, inMain, 0, inStart, 1}
			if c.bp == recurseSP-8 {
				words[3] = inRecurse
			}
			stack := madeCopy(e.aligned, words...)
			stack.Thread = e.thread
			for range 1 + 2*e.thread {
				got := u.Unwind(space, &regs, stack)
				if !slices.Equal(got.IPs, c.want) || got.End != c.end {
					t.Errorf("%s, %s: %#x, %v; want %#x, %v", c.name, e.name, got.IPs, got.End, c.want, c.end)
				}
			}
		}
	}
}
