package unwind

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/unwind/image"
	"unspool/unwind/jit"
	"unspool/unwind/jit/jitdump"
	"unspool/unwind/jit/jittest"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// A jitdumpFile is one that a runtime would write (see package jitdump).
type jitdumpFile struct {
	t *testing.T
	*os.File
}

func newJitdump(t *testing.T) jitdumpFile {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), fmt.Sprintf("jit-%d.dump", os.Getpid())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	d := jitdumpFile{t, f}
	d.write(uint32(0x4a695444), uint32(1), uint32(40), uint32(62), uint32(0), uint32(os.Getpid()), uint64(0),
		uint64(0))
	return d
}

func (d jitdumpFile) write(fields ...any) {
	for _, v := range fields {
		if err := binary.Write(d, binary.LittleEndian, v); err != nil {
			d.t.Fatal(err)
		}
	}
}

// load writes the CFI of a piece of code, unless it is nil, and the code.
func (d jitdumpFile) load(addr, size uint64, cfi []byte) {
	if cfi != nil {
		f := jittest.EhFrame(size, cfi)
		d.write(uint32(jitdump.UnwindingInfo), uint32(40+len(f)), uint64(0), uint64(len(f)), uint64(0), uint64(0),
			f)
	}
	d.write(uint32(jitdump.CodeLoad), uint32(16+40+2+size), uint64(0), uint64(0), addr, addr, size, uint64(0),
		[]byte("f\x00"), make([]byte, size))
}

func (d jitdumpFile) move(from, to, size uint64) {
	d.write(uint32(jitdump.CodeMove), uint32(16+48), uint64(0), uint64(0), to, from, to, size, uint64(0))
}

// stackOf is a stack whose first word is at base.
func stackOf(base uint64, values ...uint64) *Stack {
	s := &Stack{Base: base, Asked: uint64(8 * len(values))}
	for _, v := range values {
		s.Data = binary.LittleEndian.AppendUint64(s.Data, v)
	}
	return s
}

// look makes the reader read generated code again.
func look(space *vmas.Space) { space.Generated.(*jit.ProcessCode).Due = time.Time{} }

// TestJitdump walks through code that only a jitdump describes, to which the runtime keeps adding.
func TestJitdump(t *testing.T) {
	const (
		code  = 0x5000_0000_0000
		stack = 0x7ffc_0000_0000
		a, b  = code, code + 0x100
		c, d  = code + 0x200, code + 0x300
	)
	file := newJitdump(t)
	file.load(a, 11, jittest.Trampoline)
	file.load(b, 33, jittest.Framed)

	table := vmas.NewTable("")
	pid := uint32(os.Getpid())
	table.Comm(pid, pid, []byte("test"), true)
	table.Mmap(pid, vmas.Map{Addr: code, Len: 0x10000, Prot: vmas.ProtExec | vmas.ProtRead,
		Name: []byte("//anon")})
	table.Mmap(pid, vmas.Map{Addr: code + 0x20000, Len: 4096, Prot: vmas.ProtExec | vmas.ProtRead,
		Name: []byte(file.Name())})
	space := table.Space(pid)

	u := NewUnwinder(image.NewStore("/proc"))
	u.Strict = true
	s := stackOf(stack, 0, b+10, 0, 0, 0, c+1, 0, 0)
	walk := func(pc uint64, want ...uint64) {
		t.Helper()
		var regs Regs
		regs.set(rule.IP, pc)
		regs.set(rule.SP, stack)
		regs.set(rule.BP, stack+32)
		res := u.Unwind(space, &regs, s)
		if !slices.Equal(res.IPs, want) || res.End != NoCFI {
			t.Errorf("from %#x: %#x, %v; want %#x", pc, res.IPs, res.End, want)
		}
		for _, f := range res.Frames[1:] {
			if f.Source != ByCFI {
				t.Errorf("from %#x: frames by %v", pc, sources(res))
			}
		}
	}
	// As when code beside it is taken for a copy of the file:
	imagesOf(u).Lookup(pid, space.Find(code+0x20000)).Parse()
	walk(a+6, a+6, b+10, c+1)
	if n := testing.AllocsPerRun(10, func() { walk(a+6, a+6, b+10, c+1) }); n > 2 { // walk's own
		t.Errorf("%v allocations", n)
	}

	file.move(a, d, 11)
	walk(d+6, d+6) // not looked at yet
	look(space)
	walk(d+6, d+6, b+10, c+1)
	file.load(b+8, 8, nil) // other code lies there now
	look(space)
	walk(d+6, d+6, b+10)

	// A process that executes another program loses what was known.
	table.Comm(pid, pid, []byte("other"), true)
	if space.Generated != nil {
		t.Error("generated code outlives an exec")
	}
}

