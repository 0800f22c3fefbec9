package unwind

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/unwind/image"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// TestWalkThroughCodeWithoutCFI walks a stack that the reader can check by eye: _start, which has CFI, called
// outer, and that called inner; both have no CFI.
func TestWalkThroughCodeWithoutCFI(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped for want of gcc")
	}
	const source = `
	.text
	.globl _start
	.type _start, @function
_start:
	.cfi_startproc
	.cfi_undefined rip
	call outer
	nop
	.cfi_endproc
	.p2align 4
	.type outer, @function
outer:
	push %rbp
	xor %ebp, %ebp
	sub $8, %rsp
	call inner
	add $8, %rsp
	pop %rbp
	ret
	.p2align 4
	.type inner, @function
inner:
	push %rbx
	nop
	pop %rbx
	ret
	.p2align 4
restorer:
	mov $15, %rax
	syscall
	.section .note.GNU-stack,"",@progbits
`
	dir := t.TempDir()
	asm, prog := filepath.Join(dir, "words.s"), filepath.Join(dir, "words")
	if err := os.WriteFile(asm, []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-nostdlib", "-static", "-Wl,--eh-frame-hdr", "-o", prog,
		asm).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	space, images := asImage(t, prog, 0x400000)
	m := firstMapping(space)
	file := contentsOf(t, prog)
	off, ok := file.offset(file.Entry)
	if !ok {
		t.Fatal("no offset for _start")
	}
	start := m.Start + off
	inStart, inOuter, inInner, restorer := start+5, start+16+12, start+48+1, start+64

	const sp = 0x7ffc_0000_1000
	words := []uint64{
		7,       // the RBX that inner saved
		inOuter, // where inner returns to
		0,       // outer's room
		42,      // the RBP that outer saved
		inStart, // where outer returns to
	}
	stackOf := func(words []uint64) *Stack {
		var data []byte
		for _, w := range words {
			data = binary.LittleEndian.AppendUint64(data, w)
		}
		return &Stack{Base: sp, Data: data}
	}
	var regs Regs
	regs.set(rule.IP, inInner)
	regs.set(rule.SP, sp)
	regs.set(rule.BP, 0)

	u := NewUnwinder(images)
	w := u.begin(space, stackOf(words))
	if !w.followsCall(restorer) || w.followsCall(restorer+1) {
		t.Error("a handler returns to the restorer, which follows no call")
	}
	got := u.Unwind(space, &regs, stackOf(words))
	if want := []uint64{inInner, inOuter, inStart}; !equal(got.IPs, want) || got.End != Root {
		t.Errorf("%#x %v, want %#x %v", got.IPs, got.End, want, Root)
	}
	if want := []Source{BySample, ByHeuristic, ByHeuristic}; !slices.Equal(sources(got), want) {
		t.Errorf("found by %v, want %v", sources(got), want)
	}
	stack := stackOf(words)
	if n := testing.AllocsPerRun(100, func() { u.Unwind(space, &regs, stack) }); n != 0 {
		t.Errorf("%v allocations a sample", n)
	}

	for _, c := range []struct {
		name string
		ra   uint64
	}{
		{"return address that follows no call", inOuter + 4},
		{"return address in no mapping", 0x1234},
	} {
		forged := slices.Clone(words)
		forged[1] = c.ra
		if got := u.Unwind(space, &regs, stackOf(forged)); len(got.IPs) != 1 || got.End != NoCFI {
			t.Errorf("%s: %#x %v", c.name, got.IPs, got.End)
		}
	}
	u.Strict = true
	if got := u.Unwind(space, &regs, stackOf(words)); len(got.IPs) != 1 || got.End != NoCFI {
		t.Errorf("strict: %#x %v", got.IPs, got.End)
	}
}

// TestThreadThatHasJustBegun is about a thread at the system call that made it, in a function like glibc's
// clone3: the call has returned in both threads, no CFI describes the stack, and that of the new thread is
// empty.
func TestThreadThatHasJustBegun(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped for want of gcc")
	}
	const source = `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call 1f
	nop
	.cfi_endproc
1:	.cfi_startproc
	mov $435, %eax
	.cfi_endproc
	syscall
	test %rax, %rax
	jl 1f
	je 1f
	ret
1:	.cfi_startproc
	.cfi_undefined rip
	xor %ebp, %ebp
	call *%rdx
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`
	dir := t.TempDir()
	asm, prog := filepath.Join(dir, "clone.s"), filepath.Join(dir, "clone")
	if err := os.WriteFile(asm, []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-nostdlib", "-static", "-Wl,--eh-frame-hdr", "-o", prog,
		asm).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	space, images := asImage(t, prog, 0x400000)
	m := firstMapping(space)
	file := contentsOf(t, prog)
	off, ok := file.offset(file.Entry)
	if !ok {
		t.Fatal("no offset for _start")
	}
	returned := m.Start + off + 5     // in _start
	syscalled := returned + 1 + 5 + 2 // where the system call returns to
	const sp, tid = 0x7f00_0000_1000, 4711
	u := NewUnwinder(images)
	for _, pc := range []uint64{syscalled, syscalled + 3, syscalled + 5} {
		for _, c := range []struct {
			name   string
			ax     uint64
			words  []uint64
			frames int
			end    Reason
		}{
			{"new thread", 0, []uint64{sp, 0}, 1, Root},
			{"new thread, nothing mapped above", 0, nil, 1, Root},
			{"who made it", tid, []uint64{returned}, 2, Root},
			{"child of a fork", 0, []uint64{returned}, 2, Root},
			{"who made it, stack overwritten", tid, []uint64{sp, 0}, 1, NoCFI},
		} {
			var data []byte
			for _, w := range c.words {
				data = binary.LittleEndian.AppendUint64(data, w)
			}
			var regs Regs
			regs.set(rule.IP, pc)
			regs.set(rule.SP, sp)
			regs.set(rule.BP, 1)
			regs.set(rule.AX, c.ax)
			got := u.Unwind(space, &regs, &Stack{Base: sp, Data: data})
			if len(got.IPs) != c.frames || got.End != c.end {
				t.Errorf("%s, %d bytes behind: %#x %v, want %d frames and %v", c.name, pc-syscalled, got.IPs, got.End,
					c.frames, c.end)
			}
		}
	}
}

