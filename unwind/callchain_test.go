package unwind

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"unspool/unwind/image"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// Functions with a frame pointer (main, recurse) and without (work, bare), and one
// that saves BP and has something else in it (scratch). The
// labels are the addresses that the calls return to.
const pointersSource = `
	.macro pointer name, callee
\name:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset rbp, -16
	mov %rsp, %rbp
	.cfi_def_cfa_register rbp
	call \callee
in_\name:
	pop %rbp
	.cfi_def_cfa rsp, 8
	ret
	.cfi_endproc
	.endm
	.macro plain name, callee
\name:
	.cfi_startproc
	sub $16, %rsp
	.cfi_def_cfa_offset 24
	call \callee
in_\name:
	add $16, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.endm

	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call main
in_start:
	nop
	.cfi_endproc
	pointer main, recurse
	pointer recurse, *%rax
	plain bare, *%rax
	plain work, work
scratch:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset rbp, -16
	sub $16, %rsp
	.cfi_def_cfa_offset 32
	call recurse
in_scratch:
	add $16, %rsp
	.cfi_def_cfa_offset 16
	pop %rbp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`

// pointerProgram maps the program and gives the addresses of its labels.
func pointerProgram(t *testing.T) (*vmas.Space, *image.Store, map[string]uint64) {
	t.Helper()
	return labelledProgram(t, pointersSource)
}

// labelledProgram assembles a program, maps it and gives the addresses of its labels.
func labelledProgram(t *testing.T, source string, flags ...string) (*vmas.Space, *image.Store,
	map[string]uint64) {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped for want of gcc")
	}
	asm := filepath.Join(t.TempDir(), "labelled.s")
	path := asm[:len(asm)-2]
	if err := os.WriteFile(asm, []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	args := append(flags, "-nostdlib", "-static", "-Wl,--eh-frame-hdr", "-o", path, asm)
	if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	space, images := asImage(t, path, 0x400000)
	file := contentsOf(t, path)
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	labels := make(map[string]uint64)
	for _, s := range symbols {
		if off, ok := file.offset(s.Value); ok {
			labels[s.Name] = 0x400000 + off
		}
	}
	return space, images, labels
}

// A madeFrame is a frame of a hand-made stack: its locals, the frame pointer it
// saved, if it has one, and the address that it returns to.
type madeFrame struct {
	locals  int // words
	pointer bool
	ret     uint64
}

const madeSP = 0x7ffc_0000_1000

// makeStack lays out frames, leaf first, and returns BP in the leaf.
func makeStack(frames []madeFrame) (words []uint64, bp uint64) {
	slot := &bp
	words = make([]uint64, 0, 1<<12)
	for _, f := range frames {
		words = append(words, make([]uint64, f.locals)...)
		if f.pointer {
			*slot = madeSP + 8*uint64(len(words))
			words = append(words, 0)
			slot = &words[len(words)-1]
		}
		words = append(words, f.ret)
	}
	return append(words, 1), bp // argc
}

// kernelWalk is perf_callchain_user: frame pointers alone, at most limit entries.
func kernelWalk(ip, bp uint64, words []uint64, limit int) []uint64 {
	chain := []uint64{contextUser, ip}
	for len(chain)-1 < limit {
		i := (bp - madeSP) / 8
		if bp < madeSP || i+1 >= uint64(len(words)) {
			break
		}
		chain = append(chain, words[i+1])
		bp = words[i]
	}
	return chain
}

