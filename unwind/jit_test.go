package unwind

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi"
	"unspool/unwind/image"
	"unspool/unwind/jitdump"
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
	d.write(uint32(0x4a695444), uint32(1), uint32(40), uint32(62), uint32(0), uint32(os.Getpid()), uint64(0), uint64(0))
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
		f := ehFrame(size, cfi)
		d.write(uint32(jitdump.UnwindingInfo), uint32(40+len(f)), uint64(0), uint64(len(f)), uint64(0), uint64(0), f)
	}
	d.write(uint32(jitdump.CodeLoad), uint32(16+40+2+size), uint64(0), uint64(0), addr, addr, size, uint64(0), []byte("f\x00"), make([]byte, size))
}

func (d jitdumpFile) move(from, to, size uint64) {
	d.write(uint32(jitdump.CodeMove), uint32(16+48), uint64(0), uint64(0), to, from, to, size, uint64(0))
}

// ehFrame is an .eh_frame that lies behind code of the given size: a CIE with
// the state at a function's entry, and an FDE with the instructions.
func ehFrame(size uint64, insns []byte) []byte {
	cie := []byte{0x14, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0}
	at := len(cie) + 8 // where the FDE says which code it is about
	fde := binary.LittleEndian.AppendUint32(nil, uint32(len(cie)+4))
	fde = binary.LittleEndian.AppendUint32(fde, -uint32((size+7)&^7)-uint32(at))
	fde = binary.LittleEndian.AppendUint32(fde, uint32(size))
	fde = append(append(fde, 0), insns...)
	fde = append(fde, make([]byte, -len(fde)&7)...)
	return append(binary.LittleEndian.AppendUint32(cie, uint32(len(fde))), fde...)
}

var (
	// sub $8, %rsp; call *%rcx; add $8, %rsp; ret
	trampolineCFI = []byte{0x44, 0x0e, 16, 0x46, 0x0e, 8}
	// push %rbp; mov %rsp, %rbp; ...
	frameCFI = []byte{0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6}
)

// stackOf is a stack whose first word is at base.
func stackOf(base uint64, values ...uint64) *Stack {
	s := &Stack{Base: base, Asked: uint64(8 * len(values))}
	for _, v := range values {
		s.Data = binary.LittleEndian.AppendUint64(s.Data, v)
	}
	return s
}

// look lets what is known of generated code grow old.
func look(space *vmas.Space) { space.Generated.(*jit).due = time.Time{} }

// TestJitdump walks through code of which nothing but a jitdump tells, which
// the runtime goes on to write.
func TestJitdump(t *testing.T) {
	const (
		code  = 0x5000_0000_0000
		stack = 0x7ffc_0000_0000
		a, b  = code, code + 0x100
		c, d  = code + 0x200, code + 0x300
	)
	file := newJitdump(t)
	file.load(a, 11, trampolineCFI)
	file.load(b, 33, frameCFI)

	table := vmas.NewTable("")
	pid := uint32(os.Getpid())
	table.Comm(pid, pid, []byte("test"), true)
	table.Mmap(pid, vmas.Map{Addr: code, Len: 0x10000, Prot: vmas.ProtExec | vmas.ProtRead, Name: []byte("//anon")})
	table.Mmap(pid, vmas.Map{Addr: code + 0x20000, Len: 4096, Prot: vmas.ProtExec | vmas.ProtRead, Name: []byte(file.Name())})
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
	u.images.Lookup(pid, space.Find(code+0x20000)).Parse() // as when code beside it is taken for a copy of the file
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

	// A process that executes another program has nothing of it.
	table.Comm(pid, pid, []byte("other"), true)
	if space.Generated != nil {
		t.Error("generated code outlives an exec")
	}
}

// TestYoungestCode holds what a dump finds against a search through all code.
func TestYoungestCode(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var d dump
	written := make(map[uint64]jitdump.Record) // the youngest, by address
	age := make(map[uint64]int)
	for range 200 {
		for range 1 + rng.IntN(20) {
			// Runtimes reuse memory in pieces of about the same size.
			r := jitdump.Record{Kind: jitdump.CodeLoad, Addr: 64 * rng.Uint64N(1000), Size: 1 + rng.Uint64N(100)}
			d.add(&r)
			written[r.Addr], age[r.Addr] = r, int(d.seq)
		}
		d.merge()
		for range 20 {
			pc := rng.Uint64N(64 * 1000)
			want := -1
			for addr, r := range written {
				if pc-addr < r.Size {
					want = max(want, age[addr])
				}
			}
			got := -1
			if c := d.find(pc); c != nil {
				got = int(c.seq)
			}
			if got != want {
				t.Fatalf("%#x: found the code written as number %d, want %d", pc, got, want)
			}
		}
	}
}

// TestGeneratedCodeIsRead walks through code that this process has generated:
// trampolines as CPython makes them, which have no frame pointer.
func TestGeneratedCodeIsRead(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
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

func FuzzJitdump(f *testing.F) {
	f.Add(ehFrame(11, trampolineCFI), uint64(0x1000), uint64(11), uint64(6))
	f.Add(ehFrame(33, frameCFI), ^uint64(7), uint64(33), uint64(9))
	f.Fuzz(func(t *testing.T, frame []byte, addr, size, off uint64) {
		var d dump
		r := jitdump.Record{Kind: jitdump.CodeLoad, Addr: addr, Size: size, Frame: frame}
		d.add(&r)
		d.merge()
		var row dwarfcfi.Row
		if err := d.row(addr+off, &row); err == nil {
			if off >= size {
				t.Fatalf("a row for %#x in code of %#x bytes", off, size)
			}
			rule.Compile(&row, addr+off)
		}
	})
}
