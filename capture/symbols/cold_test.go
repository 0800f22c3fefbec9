package symbols

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unit is the assembly of a source file with functions: each has a name, a binding and, to be told from others, a size
// of its own, as in "local f 3".
func unit(functions ...string) string {
	var s strings.Builder
	for _, f := range functions {
		var bind, name string
		var size int
		if n, err := fmt.Sscan(f, &bind, &name, &size); n != 3 {
			panic(err)
		}
		if bind != "local" {
			fmt.Fprintf(&s, ".%s %s\n", bind, name)
		}
		fmt.Fprintf(&s, ".type %[1]s, @function\n%[1]s: .skip %[2]d, 0x90\n.size %[1]s, %[2]d\n", name, size)
	}
	return s.String()
}

// TestPartsOfFunctions has the symbols that compilers and BOLT make for parts of functions. What is wanted is, by
// address, "NAME SIZE", and of a part also the size of its function: "NAME SIZE of SIZE".
func TestPartsOfFunctions(t *testing.T) {
	for _, c := range []struct {
		name  string
		units []string
		want  []string
	}{
		{"global", []string{unit("globl f 3", "local f.cold 4")}, []string{"f 3", "f 4 of 3"}},
		{"BOLT", []string{unit("globl f 3", "local f.cold.0 4", "local f.cold.1 5")},
			[]string{"f 3", "f 4 of 3", "f 5 of 3"}},
		{"basic block sections", []string{unit("globl f 3", "local f.__part.1 4", "local f.eh 5", "local f.cold 6")},
			[]string{"f 3", "f 4 of 3", "f 5 of 3", "f 6 of 3"}},
		{"part of a part", []string{unit("globl f 3", "local f.cold 4", "local f.cold.cold.0 5")},
			[]string{"f 3", "f 4 of 3", "f 5 of 3"}},
		{"copies are functions", []string{unit("globl f 3", "local f.part.0 4", "local f.constprop.0 5", "local f.isra.0 6",
			"local f.part.0.cold 7", "local f.particular 8")},
			[]string{"f 3", "f.part.0 4", "f.constprop.0 5", "f.isra.0 6", "f.part.0 7 of 4", "f.particular 8"}},
		{"of its own file", []string{unit("local f 3", "local f.cold 4"), unit("local f 5", "local f.cold 6"),
			unit("globl f 7")}, []string{"f 3", "f 4 of 3", "f 5", "f 6 of 5", "f 7"}},
		{"global beside another file's", []string{unit("local f 3"), unit("globl f 4", "local f.cold 5")},
			[]string{"f 3", "f 4", "f 5 of 4"}},
		{"one of two", []string{unit("local f 3"), unit("local f 4"), unit("local f.cold 5")},
			[]string{"f 3", "f 4", "f.cold 5"}},
		{"two of one", []string{unit("globl f 3", "local f.cold 4"), unit("local f.cold 5")},
			[]string{"f 3", "f.cold 4", "f.cold 5"}},
		{"BOLT behind the last file", []string{unit("globl f 3"), unit("local f 4", "local f.cold.0 5")},
			[]string{"f 3", "f 4", "f.cold.0 5"}},
		{"under its other name", []string{unit("globl f 3", "local f.cold 4") + ".globl f_too\n.set f_too, f\n"},
			[]string{"f_too 3", "f_too 4 of 3"}},
		{"of a weak one", []string{unit("weak f 3", "local f.cold 4")}, []string{"f 3", "f 4 of 3"}},
		{"of none", []string{unit("local f.cold 3", "local .cold 4")}, []string{"f.cold 3", ".cold 4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "library")
			args := []string{"-shared", "-nostdlib", "-o", path}
			for i, text := range c.units {
				source := filepath.Join(dir, fmt.Sprintf("%d.s", i))
				if err := os.WriteFile(source, fmt.Appendf(nil, ".file \"%d.c\"\n.text\n%s", i, text), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, source)
			}
			output(t, "gcc", args...)
			table := readFile(t, path)
			var have []string
			for i := range table.Len() {
				f := table.At(i)
				text := fmt.Sprintf("%s %d", f.Name, f.Size)
				if whole, ok := table.Lookup(f.Entry); f.Entry != f.Addr && ok && whole.Addr == f.Entry && whole.Name == f.Name {
					text += fmt.Sprintf(" of %d", whole.Size)
				} else if f.Entry != f.Addr {
					t.Errorf("%+v is a part of %+v, %v", f, whole, ok)
				}
				have = append(have, text)
			}
			if !slices.Equal(have, c.want) {
				t.Errorf("functions %q, want %q", have, c.want)
			}
		})
	}
}

