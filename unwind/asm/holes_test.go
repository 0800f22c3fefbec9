package asm

import (
	std "debug/elf"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/dwarfcfi/elf"

	"unspool/testdata/programs"
	"unspool/unwind/rule"
)

func eachHole(list []Hole) iter.Seq2[uint64, uint64] {
	return func(yield func(lo, hi uint64) bool) {
		for _, h := range list {
			if !yield(h.Lo, h.Hi) {
				return
			}
		}
	}
}

func TestHoles(t *testing.T) {
	text := []elf.Range{{Name: ".text", Start: 0x1000, End: 0x1200},
		{Name: ".plt.got", Start: 0x1200, End: 0x1208}}
	for _, c := range []struct {
		name    string
		covered []Hole
		want    []Hole
	}{
		{"no CFI", nil, []Hole{{0x1000, 0x1200}, {0x1200, 0x1208}}},
		{"all covered", []Hole{{0x1000, 0x1208}}, nil},
		{"out of order", []Hole{{0x1100, 0x1200}, {0x1000, 0x1080}}, []Hole{{0x1080, 0x1100}, {0x1200, 0x1208}}},
		{"overlap", []Hole{{0x1000, 0x1180}, {0x1040, 0x1080}, {0x1100, 0x1200}}, []Hole{{0x1200, 0x1208}}},
		{"empty", []Hole{{0x1080, 0x1080}, {0x1000, 0x1200}}, []Hole{{0x1200, 0x1208}}},
		{"what aligns a function", []Hole{{0x1000, 0x1071}, {0x1080, 0x1200}}, []Hole{{0x1200, 0x1208}}},
		{"an aligned function", []Hole{{0x1000, 0x1070}, {0x1080, 0x1200}},
			[]Hole{{0x1070, 0x1080}, {0x1200, 0x1208}}},
		{"a short function, not aligned", []Hole{{0x1000, 0x1071}, {0x1079, 0x1200}},
			[]Hole{{0x1071, 0x1079}, {0x1200, 0x1208}}},
		{"short ends of a section", []Hole{{0x1010, 0x11f8}},
			[]Hole{{0x1000, 0x1010}, {0x11f8, 0x1200}, {0x1200, 0x1208}}},
		{"a short section", []Hole{{0x1000, 0x1200}, {0x1208, 0x1300}}, []Hole{{0x1200, 0x1208}}},
	} {
		code := New(strings.NewReader(""), &elf.Layout{Text: text}, Covered{FDEs: eachHole(c.covered)})
		if got := code.holes(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %x, want %x", c.name, got, c.want)
		}
	}
}

// TestLastFunctionWithoutSections has .fini behind the last function with CFI, of a file without section headers: it is
// read without a survey, from behind the zeros that the linker put between the sections, and by a survey.
func TestLastFunctionWithoutSections(t *testing.T) {
	const end = 5 // of the function with CFI
	text := "\xe9\x00\x00\x00\x00" + "\x00\x00\x00" + "\x48\x83\xec\x08\x48\x83\xc4\x08\xc3"
	for name, covered := range map[string]Covered{
		"nearby": {
			Gap:    func(addr uint64) (Hole, bool, bool) { return Hole{0x1000 + end, 1 << 63}, false, addr >= 0x1000+end },
			Survey: func() *Survey { return nil },
		},
		"survey": {FDEs: eachHole([]Hole{{0x1000, 0x1000 + end}})},
	} {
		code := assemble(t, text)
		code.layout.Text = nil
		code.covered = covered
		for off, words := range map[uint64]rule.Rule{8: 1, 12: 2, 16: 1} {
			if got, _ := code.Rule(0x1000 + off); got != rule.GuessSP|words<<16 {
				t.Errorf("%s: at %d %s, want SP+%d", name, off, show(got), 8*words)
			}
		}
	}
}

// TestPLTBehindMoreFunctionsThanHolesAreKept has the layout of a large library: a gap
// before each function, and the PLT behind all of them.
func TestPLTBehindMoreFunctionsThanHolesAreKept(t *testing.T) {
	const plt = "\xff\x35\x00\x00\x00\x00" + "\xff\x25\x00\x00\x00\x00" + "\x0f\x1f\x40\x00" + // push, jmp, nop
		// jmp, push, jmp to the first entry
		"\xff\x25\x00\x00\x00\x00" + "\x68\x00\x00\x00\x00" + "\xe9\xe0\xff\xff\xff"
	for name, gap := range map[string]uint64{"gaps": 8, "code": 24} {
		const functions, apart = maxHoles + 100, 64
		base := uint64(functions * apart)
		layout := &elf.Layout{
			Loads: []elf.Load{{Vaddr: base, Filesz: uint64(len(plt)), Memsz: uint64(len(plt)),
				Flags: elf.PF_R | elf.PF_X}},
			Text: []elf.Range{{Name: ".text", End: base}, {Name: ".plt", Start: base, End: base + uint64(len(plt))}},
			PLT:  []elf.Range{{Name: ".plt", Start: base, End: base + uint64(len(plt))}},
		}
		c := New(strings.NewReader(plt), layout, Covered{FDEs: func(yield func(lo, hi uint64) bool) {
			for i := range uint64(functions) {
				if !yield(i*apart, (i+1)*apart-gap) {
					return
				}
			}
		}})
		for off, words := range map[uint64]rule.Rule{0: 2, 6: 3, 16: 1, 22: 1, 27: 2} {
			if got, _ := c.Rule(base + off); got != rule.GuessSP|words<<16 {
				t.Errorf("%s: at %d %s, want SP+%d", name, off, show(got), 8*words)
			}
		}
	}
}

