package asm

import (
	"bytes"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/dwarfcfi"

	"unspool/dwarfcfi/elf"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/testdata/programs"
	"unspool/unwind/rule"
	"unspool/unwind/x86"
)

// openCode reads the code of a file: with fdes, only the code that they do not
// cover, else all of it.
func openCode(t testing.TB, path string, fdes iter.Seq2[uint64, uint64]) (*Code, *dwarfcfi.Table) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	layout, err := elf.ReadLayout(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	sections, err := dwarfcfi.ReadSections(f, layout)
	if err != nil {
		t.Fatal(err)
	}
	table, err := dwarfcfi.New(sections)
	if err != nil {
		t.Fatal(err)
	}
	return New(f, layout, Covered{FDEs: fdes}), table
}

// TestRulesFromCodeAgreeWithCFI reads the code of libraries with CFI as if they
// had none, and compares the rules with those of the CFI.
func TestRulesFromCodeAgreeWithCFI(t *testing.T) {
	every := 31
	if !programs.AllOracles() {
		every = 211
	}
	for _, path := range programs.System(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c, table := openCode(t, path, nil)
			compareWithCFI(t, c, table, every, c.Rule)
		})
	}
}

// TestRulesNearbyAgreeWithCFI does the same for rules that are found without reading
// the rest of the code, as if the CFI had holes of a few functions each.
func TestRulesNearbyAgreeWithCFI(t *testing.T) {
	const functions = 8
	for _, path := range programs.System(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c, table := openCode(t, path, nil)
			var starts []uint64
			for fde, err := range table.FDEs() {
				if err != nil {
					t.Fatal(err)
				}
				starts = append(starts, fde.Start)
			}
			slices.Sort(starts)
			near := New(c.r, c.layout, Covered{})
			near.covered.Gap = func(addr uint64) (h Hole, begins, ok bool) {
				i, ok := slices.BinarySearch(starts, addr)
				if !ok {
					i--
				}
				i -= i % functions
				return Hole{starts[i], starts[min(i+functions, len(starts)-1)]}, false, true
			}
			compareWithCFI(t, c, table, 1511, func(addr uint64) (rule.Rule, bool) {
				near.left = mostWork
				return near.ruleNearby(addr)
			})
		})
	}
}

// contradicted reports whether code moves SP by a constant within a row that counts the CFA from SP: one end of the row
// is wrong. Assembly of OpenSSL and GMP has such CFI.
func contradicted(c *Code, row *dwarfcfi.Row) bool {
	if row.CFA.Kind != dwarfcfi.CFARegister || int(row.CFA.Reg) != rule.AMD64.SP {
		return false
	}
	var in insn
	for pc := row.Start; pc < row.End; pc += uint64(in.Len) {
		b := c.bytes(pc)
		if !in.Decode(b) {
			return false
		}
		text := string(b[:in.Len])
		moves := false
		for _, begin := range []string{"\x48\x83\xec", "\x48\x83\xc4", "\x48\x81\xec", "\x48\x81\xc4", // sub, add
			"\x48\x8d\x64\x24", "\x48\x8d\xa4\x24"} { // lea
			moves = moves || strings.HasPrefix(text, begin)
		}
		reg := text[len(text)-1]
		moves = moves || len(text) <= 2 && reg >= 0x50 && reg < 0x60 && (len(text) == 1 || text[0] == 0x41) // push, pop
		if moves && pc+uint64(in.Len) < row.End {
			return true
		}
	}
	return false
}