// TestGeneratedCodeIsRead walks through code that this process has generated:
// trampolines as CPython makes them, which have no frame pointer.
func TestGeneratedCodeIsRead(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Skipf("no executable memory: %v", err)
	}
	code := uint64(uintptr(unsafe.Pointer(&mem[0])))
	const (
		stack    = 0x7ffc_0000_0000
		distance = 16
	)
	trampoline := []byte{0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3}
	larger := []byte{0x48, 0x83, 0xec, 24, 0xff, 0xd1, 0x48, 0x83, 0xc4, 24, 0xc3}
	for i := range 3 {
		copy(mem[distance*i:], trampoline)
	}
	table := vmas.NewTable("")
	pid := uint32(os.Getpid())
	table.Comm(pid, pid, []byte("test"), true)
	table.Mmap(pid, vmas.Map{Addr: code, Len: 4096, Prot: vmas.ProtExec | vmas.ProtRead, Name: []byte("//anon")})
	space := table.Space(pid)

	var regs Regs
	regs.set(rule.IP, code)
	regs.set(rule.SP, stack)
	regs.set(rule.BP, stack+8) // which is no frame pointer
	a, b := code+distance+6, code+2*distance+6
	walk := func(u *Unwinder, s *Stack, want ...uint64) {
		t.Helper()
		if res := u.Unwind(space, &regs, s); !slices.Equal(res.IPs, want) {
			t.Errorf("%#x, %v; want %#x", res.IPs, res.End, want)
		}
	}
	u := NewUnwinder(image.NewStore("/proc"))
	walk(u, stackOf(stack, a, 0, b, 0, 0, 0, 0), code, a, b)
	copy(mem[distance:], larger)
	look(space)
	walk(u, stackOf(stack, a, 0, 0, 0, b, 0, 0), code, a, b)
	// A word that follows no call is no return address.
	walk(u, stackOf(stack, a, 0, 0, 0, b+1, 0, 0), code, a)

	// What was known stays when the process is gone.
	look(space)
	unix.Munmap(mem)
	walk(u, stackOf(stack, a, 0, 0, 0, b, 0, 0), code, a, b)
	look(space)
	walk(u, stackOf(stack, a, 0, 0, 0, b, 0, 0), code, a, b)

	space.Generated = nil
	u.Strict = true
	walk(u, stackOf(stack, a, 0, 0, 0, b, 0, 0), code)
	space.Generated = nil
	walk(NewUnwinder(image.NewStore("")), stackOf(stack, a, 0, 0, 0, b, 0, 0), code)
}

