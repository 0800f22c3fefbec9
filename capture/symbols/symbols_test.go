package symbols

import (
	"bufio"
	"bytes"
	std "debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi/elf"
	"unspool/testdata/programs"
	"unspool/vmas"
)

// need returns the path of a tool, or skips the test by the tool's name.
func need(t testing.TB, tool string) string {
	t.Helper()
	path, err := exec.LookPath(tool)
	if err != nil {
		t.Skipf("%s is missing", tool)
	}
	return path
}

func output(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(need(t, name), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	return string(out)
}

// compile builds a C or C++ program with the flags, once in all runs of the tests, and returns the path of a copy.
func compile(t testing.TB, source, text string, flags ...string) string {
	t.Helper()
	compiler := "gcc"
	if strings.HasSuffix(source, ".cc") {
		compiler = "g++"
	}
	content, err := os.ReadFile(programs.BuildText(t, source, text, append([]string{need(t, compiler)}, flags...)...))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "program") // which the test may change
	if err := os.WriteFile(out, content, 0o777); err != nil {
		t.Fatal(err)
	}
	return out
}

func readFile(t testing.TB, path string) *Table {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	table, err := readELF(f, info.Size())
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return table
}

// readELF reads the function symbols of the ELF file of size bytes behind r.
func readELF(r io.ReaderAt, size int64) (*Table, error) {
	f, err := parseELF(r, size)
	if err != nil {
		return nil, err
	}
	return f.table(nil)
}

// libc is the C library of this machine.
func libc(t testing.TB) string {
	for _, p := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"} {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	t.Skip("libc.so.6 is missing")
	return ""
}

const program = `
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) static int compare(const void *a, const void *b) {
	return *(const int *)a - *(const int *)b;
}
__attribute__((noinline)) int work(int *v, int n) { qsort(v, n, sizeof *v, compare); return v[n / 2]; }
extern int work_too(int *v, int n) __attribute__((alias("work")));
extern int _work(int *v, int n) __attribute__((alias("work"), weak));
__asm__(".text\n.type bare, @function\nbare:\n nop\n nop\n ret\n" "label:\n nop\n ret\n" ".text\n");
int main(int argc, char **argv) {
	int v[3] = {3, argc, 2};
	return printf("%s %d\n", argv[0], work(v, 3)) + (int)strlen(argv[0]);
}
`