// compareWithCFI compares the rules of all code that CFI covers, and that does not contradict it.
func compareWithCFI(t *testing.T, c *Code, table *dwarfcfi.Table, every int,
	ask func(addr uint64) (rule.Rule, bool)) {
	var asked, answered, agreed, odd, shown, rows, wrong int
	n := 0
	var in insn
	for fde, err := range table.FDEs() {
		if err != nil {
			t.Fatal(err)
		}
		for row, err := range fde.Rows() {
			if err != nil {
				t.Fatal(err)
			}
			if rows++; contradicted(c, row) {
				wrong++
				continue
			}
			for pc := row.Start; pc < row.End; pc += uint64(in.Len) {
				if !in.Decode(c.bytes(pc)) {
					break
				}
				if n++; n%every != 0 || in.isPadding() {
					continue
				}
				want := rule.Compile(row, pc)
				asked++
				at := pc
				if turn, _ := in.turn(pc); turn == calls || turn == callsFar {
					at += uint64(in.Len) - 1 // return addresses are looked up at the last byte of the call
				}
				got, ok := ask(at)
				if !ok {
					continue
				}
				if k := want.Kind(); k != rule.FromSP && k != rule.FromBP && k != rule.Sigframe {
					odd++
					continue
				}
				same, compared := sameRule(c, pc, got, want)
				if !compared {
					odd++
					continue
				}
				answered++
				if same {
					agreed++
				} else if shown++; shown <= 40 {
					t.Logf("%#x (function %#x): code %s, CFI %s", pc, fde.Start, show(got), show(want))
				}
			}
		}
	}
	t.Logf("%d of %d rows are contradicted by the code", wrong, rows)
	if wrong*200 > rows {
		t.Error("CFI is hardly that bad")
	}
	t.Logf("%d asked, %.2f%% answered, %.3f%% of those agree (%d not); %d that cannot be compared", asked,
		100*float64(answered)/float64(asked), 100*float64(agreed)/float64(answered), answered-agreed, odd)
	if answered == 0 || agreed*1000 < answered*999 {
		t.Error("fewer than 99.9% agree")
	}
}

func show(r rule.Rule) string {
	names := map[rule.Rule]string{
		rule.FromSP: "SP", rule.FromBP: "BP", rule.GuessSP: "SP", rule.GuessBP: "BP", rule.GuessSaved: "saved",
		rule.Sigframe: "sigframe", rule.EndOfStack: "end",
	}
	return fmt.Sprintf("%s+%d, BP at %d", names[r.Kind()], r.CFA(), r.BP())
}

// sameRule reports whether a rule from code means the same as a rule from CFI.
// They cannot be compared if one is from SP and the other from BP.
func sameRule(c *Code, pc uint64, got, want rule.Rule) (same, compared bool) {
	if got.Kind() == rule.Sigframe || want.Kind() == rule.Sigframe {
		return got == want, true
	}
	if want.Kind() == rule.FromBP && got.Kind() == rule.GuessSP {
		// If there is a frame pointer, CFI uses it.
		h, _ := c.chart().hole(pc)
		f, ok := c.fromStart(pc, h)
		if !ok {
			return false, false
		}
		got = f.bp
	}
	if want.Kind() == rule.FromSP && got.Kind() == rule.GuessBP {
		return false, false
	}
	if got.Kind()-rule.GuessSP != want.Kind()-rule.FromSP || got.CFA() != want.CFA() {
		return false, true
	}
	saved := want.BP()
	if saved != got.BP() && want.Kind() == rule.FromSP && saved > want.CFA() {
		saved = 0 // it was popped
	}
	return saved == got.BP() || got.BP() == 8*rule.MaxBP, true
}

// assemble makes a Code of one segment at image address base, with a symbol table
// without functions: starts of functions are known from calls only.
func assemble(t testing.TB, text string) *Code {
	t.Helper()
	const base = 0x1000
	layout := &elf.Layout{
		Loads: []elf.Load{{Offset: 0, Vaddr: base, Filesz: uint64(len(text)), Memsz: uint64(len(text)),
			Flags: elf.PF_R | elf.PF_X}},
		Text: []elf.Range{{Name: ".init", Start: base, End: base + uint64(len(text))}},
	}
	return New(strings.NewReader(text), layout, Covered{})
}