func TestKernelChainGoesOnBeyondTheCopy(t *testing.T) {
	space, images, at := pointerProgram(t)
	inWork, inBare, inRecurse, inMain, inStart := at["in_work"], at["in_bare"], at["in_recurse"], at["in_main"],
		at["in_start"]
	const unmapped, noReturn = 0x1234_5678, 1 // noReturn: an address in recurse that follows no call

	work := madeFrame{2, false, inRecurse}
	recursion := func(n int) []madeFrame { // n calls of recurse by itself
		return slices.Repeat([]madeFrame{{2, true, inRecurse}}, n)
	}
	top := []madeFrame{{2, true, inMain}, {0, true, inStart}}
	join := slices.Concat[[]madeFrame]
	// Of work's frame there are 3 words, of every other 4, and 3 with bare.
	const inCopy = 3 + 4*4 // work and four recursions
	none := func([]uint64) {}

	for _, c := range []struct {
		name   string
		frames []madeFrame
		copied int                    // words
		limit  int                    // of the kernel's entries
		change func(chain []uint64)   // the kernel's, whose first entry is the marker
		extra  func(*Unwinder, *Regs) // settings
		own    int                    // frames of ours; the sampled one is the first
		added  int                    // frames of the kernel's
		end    Reason
	}{
		{"to the root", join([]madeFrame{work}, recursion(20), top), inCopy, 127, none, nil, 6, 18, Root},
		// work has no frame pointer, so the kernel's chain has one return address
		// less than there are frames: by address alone it would be one off.
		{"identical return addresses", join([]madeFrame{work}, recursion(60)), inCopy, 127, none, nil, 6, 56,
			DumpTooShort},
		{"one recursion in the copy", join([]madeFrame{work}, recursion(20), top), 3 + 4, 127, none, nil, 3, 21,
			Root},
		{"copy that ends between frame pointer and return address", join([]madeFrame{work}, recursion(20), top),
			inCopy + 3, 127, none, nil, 6, 18, Root},
		{"whole stack in the copy", join([]madeFrame{work}, recursion(4), top), inCopy + 6, 127, none, nil, 8, 0,
			Root},
		{"cut at the kernel's limit", join([]madeFrame{work}, recursion(200), top), inCopy, 127, none, nil, 6, 122,
			DumpTooShort},
		{"cut right at the end of the copy", join([]madeFrame{work}, recursion(20), top), inCopy, 5, none, nil, 6,
			0, DumpTooShort},

		{"not anchored: no frame pointer in the copy", join([]madeFrame{work}, recursion(20), top), 3, 127, none,
			nil, 2, 0, DumpTooShort},
		{"not anchored: another return address within the copy", join([]madeFrame{work}, recursion(20), top),
			inCopy, 127,
			func(chain []uint64) { chain[3] = inBare }, nil, 6, 0, DumpTooShort},
		{"not anchored: another PC", join([]madeFrame{work}, recursion(20), top), inCopy, 127,
			func(chain []uint64) { chain[1]++ }, nil, 6, 0, DumpTooShort},
		{"not anchored: BP is no frame pointer",
			join([]madeFrame{{2, false, inBare}, {2, false, inBare}}, recursion(20), top), 5, 127, none,
			nil, 2, 0, DumpTooShort},
		{"no user part", join([]madeFrame{work}, recursion(20), top),
			inCopy, 127, func(chain []uint64) { chain[0] = ^uint64(127) }, nil, 6, 0, DumpTooShort},

		{"entry in no mapping", join([]madeFrame{work}, recursion(10), []madeFrame{{2, true, unmapped}}, top),
			inCopy, 127, none, nil, 6, 6, DumpTooShort},
		{"entry that follows no call", join([]madeFrame{work}, recursion(10),
			[]madeFrame{{2, true, inRecurse + noReturn}}, top),
			inCopy, 127, none, nil, 6, 6, DumpTooShort},
		{"function without a frame pointer beyond the copy",
			join([]madeFrame{work}, recursion(10), []madeFrame{{2, true, inBare}, {2, false, inRecurse}},
				recursion(5), top),
			inCopy, 127, none, nil, 6, 7, DumpTooShort},
		{"function without a frame pointer in the copy",
			join([]madeFrame{work, {2, true, inBare}, {2, false, inRecurse}}, recursion(10), top),
			3 + 4 + 3 + 4, 127, none, nil, 5, 11, Root},
		{"function without a frame pointer at the end of the copy",
			join([]madeFrame{work}, recursion(2), []madeFrame{{2, true, inBare}, {2, false, inRecurse}}, recursion(5),
				top),
			3 + 3*4, 127, none, nil, 5, 0, DumpTooShort},

		{"strict", join([]madeFrame{work}, recursion(20), top),
			inCopy, 127, none, func(u *Unwinder, _ *Regs) { u.Strict = true }, 6, 0, DumpTooShort},
		{"depth limit", join([]madeFrame{work}, recursion(20), top),
			inCopy, 127, none, func(u *Unwinder, _ *Regs) { u.MaxFrames = 10 }, 6, 4, DepthLimit},
	} {
		t.Run(c.name, func(t *testing.T) {
			words, bp := makeStack(c.frames)
			var data []byte
			for _, w := range words[:c.copied] {
				data = binary.LittleEndian.AppendUint64(data, w)
			}
			var regs Regs
			regs.set(rule.IP, inWork)
			regs.set(rule.SP, madeSP)
			regs.set(rule.BP, bp)
			u := NewUnwinder(images)
			if c.extra != nil {
				c.extra(u, &regs)
			}
			chain := kernelWalk(inWork, bp, words, c.limit)
			c.change(chain)
			stack := Stack{Base: madeSP, Data: data, Asked: uint64(len(data))}
			walk := func() Result {
				return u.Continue(space, &regs, &stack, u.Unwind(space, &regs, &stack), len(chain),
					func(i int) uint64 { return chain[i] })
			}
			got := walk()

			want := []uint64{inWork}
			for _, f := range c.frames[:c.own+c.added-1] {
				want = append(want, f.ret)
			}
			if !slices.Equal(got.IPs, want) || got.End != c.end {
				t.Fatalf("%d frames %#x, %v; want %d %#x, %v", len(got.IPs), got.IPs, got.End, len(want), want, c.end)
			}
			if len(got.Frames) != len(got.IPs) {
				t.Errorf("%d IPs, %d frames", len(got.IPs), len(got.Frames))
			}
			for i, by := range sources(got) {
				if (by == ByKernel) != (i >= c.own) {
					t.Errorf("frame %d of %d is by %v", i, len(got.IPs), by)
				}
			}
			if n := testing.AllocsPerRun(10, func() { walk() }); n != 0 {
				t.Errorf("%v allocations a sample", n)
			}
		})
	}
}