// readelfSymbols returns what readelf -sW prints about the defined functions of a symbol table: the names
// by address, and sizes.
func readelfSymbols(t *testing.T, path, table string) (names map[uint64][]string, sizes map[string]uint64) {
	names, sizes = map[uint64][]string{}, map[string]uint64{}
	in := false
	for line := range strings.Lines(output(t, "readelf", "-sW", path)) {
		if strings.HasPrefix(line, "Symbol table") {
			in = strings.Contains(line, "'"+table+"'")
		}
		f := strings.Fields(line)
		if !in || len(f) < 8 || f[6] == "UND" || f[3] != "FUNC" && f[3] != "IFUNC" {
			continue
		}
		addr, err := strconv.ParseUint(f[1], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		size, err := strconv.ParseUint(f[2], 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(f[7], "@")
		names[addr] = append(names[addr], name)
		sizes[fmt.Sprint(addr, name)] = size
	}
	return names, sizes
}

func TestTableHoldsEveryFunctionThatReadelfShows(t *testing.T) {
	for _, c := range []struct{ name, path, table string }{
		{"libc", libc(t), ".dynsym"},
		{"program", compile(t, "p.c", program, "-O1", "-lm"), ".symtab"},
		{"static", compile(t, "p.c", program, "-O1", "-static"), ".symtab"},
		{"dynsym of a stripped program", compile(t, "p.c", program, "-O1", "-s", "-rdynamic"), ".dynsym"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := readFile(t, c.path)
			want, sizes := readelfSymbols(t, c.path, c.table)
			if len(want) < 2 {
				t.Fatalf("readelf shows %d functions", len(want))
			}
			have := map[uint64]Func{}
			for i := range table.Len() {
				f := table.At(i)
				have[f.Addr] = f
			}
			for addr, names := range want {
				f := have[addr]
				if f.Entry != addr { // a part of a function, which it is named after
					if !slices.ContainsFunc(names, func(name string) bool {
						return slices.Contains(want[f.Entry], strings.TrimSuffix(name, ".cold"))
					}) {
						t.Errorf("0x%x: %+v, readelf says %q, and %q at its entry", addr, f, names, want[f.Entry])
					}
					names = want[f.Entry]
				}
				if !slices.Contains(names, f.Name) {
					t.Errorf("0x%x: %q, readelf says %q", addr, f.Name, names)
					continue
				}
				size := sizes[fmt.Sprint(addr, f.Name)]
				if size != 0 && f.Size != size {
					t.Errorf("%s: size %d, readelf says %d", f.Name, f.Size, size)
				}
				for _, a := range []uint64{addr, addr + max(f.Size, 1) - 1} {
					g, ok := table.Lookup(a)
					// The end of a function may lie in a shorter one inside it.
					if !ok || g.Addr < addr || a == addr && g.Name != f.Name {
						t.Errorf("Lookup(0x%x): %+v, %v, in %+v", a, g, ok, f)
					}
				}
			}
		})
	}
}

func TestAliasesAndSizes(t *testing.T) {
	table := readFile(t, compile(t, "p.c", program, "-O1"))
	byName := map[string]Func{}
	for i := range table.Len() {
		f := table.At(i)
		byName[f.Name] = f
	}
	// work and work_too are both global functions of one size: the longer name; _work is weak.
	if _, ok := byName["work_too"]; !ok {
		t.Errorf("no work_too")
	}
	for _, hidden := range []string{"_work", "work", "_end", "_edata"} {
		if f, ok := byName[hidden]; ok {
			t.Errorf("%s has a place of its own: %+v", hidden, f)
		}
	}
	// A function without a size reaches to the label after it, the label to the next function.
	bare, label := byName["bare"], byName["label"]
	if bare.Size != 3 || label.Addr != bare.Addr+3 || label.Size < 2 {
		t.Errorf("bare %+v, label %+v", bare, label)
	}
	for i := 1; i < table.Len(); i++ {
		if table.At(i-1).Addr >= table.At(i).Addr {
			t.Errorf("not sorted at %d", i)
		}
	}
}

func TestStubsOfTheProcedureLinkageTable(t *testing.T) {
	for _, flags := range [][]string{
		{"-O1", "-fcf-protection=none"}, {"-O1", "-fcf-protection=full"}, {"-O1", "-Wl,-z,lazy"},
		{"-O1", "-Wl,-z,now", "-s"}, {"-O1", "-Wl,-z,ibtplt"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			if runtime.GOARCH != "amd64" {
				t.Skip("the stubs of " + runtime.GOARCH + " are not read")
			}
			path := compile(t, "p.c", program, flags...)
			table := readFile(t, path)
			// objdump names the stubs: "0000000000001030 <qsort@plt>:"; as for .plt with a .plt.sec, it may name both.
			want := 0
			for line := range strings.Lines(output(t, "objdump", "-d", "--no-show-raw-insn", path)) {
				addr, name, ok := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line), ">:"), " <")
				if !ok || !strings.HasSuffix(name, "@plt") || !strings.HasSuffix(strings.TrimSpace(line), ">:") ||
					strings.HasPrefix(name, "*ABS*") {
					continue
				}
				a, err := strconv.ParseUint(addr, 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				want++
				if f, ok := table.Lookup(a + 4); !ok || f.Name != name || f.Addr != a {
					t.Errorf("0x%x: %+v, %v; objdump says %s", a, f, ok, name)
				}
			}
			if want < 3 {
				t.Errorf("objdump shows only %d stubs", want)
			}
		})
	}
}