// TestRuleAtEachInstruction has functions that are easily checked by eye. Each is at
// 0x1000, and is known to start there.
func TestRuleAtEachInstruction(t *testing.T) {
	sp := func(c, b rule.Rule) rule.Rule { return rule.GuessSP | b<<4 | c<<16 }
	bp := func(c, b rule.Rule) rule.Rule { return rule.GuessBP | b<<4 | c<<16 }
	saved := func(k, m, b rule.Rule) rule.Rule { return rule.GuessSaved | b<<4 | k<<16 | m<<28 }
	inReg := func(reg, m, b rule.Rule) rule.Rule { return rule.GuessReg | b<<4 | reg<<16 | m<<20 }
	for _, c := range []struct {
		name string
		text string
		want map[uint64]rule.Rule // by offset; rule.None: not ok
	}{
		{"leaf", "\x31\xc0\xc3", map[uint64]rule.Rule{0: sp(1, 0), 2: sp(1, 0)}},
		{"pushes", "\x55\x53\x48\x83\xec\x18\x90\x48\x83\xc4\x18\x5b\x5d\xc3", map[uint64]rule.Rule{
			0: sp(1, 0), 1: sp(2, 2), 2: sp(3, 2), 6: sp(6, 2), 11: sp(3, 2), 12: sp(2, 2), 13: sp(1, 0)}},
		{"frame pointer, then alloca", "\x55\x48\x89\xe5\x48\x29\xc4\x90\xc9\xc3", map[uint64]rule.Rule{
			4: sp(2, 2), 7: bp(2, 2), 9: sp(1, 0)}},
		{"middle of an instruction", "\x48\x83\xec\x08\x48\x83\xc4\x08\xc3",
			map[uint64]rule.Rule{1: rule.None, 4: sp(2, 0)}},
		// mov %rsp, %rax; sub $64, %rsp; and $-32, %rsp; mov %rax, 8(%rsp); nop; mov 8(%rsp), %rsp; ret
		{"aligned, old SP saved",
			"\x48\x89\xe0\x48\x83\xec\x40\x48\x83\xe4\xe0\x48\x89\x44\x24\x08\x90\x48\x8b\x64\x24\x08\xc3",
			map[uint64]rule.Rule{7: sp(9, 0), 16: saved(1, 1, 0), 22: sp(1, 0)}},
		// mov %rsp, %rcx; and $-32, %rsp; sub $32, %rsp; call 1f; nop; mov %rcx, %rsp; ret; 1: xor %eax, %eax; ret
		{"aligned, old SP in a register that the callee leaves alone",
			"\x48\x89\xe1\x48\x83\xe4\xe0\x48\x83\xec\x20\xe8\x05\x00\x00\x00\x90\x48\x89\xcc\xc3\x31\xc0\xc3",
			map[uint64]rule.Rule{0: sp(1, 0), 7: inReg(x86.CX, 1, 0), 15: inReg(x86.CX, 1, 0), 16: inReg(x86.CX, 1, 0),
				20: sp(1, 0), 21: sp(1, 0)}},
		// The same, and 1: xor %ecx, %ecx; ret
		{"aligned, old SP in a register that the callee changes",
			"\x48\x89\xe1\x48\x83\xe4\xe0\x48\x83\xec\x20\xe8\x05\x00\x00\x00\x90\x48\x89\xcc\xc3\x31\xc9\xc3",
			map[uint64]rule.Rule{7: inReg(x86.CX, 1, 0), 16: rule.None}},
		// test %edi, %edi; jz 1f; push %rax; 1: ret
		{"ways that disagree", "\x85\xff\x74\x01\x50\x90\xeb\xfd",
			map[uint64]rule.Rule{0: sp(1, 0), 4: sp(1, 0), 5: rule.None}},
		{"SP from elsewhere", "\x48\x89\xfc\x90\xeb\xfd", map[uint64]rule.Rule{0: sp(1, 0), 3: rule.None}},
	} {
		code := assemble(t, c.text)
		for off, want := range c.want {
			got, ok := code.Rule(0x1000 + off)
			if got != want || ok != (want != rule.None) {
				t.Errorf("%s: at %d %v, want %v", c.name, off, got, want)
			}
		}
	}
}