// TestGeneratedCodeIsReadFarther walks through a function that returns through an epilogue shared with
// others, after calls: no path to a ret is short.
func TestGeneratedCodeIsReadFarther(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Skipf("no executable memory: %v", err)
	}
	defer unix.Munmap(mem)
	code := uint64(uintptr(unsafe.Pointer(&mem[0])))
	const (
		stack    = 0x7ffc_0000_0000
		epilogue = 3 << 12
		caller   = 5 << 12
	)
	function := []byte{
		0x48, 0x83, 0xec, 8, // sub $8, %rsp
		0xff, 0xd1, // call *%rcx
		0xff, 0xd2, // call *%rdx
		0x85, 0xc0, // test %eax, %eax
		0x0f, 0x84, 0, 0, 0, 0, // je epilogue
		0xff, 0xd2, // call *%rdx
		0xe9, 0, 0, 0, 0, // jmp epilogue
	}
	binary.LittleEndian.PutUint32(function[12:], epilogue-16)
	binary.LittleEndian.PutUint32(function[19:], epilogue-23)
	for i := range mem {
		mem[i] = 0xcc
	}
	copy(mem, function)
	copy(mem[epilogue:], []byte{0x48, 0x83, 0xc4, 8, 0xc3}) // add $8, %rsp; ret
	copy(mem[caller:], []byte{0xff, 0xd1, 0x0f, 0x0b})      // call *%rcx; ud2
	table := vmas.NewTable("")
	pid := uint32(os.Getpid())
	table.Comm(pid, pid, []byte("test"), true)
	table.Mmap(pid, vmas.Map{Addr: code, Len: 1 << 16, Prot: vmas.ProtExec | vmas.ProtRead,
		Name: []byte("//anon")})
	space := table.Space(pid)
	for _, c := range []struct {
		name string
		pc   uint64
		read bool
	}{
		{"before the calls", code + 4, true},
		{"behind the first one", code + 6, true},
		{"behind the branch", code + 16, true},
		{"at the jump", code + 18, true},
		{"another epilogue for the branch", code + 8, false},
	} {
		if !c.read { // that does not agree with the one for the jump
			copy(mem[epilogue+64:], []byte{0x48, 0x83, 0xc4, 24, 0xc3})
			binary.LittleEndian.PutUint32(mem[12:], epilogue+64-16)
		}
		var regs Regs
		regs.set(rule.IP, c.pc)
		regs.set(rule.SP, stack)
		regs.set(rule.BP, 1)
		u := NewUnwinder(image.NewStore("/proc"))
		space.Generated = nil
		want := []uint64{c.pc}
		if c.read {
			want = append(want, code+caller+2)
		}
		s := stackOf(stack, 0, code+caller+2, 0, code+caller+2, 0)
		if res := u.Unwind(space, &regs, s); !slices.Equal(res.IPs, want) || res.End != NoCFI {
			t.Errorf("%s: %#x, %v; want %#x", c.name, res.IPs, res.End, want)
		}
	}
}

// TestMethodWithoutAnEpilogue walks through a method as HotSpot compiles it on stack replacement: its loop has no end,
// and only the prologue says how large the frame is.
func TestMethodWithoutAnEpilogue(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Skipf("no executable memory: %v", err)
	}
	defer unix.Munmap(mem)
	code := uint64(uintptr(unsafe.Pointer(&mem[0])))
	const caller = 8 << 10
	for i := range mem {
		mem[i] = 0xf4
	}
	prologue := []byte{
		0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff, // mov %eax, -0x14000(%rsp)
		0x55,                // push %rbp
		0x48, 0x83, 0xec, 8, // sub $8, %rsp
	}
	loop := []byte{
		0xff, 0xd1, // call *%rcx
		0xeb, 0xfc, // jmp loop
	}
	at := copy(mem, prologue)
	copy(mem[at:], loop)
	copy(mem[caller:], []byte{0xff, 0xd1, 0x0f, 0x0b}) // call *%rcx; ud2
	table := vmas.NewTable("")
	pid := uint32(os.Getpid())
	table.Comm(pid, pid, []byte("test"), true)
	table.Mmap(pid, vmas.Map{Addr: code, Len: 1 << 16, Prot: vmas.ProtExec | vmas.ProtRead, Name: []byte("//anon")})
	space := table.Space(pid)
	for _, c := range []struct {
		name string
		sub  uint32 // in the prologue
		want []uint64
	}{
		{"a frame of four words", 8, []uint64{code + caller + 2}},
		{"a frame of six words", 24, nil}, // where no return address is
		{"none", 7, nil},
	} {
		binary.LittleEndian.PutUint32(mem[at-1:], c.sub|0x01d1ff<<8)
		mem[at+2] = 0xeb
		var regs Regs
		regs.set(rule.IP, code+uint64(at))
		regs.set(rule.SP, madeSP)
		regs.set(rule.BP, 1)
		space.Generated = nil
		u := NewUnwinder(image.NewStore("/proc"))
		got := u.Unwind(space, &regs, madeCopy(true, 0, 5, code+caller+2, 0, 0, 0))
		if want := append([]uint64{code + uint64(at)}, c.want...); !slices.Equal(got.IPs, want) {
			t.Errorf("%s: %#x, %v; want %#x", c.name, got.IPs, got.End, want)
		}
	}
}