// A compiler's own: both parts of a function, and of a static one in each of two files.
func TestColdPartsOfACompiler(t *testing.T) {
	const source = `
#include <stdlib.h>
volatile long sink;
__attribute__((cold, noinline)) void rare(long n) { sink += n; }
namespace app {
__attribute__((noinline)) void handle(long n)
{
	if (__builtin_expect(n % 3 == 0, 0)) {
		rare(n);
		sink *= 3;
		rare(n + 1);
	}
	sink++;
}
}
int main(int argc, char **argv) { app::handle(argc); return 0; }
`
	table := readFile(t, compile(t, "cold.cc", source, "-O2"))
	var parts []Func
	for i := range table.Len() {
		if f := table.At(i); f.Name == "_ZN3app6handleEl" {
			parts = append(parts, f)
		}
	}
	if len(parts) == 1 {
		t.Skip("the compiler has not split app::handle")
	}
	if len(parts) != 2 || parts[0].Entry != parts[1].Entry || parts[0].Addr == parts[1].Addr {
		t.Errorf("parts %+v", parts)
	}
}

// Symbols of the kernel say of which module they are, not of which file.
func TestPartsOfFunctionsOfTheKernel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kallsyms")
	const list = `ffffffff81000000 T f
ffffffff81000100 t f.cold
ffffffff81000200 t g
ffffffff81000300 t g
ffffffff81000400 t g.cold
ffffffffc0000000 t f	[m]
ffffffffc0000100 t f.cold	[m]
ffffffffc0000200 t h.cold	[m]
ffffffffc0001000 t h	[n]
`
	if err := os.WriteFile(path, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(Options{Kallsyms: path, Modules: os.DevNull})
	const moved = 0x1000000
	s.SetKernel(KernelID{Ref: "f", RefAddr: 0xffffffff81000000 + moved})
	for addr, want := range map[uint64]string{
		0xffffffff81000110: "f 81000000", 0xffffffff81000410: "g.cold 81000400", 0xffffffffc0000110: "f c0000000",
		0xffffffffc0000210: "h.cold c0000200",
	} {
		f, _, _ := s.Kernel(addr + moved)
		if have := fmt.Sprintf("%s %x", f.Name, uint32(f.Entry-moved)); have != want {
			t.Errorf("%#x: %s, want %s", addr, have, want)
		}
	}
}

// An image with too many parts has them as functions, and takes no memory for finding out whose they are.
func TestPartsAreBounded(t *testing.T) {
	var b builder
	for i := range mostParts / 256 {
		b.strings = fmt.Appendf(b.strings, "%x.cold\x00", i)
		name := uint32(len(b.strings) - len(fmt.Sprintf("%x.cold\x00", i)))
		b.syms = append(b.syms, symbol{addr: uint64(i), name: name, part: true})
	}
	if parts := b.parts(); parts != nil {
		t.Errorf("functions of %d parts", len(parts))
	}
}

func TestCopiesAreMarked(t *testing.T) {
	for mangled, want := range map[string]string{
		"_ZN3app6handleEm":                                 "app::handle",
		"_ZN3app6handleEm.cold":                            "app::handle [clone .cold]",
		"_ZN3app6handleEm.isra.0.constprop.12":             "app::handle [clone .isra.0] [clone .constprop.12]",
		"_ZN3app6handleEm.part.0.lto_priv.0.cold":          "app::handle [clone .part.0] [clone .cold]",
		"_ZN3app6handleEm.lto_priv.0":                      "app::handle",
		"_ZN3app6handleEm.llvm.1234":                       "app::handle",
		"_ZN4core3ptr8a..part.17h0123456789abcdefE.llvm.1": "core::ptr::a::part.",
		"_RNvCs1234_7mycrate3foo.cold":                     "mycrate::foo [clone .cold]",
		"_D3app6handleFZv.part.0":                          "app.handle [clone .part.0]",
		"handle.part.0":                                    "handle.part.0",
		"_Z.cold":                                          "_Z.cold",
	} {
		have := Demangle(mangled)
		if have != want {
			t.Errorf("%s: %q, want %q", mangled, have, want)
		}
		if plain, _, _ := strings.Cut(want, " ["); WithoutClones(have) != plain {
			t.Errorf("%s: without clones %q", mangled, WithoutClones(have))
		}
	}
}