// Static programs have stubs for functions that choose their code at run time: the relocation of a
// stub's slot tells the function.
func TestStubsOfStaticPrograms(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the stubs of " + runtime.GOARCH + " are not read")
	}
	for _, flag := range []string{"-static", "-static-pie"} {
		path := compile(t, "p.c", program, "-O1", flag)
		table := readFile(t, path)
		names, _ := readelfSymbols(t, path, ".symtab")
		chooser := map[uint64]uint64{} // by slot
		for line := range strings.Lines(output(t, "readelf", "-rW", path)) {
			if f := strings.Fields(line); len(f) == 4 && f[2] == "R_X86_64_IRELATIVE" { // offset, info, type, addend
				slot, _ := hex([]byte(f[0]))
				chooser[slot], _ = hex([]byte(f[3]))
			}
		}
		stubs := 0
		for line := range strings.Lines(output(t, "objdump", "-d", "--no-show-raw-insn", "-j.plt", path)) {
			// "401018:	jmp    *0xa309a(%rip)        # 4a40b8 <_GLOBAL_OFFSET_TABLE_+0xd0>"
			addr, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
			_, slot, ok := strings.Cut(rest, "# ")
			if !ok {
				continue
			}
			slot, _, _ = strings.Cut(slot, " ")
			at, _ := hex([]byte(slot))
			a, ok := hex([]byte(addr))
			if want := chooser[at]; ok && want != 0 {
				stubs++
				f, _ := table.Lookup(a)
				if name, ok := strings.CutSuffix(f.Name, "@plt"); !ok || f.Addr > a ||
					!slices.Contains(names[want], name) {
					t.Errorf("%s: 0x%x: %+v; readelf says %q", flag, a, f, names[want])
				}
			}
		}
		if stubs < 3 || stubs < len(chooser)/2 {
			t.Errorf("%s: %d stubs of %d relocations", flag, stubs, len(chooser))
		}
	}
}

func TestVaddrFollowsTheSegments(t *testing.T) {
	table := &Table{loads: elf.Loads{
		{Offset: 0, Vaddr: 0x400000, Filesz: 0x800, Memsz: 0x800},
		{Offset: 0x800, Vaddr: 0x401800, Filesz: 0x1000, Memsz: 0x1000, Flags: elf.PF_X},
		{Offset: 0x3000, Vaddr: 0x600000, Filesz: 0x10, Memsz: 0x5000},
	}}
	for _, c := range []struct {
		off, want uint64
		ok        bool
	}{
		{0x10, 0x400010, true},
		{0x800, 0x401800, true},
		{0x17ff, 0x4027ff, true},
		{0x1900, 0x402900, true}, // beyond the segment's bytes, within its last page
		{0x3010, 0x600010, true},
		{0x2000, 0, false},
		{1 << 63, 0, false},
	} {
		if got, ok := table.Vaddr(c.off); got != c.want || ok != c.ok {
			t.Errorf("Vaddr(0x%x) = 0x%x, %v; want 0x%x, %v", c.off, got, ok, c.want, c.ok)
		}
	}
}

func TestFileOffsetsOfARealProgram(t *testing.T) {
	path := compile(t, "p.c", program, "-O1", "-no-pie")
	f, err := std.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	im := New(Options{}).Image(path, nil, vmas.FileID{})
	main, ok := find(im.Table(), "main")
	if !ok {
		t.Fatal("no main")
	}
	got, ok := im.Lookup(main.Addr - text.Addr + text.Offset + 1)
	if !ok || got != main {
		t.Errorf("%+v, %v; want %+v", got, ok, main)
	}
}

func find(t *Table, name string) (Func, bool) {
	for i := range t.Len() {
		if f := t.At(i); f.Name == name {
			return f, true
		}
	}
	return Func{}, false
}