// TestEndsOfAnInterpreter samples the first instructions and the returns of an interpreter whose CFI gives it
// one frame all over.
func TestEndsOfAnInterpreter(t *testing.T) {
	space, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call interpreter
in_start:
	nop
	.cfi_endproc
	.p2align 4
	.type interpreter, @function
interpreter:
	.cfi_startproc
	.cfi_def_cfa_offset 48
	push %rbp
after_push:
	push %rbx
after_both:
	sub $24, %rsp
inside:
	add $24, %rsp
after_add:
	pop %rbx
after_pop:
	pop %rbp
at_ret:
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`)
	words := []uint64{0, 0, 0, 0xb, 0xb, at["in_start"], 1, 0, 0, 0, 0, 0, 0}
	for label, skip := range map[string]int{"after_push": 4, "after_both": 3, "inside": 0, "after_add": 3,
		"after_pop": 4, "at_ret": 5} {
		u := NewUnwinder(images)
		var regs Regs
		regs.set(rule.IP, at[label])
		regs.set(rule.SP, madeSP)
		got := u.Unwind(space, &regs, madeCopy(true, words[skip:]...))
		if want := []uint64{at[label], at["in_start"]}; !slices.Equal(got.IPs, want) || got.End != Root {
			t.Errorf("%s: %#x, %v; want %#x", label, got.IPs, got.End, want)
		}
	}
}

// TestGeneratedCodeReturnsThroughARegister samples generated code at a jump to where a register says: to its
// return address, or to a function.
func TestGeneratedCodeReturnsThroughARegister(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Skipf("no executable memory: %v", err)
	}
	defer unix.Munmap(mem)
	code := uint64(uintptr(unsafe.Pointer(&mem[0])))
	copy(mem, []byte{0x41, 0xff, 0xe1}) // jmp *%r9
	known, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call caller
in_start:
	call *%rax
also_in_start:
	nop
	.cfi_endproc
caller:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset rbp, -16
	call *%rax
in_caller:
	pop %rbp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
ends:
	.cfi_startproc
	call *%rax
	.cfi_endproc
function:
	.cfi_startproc
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`)
	const base = 0x400000
	m := known.Find(base)
	table := vmas.NewTable("")
	pid := uint32(os.Getpid())
	table.Comm(pid, pid, []byte("test"), true)
	table.Mmap(pid, vmas.Map{Addr: base, Len: m.End - base, Prot: vmas.ProtExec | vmas.ProtRead,
		Name: []byte(m.File.Path)})
	table.Mmap(pid, vmas.Map{Addr: code, Len: 4096, Prot: vmas.ProtExec | vmas.ProtRead, Name: []byte("//anon")})
	space := table.Space(pid)
	for label, want := range map[string][]string{
		"in_caller": {"in_caller", "in_start"}, // by the register, and from there by CFI
		"function":  {"also_in_start"},         // by going on elsewhere
	} {
		u := NewUnwinder(images)
		var regs Regs
		regs.set(rule.IP, code)
		regs.set(rule.SP, madeSP)
		regs.set(9, at[label])
		addrs := []uint64{code}
		for _, l := range want {
			addrs = append(addrs, at[l])
		}
		res := u.Unwind(space, &regs, madeCopy(true, 0xb, at["in_start"], at["also_in_start"]))
		if whole := label == "in_caller"; !slices.Equal(res.IPs, addrs) || (res.End == Root) != whole {
			t.Errorf("to %s: %#x, %v; want %#x", label, res.IPs, res.End, addrs)
		}
	}
}