// TestKernelChainIsOfAnotherStack has chains for which all conditions of [Unwinder.Continue] hold but one.
// Each has an entry that could be the next caller, and is taken only if all conditions hold.
func TestKernelChainIsOfAnotherStack(t *testing.T) {
	space, images, at := pointerProgram(t)
	inScratch, inRecurse := at["in_scratch"], at["in_recurse"]
	const beyond, further = madeSP + 64, madeSP + 200 // of the copy
	for _, c := range []struct {
		name   string
		pc, bp uint64
		words  []uint64 // of the copy
		chain  []uint64
		want   []uint64
	}{
		// recurse was called by scratch, which had further in BP, and that by recurse, whose frame pointer
		// is beyond the copy.
		{"the same frame pointer: goes on", inRecurse, madeSP, []uint64{beyond, inScratch, 0, 0, beyond, inRecurse},
			[]uint64{inScratch, inRecurse}, []uint64{inRecurse, inScratch, inRecurse, inRecurse}},
		{"another frame pointer at the end of the copy", inRecurse, madeSP,
			[]uint64{further, inScratch, 0, 0, beyond, inRecurse},
			[]uint64{inScratch, inRecurse}, []uint64{inRecurse, inScratch, inRecurse}},
		// scratch has in BP where two of its locals are, which look like a frame whose caller's frame
		// pointer is that of its own caller.
		{"not anchored: a frame that is not one of the walk", inScratch, madeSP,
			[]uint64{beyond, inRecurse, beyond, inRecurse},
			[]uint64{inRecurse, inRecurse}, []uint64{inScratch, inRecurse}},
		{"anchored: the same frame at its place", inScratch, madeSP + 16, []uint64{0, 0, beyond, inRecurse},
			[]uint64{inRecurse, inRecurse}, []uint64{inScratch, inRecurse, inRecurse}},
		{"BP is not the frame pointer of the last frame", inRecurse, madeSP, []uint64{beyond, inScratch},
			[]uint64{inScratch, inRecurse}, []uint64{inRecurse, inScratch}},
		{"nothing in the copy: BP is the frame pointer", inRecurse, beyond, nil,
			[]uint64{inRecurse, inScratch, inRecurse}, []uint64{inRecurse, inRecurse, inScratch}},
		{"nothing in the copy: no frame pointer", at["in_bare"], beyond, nil,
			[]uint64{inRecurse, inScratch}, []uint64{at["in_bare"]}},
		{"nothing in the copy: BP saved, and something else in it", inScratch, beyond, nil,
			[]uint64{inRecurse, inScratch}, []uint64{inScratch}},
	} {
		var data []byte
		for _, w := range c.words {
			data = binary.LittleEndian.AppendUint64(data, w)
		}
		var regs Regs
		regs.set(rule.IP, c.pc)
		regs.set(rule.SP, madeSP)
		regs.set(rule.BP, c.bp)
		stack := Stack{Base: madeSP, Data: data, Asked: uint64(len(data))}
		chain := append([]uint64{contextUser, c.pc}, c.chain...)
		u := NewUnwinder(images)
		walked := u.Unwind(space, &regs, &stack)
		got := u.Continue(space, &regs, &stack, walked, len(chain), func(i int) uint64 { return chain[i] })
		if !slices.Equal(got.IPs, c.want) || got.End != DumpTooShort {
			t.Errorf("%s: %#x, %v; want %#x, %v", c.name, got.IPs, got.End, c.want, DumpTooShort)
		}
	}
}