// TestBoltedLibraries is about libraries of rustc, which BOLT has rewritten: the code is in
// several sections, hot and cold code apart; most functions have gaps before them; neither
// the PLT nor the functions of crtbegin.o, which were moved, have CFI.
func TestBoltedLibraries(t *testing.T) {
	home, _ := os.UserHomeDir()
	lib := filepath.Join(home, ".rustup/toolchains/*/lib")
	llvm, _ := filepath.Glob(filepath.Join(lib, "libLLVM.so.*"))
	driver, _ := filepath.Glob(filepath.Join(lib, "librustc_driver-*.so"))
	if len(llvm) == 0 || len(driver) == 0 {
		t.Skip("no Rust toolchain of rustup's is installed")
	}
	for _, path := range []string{llvm[0], driver[0]} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c, table := openCode(t, path, nil)
			var covered []Hole
			for d, err := range table.FDEs() {
				if err != nil {
					t.Fatal(err)
				}
				if got, err := table.FDE(d.Start); d.Start < d.End && (err != nil || !got.Covers(d.Start)) {
					t.Errorf("%#x is not found in its FDE: %v", d.Start, err)
				}
				covered = append(covered, Hole{d.Start, d.End})
			}
			c.covered.FDEs = eachHole(covered)
			if n := len(c.chart().holes); n == 0 || n == maxHoles {
				t.Errorf("%d holes", n)
			}
			const every = 17
			var in insn
			n, asked, answered := 0, 0, 0
			for _, h := range c.charted.holes {
				if _, ok := c.plt(h.Lo); ok {
					checkPLT(t, c, h)
					continue
				}
				for pc := c.skipPadding(h); pc < h.Hi && in.Decode(c.bytes(pc)); pc += uint64(in.Len) {
					if n++; n%every != 0 || in.isPadding() {
						continue
					}
					asked++
					if _, ok := c.Rule(pc); ok {
						answered++
					}
				}
			}
			t.Logf("%d FDEs, %d holes; of %d PCs in them %d answered", len(covered), len(c.charted.holes), asked,
				answered)
			if asked == 0 || answered*1000 < asked*980 {
				t.Error("too few")
			}
		})
	}
}

// checkPLT checks all of a lazily bound .plt: it has 16 bytes for each function, a jmp, a
// push and a jmp to the first entry, which pushes once more.
func checkPLT(t *testing.T, c *Code, h Hole) {
	t.Helper()
	var in insn
	asked := 0
	for pc := h.Lo; pc < h.Hi && in.Decode(c.bytes(pc)); pc += uint64(in.Len) {
		if in.isPadding() {
			continue
		}
		asked++
		first, off := pc < h.Lo+16, (pc-h.Lo)%16
		want := rule.Rule(1)
		if first {
			want = 2
		}
		if first && off >= 6 || off >= 11 {
			want++
		}
		if got, _ := c.Rule(pc); got != rule.GuessSP|want<<16 {
			t.Errorf("%#x, %d bytes into an entry: %s, want SP+%d", pc, off, show(got), 8*want)
		}
	}
	if asked < 100 {
		t.Errorf("%d instructions of a PLT", asked)
	}
}

// TestSymbolTablesSayWhereFunctionsStart compares with the standard library's reader.
func TestSymbolTablesSayWhereFunctionsStart(t *testing.T) {
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", withSymbols(t)} {
		c, _ := openCode(t, path, nil)
		got, want := make(map[uint64]bool), make(map[uint64]bool)
		c.symbols(func(addr uint64) { got[addr] = true })
		f, err := std.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		static, _ := f.Symbols()
		dynamic, _ := f.DynamicSymbols()
		for _, s := range append(static, dynamic...) {
			kind := std.ST_TYPE(s.Info)
			if s.Section != std.SHN_UNDEF && (kind == std.STT_FUNC || kind == std.STT_GNU_IFUNC) {
				want[s.Value] = true
			}
		}
		if len(want) == 0 || !maps.Equal(got, want) {
			t.Errorf("%s: %d functions, want %d", path, len(got), len(want))
		}
	}
}

func TestSymbolTablesThatClaimTooMuch(t *testing.T) {
	r := new(endlessReader)
	layout := &elf.Layout{
		Class: elf.ELFCLASS64, Symbols: []elf.Extent{{Size: 1 << 62}, {Offset: 1 << 40, Size: 1 << 62}},
	}
	New(r, layout, Covered{}).symbols(func(uint64) {})
	if r.read == 0 || r.read > maxSymbols*std.Sym64Size+1<<16 {
		t.Errorf("%d bytes read", r.read)
	}
}

// An endlessReader is a file that never ends.
type endlessReader struct{ read int }

func (r *endlessReader) ReadAt(b []byte, _ int64) (int, error) {
	r.read += len(b)
	clear(b)
	return len(b), nil
}

// withSymbols is a program with a .symtab.
func withSymbols(t *testing.T) string {
	t.Helper()
	return programs.BuildText(t, "a.c", "int main(void) { return 0; }\n", "gcc")
}