// TestThunks samples generated code that only chooses where to jump on, as mono's thunks for methods of
// interfaces do.
func TestThunks(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Skipf("no executable memory: %v", err)
	}
	defer unix.Munmap(mem)
	code := uint64(uintptr(unsafe.Pointer(&mem[0])))
	table := vmas.NewTable("")
	pid := uint32(os.Getpid())
	table.Comm(pid, pid, []byte("test"), true)
	table.Mmap(pid, vmas.Map{Addr: code, Len: 4096, Prot: vmas.ProtExec | vmas.ProtRead, Name: []byte("//anon")})
	space := table.Space(pid)
	const caller = 0x100
	behind := code + caller + 2
	for _, c := range []struct {
		name, text string
		top        uint64 // the word at SP
		found      bool
	}{
		{"one of two methods", "\x4d\x39\xda\x75\x03\x41\xff\x23\xff\x60\xe0", behind, true},
		{"not a return address", "\x4d\x39\xda\x75\x03\x41\xff\x23\xff\x60\xe0", behind + 1, false},
		{"one way is unknown", "\x4d\x39\xda\x75\x03\x41\xff\x23\xff\xd0\xff\x60\xe0", behind, false},
		{"something is pushed", "\x50\xff\x60\xe0", behind, false},
		{"a frame is made", "\x48\x83\xec\x08\xff\x60\xe0", behind, false},
		{"an endless loop", "\xeb\xfe", behind, false},
	} {
		clear(mem)
		copy(mem, c.text)
		copy(mem[caller:], "\xff\xd0\x0f\x0b") // call *%rax; ud2
		var regs Regs
		regs.set(rule.IP, code)
		regs.set(rule.SP, madeSP)
		regs.set(rule.BP, 1)
		space.Generated = nil
		u := NewUnwinder(image.NewStore("/proc"))
		got := u.Unwind(space, &regs, madeCopy(true, c.top, 0, 0, 0))
		want := []uint64{code}
		if c.found {
			want = append(want, behind)
		}
		if !slices.Equal(got.IPs, want) || got.End != NoCFI {
			t.Errorf("%s: %#x, %v; want %#x", c.name, got.IPs, got.End, want)
		}
	}
}

// TestHostInOneOfTwoProcesses walks from generated code to the interpreter that runs it. Before that, it walks the same
// stack in another process, which has nothing mapped where the interpreter is in the file: for that one only, the call
// leads to no interpreter.
func TestHostInOneOfTwoProcesses(t *testing.T) {
	first, images, at := labelledProgram(t, `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call dispatcher
in_start:
	nop
	.cfi_endproc
	.p2align 12
dispatcher:
	.cfi_startproc
	sub $40, %rsp
	.cfi_def_cfa_offset 48
	jmp *8(%rsp)
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`)
	whole := *firstMapping(first)
	program := vmas.Map{Addr: whole.Start, Len: whole.End - whole.Start, Prot: whole.Prot, Name: []byte(whole.File.Path)}
	cut := program
	cut.Len = at["dispatcher"] - whole.Start
	const isWhole, isCut = 1, 2
	table := vmas.NewTable("")
	table.Mmap(isWhole, program)
	table.Mmap(isCut, cut)
	for _, pid := range []uint32{isWhole, isCut} {
		table.Mmap(pid, vmas.Map{Addr: generatedAt, Len: 4096, Prot: whole.Prot, Name: []byte("//anon")})
	}
	u := NewUnwinder(images)
	for _, c := range []struct {
		pid  uint32
		want []uint64
		end  Reason
	}{
		{isCut, []uint64{generatedAt}, NoCFI},
		{isWhole, []uint64{generatedAt, at["in_start"]}, Root},
		{isCut, []uint64{generatedAt}, NoCFI},
	} {
		var regs Regs
		regs.set(rule.IP, generatedAt)
		regs.set(rule.SP, madeSP)
		got := u.Unwind(table.Space(c.pid), &regs, madeCopy(true, 0, 0, 0, 0, 0, at["in_start"], 0, 0))
		if !slices.Equal(got.IPs, c.want) || got.End != c.end {
			t.Errorf("process %d: %#x, %v; want %#x, %v", c.pid, got.IPs, got.End, c.want, c.end)
		}
	}
}