func TestAFileWithAnotherBuildIDIsNamedAndNotUsed(t *testing.T) {
	path := compile(t, "p.c", program, "-O1", "-Wl,--build-id=0x0123456789abcdef0123456789abcdef01234567")
	right := []byte{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd,
		0xef, 0x01, 0x23, 0x45, 0x67}
	wrong := slices.Clone(right)
	wrong[0]++
	s := New(Options{})
	if s.Image(path, right, vmas.FileID{}).Table() == nil {
		t.Error("the recorded file is not used")
	}
	im := s.Image(path, wrong, vmas.FileID{})
	if im != s.Image(path, slices.Clone(wrong), vmas.FileID{}) {
		t.Error("one image is two")
	}
	for range 3 {
		if im.Table() != nil {
			t.Error("another file is used")
		}
	}
	p := s.Problems()
	if len(p) != 1 || !strings.Contains(p[0], path) || !strings.Contains(p[0], "0123456789abcdef") {
		t.Errorf("problems: %q", p)
	}
	// Another file may have a deleted file's name by now: only the build ID shows that it is the same.
	if s.Image(path+" (deleted)", right, vmas.FileID{}).Table() == nil ||
		s.Image(path+" (deleted)", nil, vmas.FileID{}).Table() != nil {
		t.Error("deleted file")
	}
}

// inode is what a recording without build IDs has of a file.
func inode(t *testing.T, path string) vmas.FileID {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return vmas.FileID{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev), Inode: st.Ino}
}

// TestNameThatEndsAsOfARemovedFile has a file whose own name is that of a removed one, beside another build with
// the name of which it could be, without a build ID and with one; in place and below a root.
func TestNameThatEndsAsOfARemovedFile(t *testing.T) {
	for _, id := range [][]byte{nil, {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}} {
		flag := "-Wl,--build-id=none"
		if id != nil {
			flag = fmt.Sprintf("-Wl,--build-id=0x%x", id)
		}
		other := compile(t, "p.c", "int main(void) { return 1; }\n", "-Wl,--build-id=none")
		path := other + deleted
		output(t, "cp", compile(t, "p.c", program, "-O1", flag), path)
		root := t.TempDir()
		output(t, "cp", path, root)
		for _, im := range []*Image{
			New(Options{}).Image(path, id, inode(t, path)),
			New(Options{Root: root}).Image("/"+filepath.Base(path), id, vmas.FileID{}),
		} {
			if im.Table() == nil {
				t.Errorf("build ID %x: no names: %q", id, im.s.Problems())
			} else if _, ok := find(im.Table(), "compare"); !ok {
				t.Errorf("build ID %x: those of another file", id)
			}
		}
	}
}

// TestFileInMemory looks for the names of an ELF file that was in memory only: it has those of the recorded
// file with its build ID.
func TestFileInMemory(t *testing.T) {
	path := compile(t, "p.c", program, "-O1", "-Wl,--build-id=0x0123456789abcdef0123456789abcdef01234567")
	id := []byte{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
		0x01, 0x23, 0x45, 0x67}
	const name = "/memfd:copy (deleted)"
	for _, recorded := range []bool{false, true} {
		s := New(Options{})
		if recorded {
			s.Image(path, id, vmas.FileID{})
		}
		if im := s.Image(name, id, vmas.FileID{}); (im.Table() != nil) != recorded || !im.IsInMemory() {
			t.Errorf("the file itself recorded: %v: names: %v", recorded, im.Table() != nil)
		}
		if p := s.Problems(); (len(p) == 1) == recorded {
			t.Errorf("the file itself recorded: %v: problems: %q", recorded, p)
		}
		if im := s.Image(name, nil, vmas.FileID{}); im.Table() != nil || im.IsInMemory() {
			t.Error("generated code is taken for a file")
		}
	}
}

func TestWhatIsNoFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "pipe")
	output(t, "mkfifo", fifo)
	s := New(Options{})
	for path, label := range map[string]string{
		"//anon": "[anon]", "[heap]": "[heap]", "/memfd:jit (deleted)": "[memfd:jit]", "/dev/zero": "[zero]",
		"[uprobes]": "[uprobes]",
		fifo:        "[pipe]", "/no/such/lib.so.1": "[lib.so.1]", "/": "[/]",
	} {
		im := s.Image(path, nil, vmas.FileID{})
		if _, ok := im.Lookup(0x1000); ok || im.Label() != label {
			t.Errorf("%s: found %v, label %s", path, ok, im.Label())
		}
	}
	if p := s.Problems(); len(p) != 3 {
		t.Errorf("problems: %q", p)
	}
}

