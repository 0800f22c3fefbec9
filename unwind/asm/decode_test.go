package asm

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/arch/x86/x86asm"

	"unspool/testdata/programs"
)

// TestInstructionsAreAsLongAsObjdumpSays compares lengths over whole libraries.
func TestInstructionsAreAsLongAsObjdumpSays(t *testing.T) {
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("skipped for want of objdump")
	}
	files := programs.System(t)
	if testing.Short() {
		files = files[:1]
	}
	for _, path := range append(files, "/lib32/libc.so.6") {
		f, err := elf.Open(path)
		if err != nil {
			t.Log(err) // gcc-multilib's
			continue
		}
		defer f.Close()
		decode := (*insn).decode
		if f.Machine == elf.EM_386 {
			decode = (*insn).decode386
		}
		section := f.Section(".text")
		text, err := section.Data()
		if err != nil {
			t.Fatal(err)
		}
		n, wrong := 0, 0
		var in insn
		for said := sizesOf(t, objdump, path); len(said) >= 5; said = said[5:] {
			at, size := binary.LittleEndian.Uint32(said), int(said[4])
			n++
			if b := text[at:]; !decode(&in, b) || in.n != size {
				if wrong++; wrong <= 20 {
					t.Logf("%#x: % x: %d bytes, objdump says %d", section.Addr+uint64(at), b[:size], in.n, size)
				}
			}
		}
		t.Logf("%s: %d of %d instructions differ", path, wrong, n)
		if wrong*10_000 > n {
			t.Errorf("%s: %d of %d instructions differ", path, wrong, n)
		}
	}
}

// sizesOf is what objdump says about the instructions of a file, five bytes for each: where it is in .text, and how
// long it is. It is asked once in all runs of the tests.
func sizesOf(t *testing.T, objdump, path string) []byte {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprint("sizes of instructions ", objdump, " ", path, info.Size(), info.ModTime())
	dir := programs.Keep(t, key, func(dir string) {
		cmd := exec.Command(objdump, "-d", "-j", ".text", "--no-show-raw-insn", path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Skip(err)
		}
		var sizes []byte
		var first, last uint64
		var name string
		for lines := bufio.NewScanner(out); lines.Scan(); {
			addrText, rest, ok := strings.Cut(lines.Text(), ":\t")
			addr, err := strconv.ParseUint(strings.TrimSpace(addrText), 16, 64)
			if !ok || err != nil {
				continue
			}
			if first == 0 {
				first = addr
			}
			// Lines with only a prefix, and those with (bad), are data.
			if size := addr - last; last != 0 && size < 16 && isMnemonic(name) {
				sizes = binary.LittleEndian.AppendUint32(sizes, uint32(last-first))
				sizes = append(sizes, byte(size))
			}
			last, name = addr, rest
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "sizes"), sizes, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	sizes, err := os.ReadFile(filepath.Join(dir, "sizes"))
	if err != nil || len(sizes) == 0 {
		t.Fatalf("%d bytes: %v", len(sizes), err)
	}
	return sizes
}

// isMnemonic reports whether objdump has decoded an instruction, and not a single prefix.
func isMnemonic(s string) bool {
	fields := strings.Fields(s)
	for _, f := range fields {
		switch f {
		case "data16", "cs", "ds", "es", "ss", "fs", "gs", "lock", "rep", "repz", "repnz", "bnd", "notrack",
			"addr32", "rex.W", "xacquire", "xrelease":
			continue
		}
		return !strings.HasPrefix(f, "rex") && !strings.HasPrefix(f, "(bad)") && !strings.HasPrefix(f, ".byte")
	}
	return false
}

// writtenRegs gives the general registers that x86asm's first operand names.
func writtenRegs(inst x86asm.Inst) uint16 {
	r, ok := inst.Args[0].(x86asm.Reg)
	if !ok {
		return 0
	}
	switch {
	case r >= x86asm.RAX && r <= x86asm.R15:
		return 1 << (r - x86asm.RAX)
	case r >= x86asm.EAX && r <= x86asm.R15L:
		return 1 << (r - x86asm.EAX)
	}
	return 0
}

// TestWritesOfRegistersAreKnown compares with golang.org/x/arch which registers the
// instructions of libc write. It knows fewer instructions, but those are right.
func TestWritesOfRegistersAreKnown(t *testing.T) {
	f, err := elf.Open(programs.System(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	// Those that only read their first operand.
	reads := map[x86asm.Op]bool{
		x86asm.CMP: true, x86asm.TEST: true, x86asm.PUSH: true, x86asm.CALL: true, x86asm.JMP: true,
		x86asm.BT: true, x86asm.NOP: true, x86asm.MUL: true, x86asm.DIV: true, x86asm.IDIV: true,
		x86asm.PTEST: true, x86asm.WRFSBASE: true, x86asm.WRGSBASE: true, x86asm.UD1: true, x86asm.UD0: true,
	}
	var in insn
	n := 0
	for pos := 0; pos < len(text); pos += max(in.n, 1) {
		if !in.decode(text[pos:]) {
			in.n = 0
			continue
		}
		inst, err := x86asm.Decode(text[pos:], 64)
		if err != nil || inst.Len != in.n || reads[inst.Op] || in.vector != legacy {
			continue
		}
		want := writtenRegs(inst)
		if inst.Op == x86asm.IMUL && inst.Args[1] == nil {
			want = 0
		}
		var s state
		s.init(false)
		for i := range s.regs {
			s.regs[i] = value{kind: ofSP, off: int32(i) << 20}
		}
		before := s
		s.step(&in, 0)
		for r := range s.regs {
			if want>>r&1 != 0 && s.regs[r] == before.regs[r] && !keepsItself(inst) {
				t.Errorf("% x: %v: register %d keeps its value", text[pos:pos+in.n], inst, r)
			}
		}
		if want != 0 {
			n++
		}
	}
	t.Logf("%d instructions with a register as destination", n)
}

// keepsItself reports whether an instruction writes back the value that was there.
func keepsItself(inst x86asm.Inst) bool {
	switch inst.Op {
	case x86asm.MOV, x86asm.XCHG:
		return inst.Args[0] == inst.Args[1]
	case x86asm.LEA: // also of another register, which may have the same value
		return true
	case x86asm.ADD, x86asm.SUB:
		imm, ok := inst.Args[1].(x86asm.Imm)
		return ok && imm == 0
	}
	return false
}