// TestKernelChainIsNotAnchoredInALiveStack has a chain whose last entry in the copy is a frame of the walk.
// Where that frame was read from the process after the sample, it may be another one by then.
func TestKernelChainIsNotAnchoredInALiveStack(t *testing.T) {
	space, images, at := pointerProgram(t)
	const beyond = madeSP + 64 // of the copy
	inScratch, inRecurse := at["in_scratch"], at["in_recurse"]
	var data []byte
	for _, w := range []uint64{beyond, inScratch, 0, 0, beyond, inRecurse} {
		data = binary.LittleEndian.AppendUint64(data, w)
	}
	var regs Regs
	regs.set(rule.IP, inRecurse)
	regs.set(rule.SP, madeSP)
	regs.set(rule.BP, madeSP)
	stack := Stack{Base: madeSP, Data: data, Asked: uint64(len(data))}
	chain := []uint64{contextUser, inRecurse, inScratch, inRecurse}
	for source, want := range map[Source]int{ByCFI: 4, ByLive: 3} {
		u := NewUnwinder(images)
		walked := u.Unwind(space, &regs, &stack)
		for i := 1; i < len(walked.Frames); i++ {
			walked.Frames[i].Source = source
		}
		got := u.Continue(space, &regs, &stack, walked, len(chain), func(i int) uint64 { return chain[i] })
		if len(got.IPs) != want {
			t.Errorf("frames %v: %d of them, want %d: %#x", source, len(got.IPs), want, got.IPs)
		}
	}
}

// TestKernelChainOfCodeWithoutCFI continues through memory that no file backs, as
// JIT compilers make it: by convention its code has frame pointers.
func TestKernelChainOfCodeWithoutCFI(t *testing.T) {
	table := vmas.NewTable("")
	table.Comm(1, 1, []byte("test"), true)
	table.Mmap(1, vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte("//anon")})
	frames := slices.Repeat([]madeFrame{{2, true, 0x1800}}, 9)
	words, bp := makeStack(append(frames, madeFrame{2, true, 0x5000}))
	var data []byte
	for _, w := range words[:3*4] {
		data = binary.LittleEndian.AppendUint64(data, w)
	}
	var regs Regs
	regs.set(rule.IP, 0x1234)
	regs.set(rule.SP, madeSP)
	regs.set(rule.BP, bp)
	u := NewUnwinder(image.NewStore(t.TempDir()))
	stack := Stack{Base: madeSP, Data: data, Asked: uint64(len(data))}
	chain := kernelWalk(0x1234, bp, words, 127)
	walked := u.Unwind(table.Space(1), &regs, &stack)
	got := u.Continue(table.Space(1), &regs, &stack, walked, len(chain), func(i int) uint64 { return chain[i] })
	want := append([]uint64{0x1234}, slices.Repeat([]uint64{0x1800}, 9)...)
	if !slices.Equal(got.IPs, want) || got.End != DumpTooShort {
		t.Errorf("%#x, %v; want %#x, %v", got.IPs, got.End, want, DumpTooShort)
	}

	// Only the convention says that the sampled code has one.
	empty := Stack{Base: madeSP, Asked: uint64(len(data))}
	walked = u.Unwind(table.Space(1), &regs, &empty)
	got = u.Continue(table.Space(1), &regs, &empty, walked, len(chain), func(i int) uint64 { return chain[i] })
	if len(got.IPs) != 1 || got.End != DumpTooShort {
		t.Errorf("of an empty copy: %#x, %v", got.IPs, got.End)
	}
}

func TestUserPart(t *testing.T) {
	const kernel = ^uint64(127)
	for _, c := range []struct {
		name  string
		chain []uint64
		want  []uint64
	}{
		{"nothing", nil, nil},
		{"kernel only", []uint64{kernel, 8}, nil},
		{"user only", []uint64{contextUser, 1, 2}, []uint64{1, 2}},
		{"behind the kernel's", []uint64{kernel, 8, contextUser, 1}, []uint64{1}},
		{"marker alone", []uint64{kernel, 8, contextUser}, nil},
		{"with words that look like markers", []uint64{contextUser, 1, kernel, contextUser, 2},
			[]uint64{1, kernel, contextUser, 2}},
		{"deferred", []uint64{kernel, 8, contextDeferred, 7}, nil},
	} {
		got := userPart(len(c.chain), func(i int) uint64 { return c.chain[i] })
		if !slices.Equal(c.chain[got.first:got.last], c.want) {
			t.Errorf("%s: %#x, want %#x", c.name, c.chain[got.first:got.last], c.want)
		}
	}
}