// TestRuleFromTheWayOut has code whose start is not known, as nothing calls it.
func TestRuleFromTheWayOut(t *testing.T) {
	c := assemble(t, "\xeb\xfe\x90\x48\x83\xc4\x18\x5b\x5d\xc3")
	for off, want := range map[uint64]rule.Rule{2: rule.GuessSP | 2<<4 | 6<<16, 7: rule.GuessSP | 2<<4 | 3<<16,
		9: rule.GuessSP | 1<<16} {
		if got, _ := c.Rule(0x1000 + off); got != want {
			t.Errorf("at %d: %v, want %v", off, got, want)
		}
	}
}

// TestMusl is about the two pieces of code in musl that are known by their bytes.
func TestMusl(t *testing.T) {
	const restorer = "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"
	c := assemble(t, "\xc3\x90\x90\x90"+restorer+"\x90")
	// the byte before the restorer, its first byte, the system call, and the address behind it
	for _, off := range []uint64{3, 4, 11, 13} {
		if got, _ := c.Rule(0x1000 + off); got != rule.Sigframe {
			t.Errorf("restorer at %d: %v", off, got)
		}
	}
	// syscall; test %eax, %eax; jnz 1f; xor %ebp, %ebp; pop %rdi; call *%r9; exit
	c = assemble(t, "\x0f\x05\x85\xc0\x75\x0f\x31\xed\x5f\x41\xff\xd1\x89\xc7\x31\xc0\xb0\x3c\x0f\x05\xf4\xc3")
	if got, _ := c.Rule(0x1000 + 11); got != rule.EndOfStack {
		t.Errorf("clone's child: %#x", got)
	}
}

func TestFollowsCall(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       bool
	}{
		{"direct", "\xe8\xfb\xff\xff\xff", true},
		{"direct, to nowhere", "\xe8\xfb\xff\xff\x7f", false},
		{"register", "\xff\xd0", true},
		{"high register", "\x41\xff\xd1", true},
		{"memory", "\xff\x13", true},
		{"memory with displacement", "\xff\x53\x08", true},
		{"memory with SIB", "\xff\x54\xc3\x08", true},
		{"memory with SIB and long displacement", "\x42\xff\x94\xe3\x00\x01\x00\x00", true},
		{"GOT", "\xff\x15\x00\x00\x00\x00", true},
		{"thread-local, padded", "\x66\x48\xe8\xf9\xff\xff\xff", true},
		{"notrack", "\x3e\xff\xd0", true},
		{"jump", "\xff\xe0", false},
		{"push", "\xff\x73\x08", false},
		{"nothing", "\x90\x90\x90", false},
	} {
		code := assemble(t, c.text+"\xc3")
		for range 2 { // found, and remembered
			if got := code.FollowsCall(0x1000 + uint64(len(c.text))); got != c.want {
				t.Errorf("%s: %v", c.name, got)
			}
		}
	}
}

// countingReader counts the reads of a file that is all zeros.
type countingReader struct{ reads int }

func (r *countingReader) ReadAt(p []byte, _ int64) (int, error) {
	r.reads++
	clear(p)
	return len(p), nil
}

// TestScatteredCodeIsReadOnce asks for calls all over a file, again and again, as the walks of an
// interpreter's functions do: none of these reads the file each time.
func TestScatteredCodeIsReadOnce(t *testing.T) {
	const places, apart = 32, 20 << 10
	var file countingReader
	code := New(&file, &elf.Layout{Loads: []elf.Load{{Filesz: places * apart, Memsz: places * apart,
		Flags: elf.PF_X}}}, Covered{})
	for range 10 {
		for i := range uint64(places) {
			code.DirectCall(apart*i + 100)
		}
	}
	if file.reads > places {
		t.Errorf("%d places were read %d times", places, file.reads)
	}
}