func TestVDSO(t *testing.T) {
	s := New(Options{})
	im := s.Image("[vdso]", nil, vmas.FileID{})
	f, ok := find(im.Table(), "__vdso_clock_gettime")
	if !ok {
		if f, ok = find(im.Table(), "clock_gettime"); !ok {
			t.Fatalf("no clock_gettime among %d functions; %q", im.Table().Len(), s.Problems())
		}
	}
	if got, ok := im.Lookup(f.Addr + 1); !ok || got != f { // virtual addresses of the vDSO start at 0
		t.Errorf("%+v, %v; want %+v", got, ok, f)
	}
}

func TestDemangleAgreesWithCxxfilt(t *testing.T) {
	need(t, "c++filt")
	names := []string{"main", "_Z", "_ZN", "_start", "__libc_start_main", "_Z3fooi",
		"_ZNSt6vectorIiSaIiEE9push_backERKi",
		"_ZSt16__introsort_loopIN9__gnu_cxx17__normal_iteratorIPiSt6vectorIiSaIiEEEElNS0_5__ops15_Iter_less_iter" +
			"EEvT_S9_T0_T1_",
		"_ZZ4mainENKUlvE_clEv", "_ZN3FooD2Ev", "_ZThn8_N1B1fEv", "_ZTv0_n24_N1B1fEv", "_ZNKSt8functionIFvvEEclEv",
		"_ZlsRSoRK3Foo", "_ZN12_GLOBAL__N_14workEv"}
	stdin := strings.NewReader(strings.Join(names, "\n") + "\n")
	cmd := exec.Command("c++filt", "-p")
	cmd.Stdin = stdin
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for _, name := range names {
		lines.Scan()
		if got := Demangle(name); got != lines.Text() {
			t.Errorf("%s: %s, c++filt says %s", name, got, lines.Text())
		}
	}
}

func TestDemangleRust(t *testing.T) {
	for name, want := range map[string]string{
		"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE": "core::fmt::Formatter::pad",
		"_RNvC6_123foo3bar": "123foo::bar",
		"_RNvMsr_NtCs3ssYzQotkvD_3std4pathNtB5_7PathBuf3newCs15kBYyAo9fc_7mycrate": "<std::path::PathBuf>::new",
	} {
		if got := Demangle(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// Without symbols, the extents of functions come from the unwind table.
func TestStrippedFunctionsHaveExtents(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped for want of gcc")
	}
	dir := t.TempDir()
	source, named, stripped := filepath.Join(dir, "a.c"), filepath.Join(dir, "named"),
		filepath.Join(dir, "stripped")
	const code = "__attribute__((noinline)) static int one(int x) { return x * 3; }\nint main(int c, char " +
		"**v) { (void)v; return one(c); }\n"
	if err := os.WriteFile(source, []byte(code), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-O1", "-o", named, source}, {"-O1", "-s", "-o", stripped, source}} {
		if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	s := New(Options{})
	table := s.Image(named, nil, vmas.FileID{}).Table()
	for i := range table.Len() {
		want := table.At(i)
		if want.Name != "one" && want.Name != "main" {
			continue
		}
		// The two files differ in their symbols only, and text lies at its offset in both.
		got, ok := s.Image(stripped, nil, vmas.FileID{}).Lookup(want.Addr)
		if !ok || got.Name != "" || got.Addr != want.Addr || got.Size != want.Size {
			t.Errorf("%s at %#x: %+v, %v", want.Name, want.Addr, got, ok)
		}
	}
}

func TestIsFile(t *testing.T) {
	for path, want := range map[string]bool{
		"/usr/bin/python3": true, "/dev/shm/program": true, "/dev/hugepages/library.so": true,
		"/devices/program": true,
		"/dev/zero":        false, "/dev/dri/card0": false, "//anon": false, "[heap]": false, "": false,
		"/memfd:code (deleted)": false, "/SYSV00000000 (deleted)": false, "/anon_hugepage (deleted)": false,
	} {
		if IsFile(path) != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
}

func hex(digits []byte) (uint64, bool) {
	v, err := strconv.ParseUint(strings.TrimPrefix(string(digits), "0x"), 16, 64)
	return v, err == nil
}
