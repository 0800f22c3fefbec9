package unwind

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/testdata/programs"
	"unspool/unwind/image"
	"unspool/unwind/module"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// words386 is a program whose stack the reader can check by eye: main, which
// made a frame with a frame pointer, called work, which did not; code without
// CFI with a frame pointer; and a signal frame whose interrupted PC, SP and
// BP are three words.
const words386 = `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined eip
	call main
	nop
	.cfi_endproc
main:
	.cfi_startproc
	push %ebp
	.cfi_def_cfa_offset 8
	.cfi_offset ebp, -8
	mov %esp, %ebp
	.cfi_def_cfa_register ebp
	call work
	pop %ebp
	.cfi_def_cfa esp, 4
	ret
	.cfi_endproc
work:
	.cfi_startproc
	sub $8, %esp
	.cfi_def_cfa_offset 12
	nop
	add $8, %esp
	.cfi_def_cfa_offset 4
	ret
	.cfi_endproc
bare:
	nop
	nop
restorer:
	.cfi_startproc
	.cfi_signal_frame
	.cfi_escape 0x0f, 3, 0x74, 4, 6      # CFA = *(esp + 4)
	.cfi_escape 0x10, 8, 2, 0x74, 0      # eip at esp
	.cfi_escape 0x10, 5, 2, 0x74, 8      # ebp at esp + 8
	nop
	nop
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`

// A built386 is words386 as process 1 has it mapped, with its addresses.
type built386 struct {
	space                                   *vmas.Space
	images                                  *image.Store
	inStart, inMain, inWork, bare, restorer uint64
}

func build386(t testing.TB) *built386 {
	t.Helper()
	dir := t.TempDir()
	asm, file := filepath.Join(dir, "words.s"), filepath.Join(dir, "words")
	if err := os.WriteFile(asm, []byte(words386), 0o666); err != nil {
		t.Fatal(err)
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped for want of gcc")
	}
	if out, err := exec.Command(gcc, "-m32", "-nostdlib", "-static", "-Wl,--eh-frame-hdr", "-o", file,
		asm).CombinedOutput(); err != nil {
		t.Skipf("skipped for want of a gcc that assembles with -m32: %s", out)
	}
	b := new(built386)
	b.space, b.images = asImage(t, file, 0x8000000)
	m := firstMapping(b.space)
	elf := contentsOf(t, file)
	off, ok := elf.offset(elf.Entry)
	if err := b.images.Lookup(1, m).Parse(); !ok || err != nil {
		t.Fatalf("no offset for _start: %v", err)
	}
	start := m.Start + off
	main := start + 6
	work := main + 10
	b.inStart, b.inMain, b.inWork, b.bare, b.restorer = start+5, main+8, work+3, work+8, work+10
	return b
}

// TestCallsOf386AreNotJudged asks whether a call of a function has called other code: of calls of x86-64 that is known.
func TestCallsOf386AreNotJudged(t *testing.T) {
	b := build386(t)
	m := firstMapping(b.space)
	im := b.images.Lookup(1, m)
	for _, callee := range []uint64{b.bare - m.Start, module.Elsewhere} {
		if im.CallsOther(m, b.inMain, callee, false) {
			t.Errorf("the call leads elsewhere than to %#x", callee)
		}
	}
}

// words is a stack of 32-bit words.
func words(list ...uint64) []byte {
	data := make([]byte, 0, 4*len(list))
	for _, w := range list {
		data = binary.LittleEndian.AppendUint32(data, uint32(w))
	}
	return data
}