// FuzzCode reads arbitrary code, which must neither panic nor take long, and
// asks the same twice.
func FuzzCode(f *testing.F) {
	f.Add([]byte("\x55\x48\x89\xe5\x53\x48\x83\xec\x18\xe8\x00\x00\x00\x00\x48\x83\xc4\x18\x5b\x5d\xc3"),
		uint16(9), uint64(0x1000))
	f.Add([]byte("\x48\x89\xe0\x48\x83\xe4\xe0\x48\x89\x44\x24\x08\x90\x48\x8b\x64\x24\x08\xc3"), uint16(12),
		uint64(0))
	f.Add([]byte("\xc8\x10\x00\x00\x75\xfe\xc9\xc3\xc5\xf8\x77\x62\xf1\x7c\x48\x28\xc0\xeb\xe0"), uint16(4),
		^uint64(0)-20)
	for _, text := range inputs.Sections(40, 1<<10, ".text", inputs.Programs...) {
		f.Add(text, uint16(len(text)), uint64(0x1000))
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, text []byte, at uint16, base uint64) {
		defer costs.For(len(text)).Check(t)()
		size := uint64(len(text))
		layout := &elf.Layout{
			Loads: []elf.Load{{Vaddr: base, Filesz: size, Memsz: size, Flags: elf.PF_X}},
			Entry: base + uint64(at)/2,
		}
		if at&1 != 0 {
			layout.Text = []elf.Range{{Name: ".init", Start: base, End: base + size}}
			layout.PLT = []elf.Range{{Name: ".plt", Start: base + size/2, End: base + size}}
		}
		c := New(bytes.NewReader(text), layout, Covered{FDEs: func(yield func(a, b uint64) bool) {
			_ = yield(base+3, base+5) && yield(base+uint64(at), base+uint64(at)+2)
		}})
		if at&2 != 0 {
			c.covered.Gap = func(addr uint64) (h Hole, begins, ok bool) {
				return Hole{base + 1, base + size}, at&4 != 0, addr > base && addr < base+size
			}
		}
		for addr := base; addr < base+min(size, 64); addr++ {
			a, aok := c.Rule(addr)
			if !aok && a != rule.None || aok && a == rule.None {
				t.Fatalf("%#x: %#x, %v", addr, a, aok)
			}
			if b, bok := c.Rule(addr); a != b || aok != bok {
				t.Fatalf("%#x: %#x, then %#x", addr, a, b)
			}
			c.FollowsCall(addr)
		}
	}))
}

// BenchmarkRuleFromCode looks up PCs of libcrypto as if it had no CFI: PCs in functions
// that were read already, and PCs that lie far apart.
func BenchmarkRuleFromCode(b *testing.B) {
	files, _ := filepath.Glob("/usr/lib/x86_64-linux-gnu/libcrypto.so.[0-9]*")
	if len(files) == 0 {
		b.Skip("skipped for want of libcrypto")
	}
	for _, mode := range []string{"near", "far"} {
		b.Run(mode, func(b *testing.B) {
			c, table := openCode(b, files[0], nil)
			var pcs []uint64
			var in insn
			for fde, err := range table.FDEs() {
				if err != nil {
					b.Fatal(err)
				}
				next := func(pc uint64) uint64 { return pc + uint64(in.Len) }
				for n, pc := 0, fde.Start; pc < fde.End && in.Decode(c.bytes(pc)) && n < 64; n, pc = n+1, next(pc) {
					pcs = append(pcs, pc)
				}
			}
			if mode == "far" {
				rand.New(rand.NewPCG(1, 2)).Shuffle(len(pcs), func(i, j int) { pcs[i], pcs[j] = pcs[j], pcs[i] })
			}
			c.Rule(pcs[0])
			b.ResetTimer()
			for i := range b.N {
				c.Rule(pcs[i%len(pcs)])
			}
		})
	}
	b.Run("survey", func(b *testing.B) {
		for range b.N {
			c, _ := openCode(b, files[0], nil)
			c.survey()
		}
	})
	b.Run("followsCall", func(b *testing.B) {
		c, table := openCode(b, files[0], nil)
		d, err := table.FDE(c.layout.Text[len(c.layout.Text)-2].Start + 0x1000)
		if err != nil {
			b.Skip(err)
		}
		for range b.N {
			c.FollowsCall(d.Start + 5)
		}
	})
}