// TestGoThreadThatHasJustBegun is the same for Go's clone, up to where the new thread sets its SP once more.
// What is above that SP is no return address, but may look like one.
func TestGoThreadThatHasJustBegun(t *testing.T) {
	b := openGoBinary(t)
	start, _ := b.function("runtime.rt0_go.abi0")
	clone, code := b.function("runtime.clone.abi0")
	called := bytes.Index(code, []byte{0x0f, 0x05})      // syscall
	moved := bytes.Index(code, []byte{0x48, 0x89, 0xf4}) // mov %rsi, %rsp
	if called < 0 || moved < called {
		t.Fatalf("the code of clone: % x", code)
	}
	const sp, tid = 0xc000_0010_0000, 4711
	u := NewUnwinder(b.images)
	for _, c := range []struct {
		name   string
		off    int
		ax     uint64
		frames int
	}{
		{"the new thread", called + 2, 0, 1},
		{"the new thread, before its branch", called + 6, 0, 1},
		{"the new thread, behind its branch", moved, 0, 1},
		{"the new thread, later", moved + 3, 0, 1},
		{"who made it", called + 2, tid, 2},
		{"who made it, during the call", called + 2, ^uint64(unix.ENOSYS - 1), 2},
		{"who made it, before its branch", called + 6, tid, 2},
		{"who makes it", called, 0, 2},
	} {
		var regs Regs
		regs.set(rule.IP, clone+uint64(c.off))
		regs.set(rule.SP, sp)
		regs.set(rule.BP, 0)
		regs.set(rule.AX, c.ax)
		stack := Stack{Base: sp, Data: binary.LittleEndian.AppendUint64(nil, start+16)}
		if got := u.Unwind(b.space, &regs, &stack); len(got.IPs) != c.frames || got.End != Root {
			t.Errorf("%s: %#x %v, want %d frames", c.name, got.IPs, got.End, c.frames)
		}
	}
}

// TestGuessBeyondTheCopy samples assembly that keeps SP in a register and makes much room below it, as
// OpenBLAS's kernels do: the copy ends in that room.
func TestGuessBeyondTheCopy(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call kernel
in_start:
	nop
	.cfi_endproc
	.p2align 4
	.type kernel, @function
kernel:
	sub $16, %rsp
	mov %rbx, (%rsp)
	mov %rsp, %rbx
	sub $0x7080, %rsp
	and $-4096, %rsp
in_kernel:
	nop
	mov %rbx, %rsp
	mov (%rsp), %rbx
	add $16, %rsp
	ret
	.section .note.GNU-stack,"",@progbits
`)
	for _, c := range []struct {
		name  string
		rbx   uint64
		words []uint64
		want  []uint64
		end   Reason
	}{
		{"in the copy", madeSP + 16, []uint64{0, 0, 0, 0, at["in_start"], 1},
			[]uint64{at["in_kernel"], at["in_start"]}, Root},
		{"beyond it", madeSP + 0x7000, []uint64{0, 0, 0, 0}, []uint64{at["in_kernel"]}, DumpTooShort},
		{"no stack", 1 << 60, []uint64{0, 0, 0, 0}, []uint64{at["in_kernel"]}, NoCFI},
	} {
		u := NewUnwinder(images)
		var regs Regs
		regs.set(rule.IP, at["in_kernel"])
		regs.set(rule.SP, madeSP)
		regs.set(rule.BX, c.rbx)
		got := u.Unwind(space, &regs, madeCopy(true, c.words...))
		if !slices.Equal(got.IPs, c.want) || got.End != c.end {
			t.Errorf("%s: %#x, %v; want %#x, %v", c.name, got.IPs, got.End, c.want, c.end)
		}
	}
}

// TestMayLeaveIsOfTheFile asks whether a direct call can have led to generated code, in processes some of which have
// something else mapped where the called function is in the file. What one of them is told does not depend on which
// others were asked about before.
func TestMayLeaveIsOfTheFile(t *testing.T) {
	first, _, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call returning
behind:
	nop
	.cfi_endproc
	.p2align 12
returning:
	.cfi_startproc
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`)
	whole := *firstMapping(first)
	program := vmas.Map{Addr: whole.Start, Len: whole.End - whole.Start, Prot: whole.Prot, Name: []byte(whole.File.Path)}
	before := program
	before.Len = at["returning"] - whole.Start
	over := vmas.Map{Addr: at["returning"], Len: 4096, Prot: whole.Prot, Name: []byte("//anon")}
	const isWhole, isCut, isOver = 1, 2, 3
	for _, order := range [][]uint32{{isWhole, isCut, isOver}, {isCut, isOver, isWhole}, {isOver, isWhole, isCut}} {
		u, table := NewUnwinder(image.NewStore("/proc")), vmas.NewTable("")
		table.Mmap(isWhole, program)
		table.Mmap(isCut, before)
		table.Mmap(isOver, program)
		table.Mmap(isOver, over)
		for _, pid := range order {
			if w := u.begin(table.Space(pid), new(Stack)); w.mayLeave(at["behind"]) {
				t.Errorf("order %v: in process %d, the call of a function that only returns may lead anywhere", order, pid)
			}
		}
	}
}