func TestStackOfWords386(t *testing.T) {
	b := build386(t)
	const sp = 0xffc01000
	calls := words(
		0, 0, // work's locals
		b.inMain,  // where work returns to
		0,         // main's saved EBP
		b.inStart, // where main returns to
		1,         // argc
	)
	chain := []uint64{b.inWork, b.inMain, b.inStart}
	signal := append(words(
		b.inWork, // interrupted EIP
		sp+12,    // ESP
		sp+24,    // EBP
	), calls...)
	for _, c := range []struct {
		name   string
		pc, bp uint64
		data   []byte
		cut    int
		want   []uint64
		end    Reason
		source Source // of the first caller
	}{
		{"whole stack", b.inWork, sp + 12, calls, 0, chain, Root, ByCFI},
		{"cut below main's return address", b.inWork, sp + 12, calls, 8, chain[:2], DumpTooShort, ByCFI},
		{"cut below work's return address", b.inWork, sp + 12, calls, 16, chain[:1], DumpTooShort, 0},
		{"nothing", b.inWork, sp + 12, calls, 24, chain[:1], DumpTooShort, 0},
		{"signal frame", b.restorer + 1, 0, signal, 0, append([]uint64{b.restorer + 1}, chain...), Root, ByCFI},
		{"frame pointer", b.bare + 1, sp, words(sp+8, b.inMain, 0, b.inStart, 1), 0,
			[]uint64{b.bare + 1, b.inMain, b.inStart}, Root, ByFramePointer},
		{"frame pointer that goes down", b.bare + 1, sp + 8, words(0, 0, sp+4, b.inMain, 0), 0,
			[]uint64{b.bare + 1}, NoCFI, 0},
		{"frame pointer to no code", b.bare + 1, sp, words(sp+8, 0x1000), 0, []uint64{b.bare + 1}, NoCFI, 0},
		{"return to nowhere", b.inWork, sp + 12, words(0, 0, 0x1000), 0, chain[:1], Unmapped, 0},
		{"return to 0", b.inWork, sp + 12, words(0, 0, 0), 0, chain[:1], Unmapped, 0},
		{"first frame of a coroutine", b.inWork, sp + 12, words(0, 0, b.inMain, 0, 0), 0, chain[:2], Root, ByCFI},
	} {
		var regs Regs
		regs.set(rule.IP386, c.pc)
		regs.set(rule.SP386, sp)
		regs.set(rule.BP386, c.bp)
		u := NewUnwinder(b.images)
		stack := Stack{Base: sp, Data: c.data[:len(c.data)-c.cut], Asked: uint64(len(c.data) - c.cut)}
		got := u.UnwindByRows(rule.I386, b.space, &regs, &stack)
		if !equal(got.IPs, c.want) || got.End != c.end {
			t.Errorf("%s: %#x %v, want %#x %v", c.name, got.IPs, got.End, c.want, c.end)
		} else if len(c.want) > 1 && got.Frames[1].Source != c.source {
			t.Errorf("%s: first caller by %v, want %v", c.name, got.Frames[1].Source, c.source)
		}
		if n := testing.AllocsPerRun(50, func() { u.UnwindByRows(rule.I386, b.space, &regs, &stack) }); n != 0 {
			t.Errorf("%s: %v allocations a sample", c.name, n)
		}
		if u.Strict = true; c.source == ByFramePointer {
			if got := u.UnwindByRows(rule.I386, b.space, &regs, &stack); got.End != NoCFI {
				t.Errorf("%s, strict: %v", c.name, got.End)
			}
		}
	}

	u := NewUnwinder(b.images)
	u.MaxFrames = 2
	var regs Regs
	regs.set(rule.IP386, b.inWork)
	regs.set(rule.SP386, sp)
	regs.set(rule.BP386, sp+12)
	if got := u.UnwindByRows(rule.I386, b.space, &regs, &Stack{Base: sp, Data: calls}); got.End != DepthLimit ||
		len(got.IPs) != 2 {
		t.Errorf("limit of 2 frames: %d frames, %v", len(got.IPs), got.End)
	}
}

// TestModesDoNotMix: the sample's ABI says which CFI may hold.
func TestModesDoNotMix(t *testing.T) {
	b := build386(t)
	var regs Regs
	regs.set(rule.IP, b.inWork)
	regs.set(rule.SP, 0x1000)
	stack := Stack{Base: 0x1000, Data: make([]byte, 64)}
	if got := NewUnwinder(b.images).Unwind(b.space, &regs, &stack); got.End != NoImage || len(got.IPs) != 1 {
		t.Errorf("i386 image, x86-64 walk: %d frames, %v", len(got.IPs), got.End)
	}

	space, images := asImage(t, programs.System(t)[0], 0x10000000)
	m := firstMapping(space)
	library := contentsOf(t, programs.System(t)[0])
	for fde := range library.cfi.FDEs() {
		off, _ := library.offset(fde.Start)
		var regs Regs
		regs.set(rule.IP386, m.Start+off)
		regs.set(rule.SP386, 0x1000)
		if got := NewUnwinder(images).UnwindByRows(rule.I386, space, &regs, &stack); got.End != NoImage ||
			len(got.IPs) != 1 {
			t.Errorf("x86-64 image, i386 walk: %d frames, %v", len(got.IPs), got.End)
		}
		break
	}
}

func TestRegs386InPerfOrder(t *testing.T) {
	var r Regs
	// AX BX CX DX SI DI BP SP IP FLAGS, without CX, and with R8.
	r.SetPerf(rule.I386, 1<<16|1<<9|0x1ff&^(1<<2), perfWords(10, func(i int) uint64 {
		return 0xffff_ffff_0000_0001 + uint64(i)
	}))
	want := Regs{Value: [rule.MaxRegs]uint64{1, 0, 3, 2, 7, 6, 4, 5, 8}, Known: 0x1ff &^ (1 << 1)}
	if r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	r.SetPerf(rule.I386, 0x1ff, perfWords(3, func(i int) uint64 { return uint64(i) }))
	if r.Known != 1<<0|1<<3|1<<1 {
		t.Errorf("3 registers in the sample, known are %#x", r.Known)
	}
}

func TestIsProcessStart386(t *testing.T) {
	const sp = 0xffd00000
	arg := uint64(sp + 400)
	for _, c := range []struct {
		name  string
		words []uint64
		want  bool
	}{
		{"as the kernel left it", []uint64{2, arg, arg + 4, 0}, true},
		{"below pushed arguments", []uint64{0, 0, arg, 7, 2, arg, arg + 4, 0}, true},
		{"too far below", append(make([]uint64, 13), 2, arg, arg+4, 0), false},
		{"no arguments", []uint64{0, 0, 0, 0}, false},
		{"argument below the stack", []uint64{1, 400, 0}, false},
		{"not closed by a zero", []uint64{1, arg, arg}, false},
		{"cut", []uint64{2, arg}, false},
	} {
		w := walk{stack: &Stack{Base: sp, Data: words(c.words...)}}
		if got := w.isProcessStart(rule.I386, sp); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// FuzzUnwind386 walks forged stacks, in which every word can be an address of
// code or of the stack.
func FuzzUnwind386(f *testing.F) {
	b := build386(f)
	code := []uint64{b.inStart, b.inMain, b.inWork, b.bare + 1, b.restorer + 1}
	f.Add([]byte{0x84, 3, 0x40, 0x41, 0x42, 0x80, 0x43, 0x81}, uint8(4), uint8(2))
	f.Add([]byte{0x84, 0x40, 0x40, 0x84, 0x40, 0x40}, uint8(4), uint8(0))
	f.Fuzz(inputs.Many(f, func(t *testing.T, list []byte, pc, bp uint8) {
		defer costs.For(len(list)).Check(t)()
		const sp = 0xffc01000
		var data []byte
		for _, w := range list {
			v := uint64(w)
			switch w >> 6 {
			case 1:
				v = sp + 4*uint64(w&0x3f)
			case 2:
				v = code[int(w&0x3f)%len(code)]
			case 3:
				v = 0xffffff00 | uint64(w)
			}
			data = append(data, words(v)...)
		}
		var regs Regs
		regs.set(rule.IP386, code[int(pc)%len(code)])
		regs.set(rule.SP386, sp)
		regs.set(rule.BP386, sp+uint64(bp))
		u := NewUnwinder(b.images)
		got := u.UnwindByRows(rule.I386, b.space, &regs, &Stack{Base: sp, Data: data, Asked: uint64(len(data))})
		// SP goes up by a word at least, but for maxDown signal frames.
		if most := (len(list) + 2) * (maxDown + 2); len(got.IPs) > most {
			t.Errorf("%d frames from %d words", len(got.IPs), len(list))
		}
		for i, ip := range got.IPs {
			if i > 0 && b.space.Find(ip) == nil && b.space.Find(ip-1) == nil {
				t.Errorf("frame %d is %#x, in no mapping", i, ip)
			}
		}
	}))
}
