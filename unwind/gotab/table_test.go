package gotab

import (
	"bytes"
	std "debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"unspool/dwarfcfi"

	"unspool/dwarfcfi/elf"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/testdata/programs"
	"unspool/unwind/rule"
)

// goProgram uses enough of the runtime that its assembly is linked in.
const goProgram = `package main

import (
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	m := map[string]int{}
	for i := range 10 {
		m[fmt.Sprint(i)] = time.Now().Nanosecond()
	}
	fmt.Println(len(m))
}
`

const cgoProgram = `package main

/*
#include <stdlib.h>
extern int back(int);
static int forth(int n) { return n > 0 ? back(n - 1) + 1 : 0; }
*/
import "C"
import "fmt"

//export back
func back(n C.int) C.int { return C.forth(n) }

func main() { fmt.Println(C.forth(3)) }
`

// buildGo builds a program of one file in a directory of its own, once in all runs of the tests.
func buildGo(tb testing.TB, source string, env []string, args ...string) string {
	tb.Helper()
	tool, err := exec.LookPath("go")
	if err != nil {
		tb.Skip("no go command to build the test program with")
	}
	dir := programs.Keep(tb, fmt.Sprintf("%s %q %q %q", runtime.Version(), source, env, args), func(dir string) {
		for name, text := range map[string]string{"main.go": source, "go.mod": "module program\n\ngo 1.22\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				tb.Fatal(err)
			}
		}
		cmd := exec.Command(tool, append([]string{"build", "-o", "program"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(append(os.Environ(), "GOFLAGS=", "GOWORK=off"), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			if bytes.Contains(out, []byte("C compiler")) {
				tb.Skipf("no C compiler for cgo: %s", out)
			}
			tb.Fatalf("go build: %v\n%s", err, out)
		}
	})
	return filepath.Join(dir, "program")
}

func openPclntab(tb testing.TB, name string) *Table {
	tb.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		tb.Fatal(err)
	}
	return pclntabOf(tb, data)
}

func pclntabOf(tb testing.TB, data []byte) *Table {
	tb.Helper()
	r := bytes.NewReader(data)
	layout, err := elf.ReadLayout(r, r.Size())
	if err != nil {
		tb.Fatal(err)
	}
	t, err := Read(r, r.Size(), layout, whole(r))
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// goBuilds are ways of linking that put the table or the code at different places.
var goBuilds = []struct {
	name, source string
	env, args    []string
}{
	{"plain", goProgram, []string{"CGO_ENABLED=0"}, nil},
	{"pie", goProgram, []string{"CGO_ENABLED=0"}, []string{"-buildmode=pie"}},
	{"cgo", cgoProgram, []string{"CGO_ENABLED=1"}, nil},
	{"cgo pie", cgoProgram, []string{"CGO_ENABLED=1"}, []string{"-buildmode=pie"}},
	{"external static", cgoProgram, []string{"CGO_ENABLED=1"},
		[]string{"-ldflags=-linkmode=external -extldflags=-static"}},
}

func TestStrippedBinariesHaveTheSameRules(t *testing.T) {
	for _, b := range goBuilds[:3] {
		t.Run(b.name, func(t *testing.T) {
			full := openPclntab(t, buildGo(t, b.source, b.env, b.args...))
			stripped := openPclntab(t, buildGo(t, b.source, b.env, append(b.args, "-ldflags=-s -w")...))
			if full.count != stripped.count {
				t.Fatalf("%d and %d functions", full.count, stripped.count)
			}
			for i := range uint32(full.count) {
				start := full.start(i)
				for off := range uint64(32) {
					a, ok1 := full.Rule(full.text + start + off)
					b, ok2 := stripped.Rule(stripped.text + start + off)
					if a != b || ok1 != ok2 {
						t.Fatalf("function %d+%d: rule %v %v, stripped %v %v", i, off, a, ok1, b, ok2)
					}
				}
			}
		})
	}
}

func TestTableIsFoundWithoutSections(t *testing.T) {
	name := buildGo(t, goProgram, []string{"CGO_ENABLED=0"})
	want := openPclntab(t, name)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	clear(data[0x28:0x30]) // e_shoff
	clear(data[0x3c:0x40]) // e_shnum, e_shstrndx
	have := pclntabOf(t, data)
	if have.text != want.text || have.count != want.count || !bytes.HasPrefix(have.pctab, want.pctab) {
		t.Errorf("text %#x with %d functions, want %#x with %d", have.text, have.count, want.text, want.count)
	}
}

func TestOtherBinariesHaveNoPclntab(t *testing.T) {
	name, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh")
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(data)
	layout, err := elf.ReadLayout(r, r.Size())
	if err != nil {
		t.Fatal(err)
	}
	if table, err := Read(r, r.Size(), layout, whole(r)); table != nil || !errors.Is(err, ErrNone) {
		t.Errorf("%v, %v", table, err)
	}
}

// TestRuntimeAssembly has the rules of the functions that switch stacks.
func TestRuntimeAssembly(t *testing.T) {
	name := buildGo(t, cgoProgram, []string{"CGO_ENABLED=1"})
	table := openPclntab(t, name)
	symbols := make(map[string]goSymbol)
	for _, s := range goSymbols(t, name) {
		if !symbols[s.name].asm {
			symbols[s.name] = s
		}
	}
	// The rule behind the call by which they run code on the other stack.
	for _, c := range []struct {
		function string
		calls    string // the end of the code up to the call instruction's end
		want     rule.Rule
	}{
		{"runtime.goexit", "\x90\xe8", rule.EndOfStack},
		{"runtime.mstart", "\xe8", rule.EndOfStack},
		{"runtime.mcall", "\x41\xff\xd4", rule.EndOfStack},              // call *%r12
		{"runtime.clone", "\x41\xff\xd4", rule.EndOfStack},              // call *%r12
		{"runtime.systemstack", "\xff\xd7", rule.OtherStack},            // call *%rdi
		{"runtime.nanotime1", "\xff\xd0", rule.OtherStack},              // call *%rax
		{"runtime.asmcgocall", "\x48\x89\x3c\x24\xe8", rule.OtherStack}, // mov %rdi,(%rsp); call
		{"runtime.cgocallback", "\x48\x89\xe7\x48\x01", rule.FromC},     // past the call of cgocallbackg
	} {
		s, ok := symbols[c.function]
		if !ok {
			t.Errorf("no %s", c.function)
			continue
		}
		i := bytes.Index(s.code, []byte(c.calls))
		if i < 0 {
			t.Errorf("%s: no such call", c.function)
			continue
		}
		if r, _ := table.Rule(s.addr + uint64(i+len(c.calls)-1)); r != c.want {
			t.Errorf("%s: rule %v, want %v", c.function, r, c.want)
		}
	}
	s := symbols[sigreturnName]
	for _, at := range []uint64{s.addr - 1, s.addr, s.addr + 7} {
		if r, _ := table.Rule(at); r != rule.Sigframe {
			t.Errorf("%s%+d: rule %v", s.name, int64(at-s.addr), r)
		}
	}
	// Before the switch, the caller is where the table says.
	for function, want := range map[string]rule.Rule{
		"runtime.morestack":   rule.FromSP | 1<<16,
		"runtime.systemstack": rule.FromSP | 1<<16,
		"gogo":                rule.FromSP | 1<<16,
	} {
		if r, ok := table.Rule(symbols[function].addr); r != want || !ok {
			t.Errorf("%s: rule %v, want %v", function, r, want)
		}
	}
}

func TestRuleDoesNotAllocate(t *testing.T) {
	table := openPclntab(t, buildGo(t, goProgram, []string{"CGO_ENABLED=0"}))
	rules := func() {
		for addr := range uint64(1000) {
			table.Rule(table.text + 977*addr)
		}
	}
	rules() // examines the assembly functions
	if n := testing.AllocsPerRun(10, rules); n != 0 {
		t.Errorf("%v allocations for 1000 rules", n)
	}
}

func BenchmarkPclntabRule(b *testing.B) {
	table := openPclntab(b, buildGo(b, goProgram, []string{"CGO_ENABLED=0"}))
	size := table.start(uint32(table.count))
	off := uint64(0)
	for b.Loop() {
		table.Rule(table.text + off)
		off = (off + 9973) % size
	}
}

// buildTable writes a table of any version for functions of 32 bytes that push
// BP first, without names of its own.
func buildTable(version version, text uint64, funcs int) []byte {
	le := binary.LittleEndian
	word, name := 4, 4
	if version == go116 {
		word, name = 8, 8
	}
	names := append([]byte("\x00main.f\x00"), 0)
	// SP moved by 0 for one byte, by 8 for 29, by 0 for two.
	pctab := []byte{0, 2, 1, 16, 29, 15, 2, 0}
	head := make([]byte, 72)
	le.PutUint64(head, version.signature())
	le.PutUint64(head[8:], uint64(funcs))
	at := func(i int, v int) { le.PutUint64(head[8*i:], uint64(v)) }
	if version == go116 {
		at(3, 72)
		at(4, 72+len(names))
		at(6, 72+len(names))
		at(7, 72+len(names)+len(pctab))
	} else {
		le.PutUint64(head[24:], text)
		at(4, 72)
		at(5, 72+len(names))
		at(7, 72+len(names))
		at(8, 72+len(names)+len(pctab))
	}
	flag := name + 33
	if version == go120 {
		flag += 4
	}
	size := (flag + 4 + 7) &^ 7
	table := make([]byte, word*(2*funcs+1)+size*funcs)
	put := func(off int, v uint64) {
		if word == 8 {
			le.PutUint64(table[off:], v)
		} else {
			le.PutUint32(table[off:], uint32(v))
		}
	}
	base := uint64(0)
	if version == go116 {
		base = text
	}
	for i := range funcs {
		f := word*(2*funcs+1) + size*i
		put(word*2*i, base+uint64(32*i))
		put(word*(2*i+1), uint64(f))
		le.PutUint32(table[f+name:], 1)
		le.PutUint32(table[f+name+12:], 1)
	}
	put(word*2*funcs, base+uint64(32*funcs))
	return append(append(append(head, names...), pctab...), table...)
}

// buildImage puts a table and the code that it describes into an ELF file
// without sections: the code at builtText, the table behind it.
func buildImage(version version, funcs int) []byte {
	le := binary.LittleEndian
	code := bytes.Repeat(append([]byte{0x55, 0x48, 0x89, 0xe5},
		append(bytes.Repeat([]byte{0x90}, 26), 0x5d, 0xc3)...), funcs)
	file := make([]byte, builtText-builtBase)
	copy(file, std.ELFMAG)
	file[std.EI_CLASS], file[std.EI_DATA], file[std.EI_VERSION] = byte(elf.ELFCLASS64), byte(std.ELFDATA2LSB), 1
	le.PutUint16(file[16:], uint16(elf.ET_EXEC))
	le.PutUint16(file[18:], uint16(elf.EM_X86_64))
	le.PutUint64(file[32:], 64)
	le.PutUint16(file[54:], 56)
	le.PutUint16(file[56:], 3)
	for i, part := range []struct {
		data  []byte
		flags elf.ProgFlag
	}{
		{code, elf.PF_R | elf.PF_X},
		{buildTable(version, builtText, funcs), elf.PF_R},
		{[]byte("\xff Go buildinf:"), elf.PF_R | elf.PF_W},
	} {
		p := file[64+56*i:]
		le.PutUint32(p, uint32(std.PT_LOAD))
		le.PutUint32(p[4:], uint32(part.flags))
		le.PutUint64(p[8:], uint64(len(file)))
		le.PutUint64(p[16:], uint64(builtBase+len(file)))
		le.PutUint64(p[32:], uint64(len(part.data)))
		le.PutUint64(p[40:], uint64(len(part.data)))
		file = append(file, part.data...)
		file = append(file, make([]byte, -len(file)&7)...)
	}
	return file
}

const (
	builtBase = 0x400000
	builtText = builtBase + 64 + 3*56 // behind the headers
)

func TestEveryVersionOfTheTable(t *testing.T) {
	for _, version := range []version{go116, go118, go120} {
		table := pclntabOf(t, buildImage(version, 8))
		for i := range uint64(8) {
			for off, want := range map[uint64]rule.Rule{0: rule.FromSP | 1<<16, 1: rule.FromSP | 2<<16,
				4: rule.FromSP | 2<<4 | 2<<16, 30: rule.FromSP | 1<<16} {
				if off == 30 {
					off = 31 // behind pop %rbp
				}
				if r, ok := table.Rule(builtText + 32*i + off); !ok || r != want {
					t.Errorf("%#x: function %d+%d: rule %v %v, want %v", version, i, off, r, ok, want)
				}
			}
		}
		for _, addr := range []uint64{0, builtText - 1, builtText + 8*32, ^uint64(0)} {
			if r, ok := table.Rule(addr); ok {
				t.Errorf("%#x: rule %v for %#x, in no function", version, r, addr)
			}
		}
	}
}

func TestNamesAreThoseOfTheSameFunctions(t *testing.T) {
	for _, v := range []version{go116, go118, go120} {
		image := buildImage(v, 8)
		f, err := elf.NewFile(bytes.NewReader(image), int64(len(image)))
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(image, binary.LittleEndian.AppendUint64(nil, v.signature()))
		size := len(buildTable(v, builtText, 8))
		names, err := ReadNames(f, uint64(at), uint64(size))
		if err != nil {
			t.Fatal(err)
		}
		if text, certain := names.Text(); text != builtText || certain != (v == go116) || names.Len() != 8 {
			t.Errorf("%#x: %d functions from %#x on, %v", v, names.Len(), text, certain)
		}
		table := pclntabOf(t, image)
		for i := range names.Len() {
			start, end, name, ok := names.Function(i)
			wantStart, wantEnd, _ := table.Function(builtText + start)
			if !ok || builtText+start != wantStart || builtText+end != wantEnd ||
				!bytes.HasPrefix(names.Strings()[name:], []byte("main.f\x00")) {
				t.Errorf("%#x: function %d is from %#x to %#x, its name at %#x, %v", v, i, start, end, name, ok)
			}
		}
		for n := range size {
			short, err := ReadNames(f, uint64(at), uint64(n))
			if err != nil {
				continue
			}
			for i := range short.Len() {
				short.Function(i)
			}
		}
	}
}

func FuzzPclntab(f *testing.F) {
	for _, version := range []version{go116, go118, go120} {
		f.Add(buildImage(version, 4))
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, data []byte) {
		defer costs.For(len(data)).Check(t)()
		r := bytes.NewReader(data)
		layout, err := elf.ReadLayout(r, r.Size())
		if err != nil {
			return
		}
		table, err := Read(r, r.Size(), layout, whole(r))
		if err != nil {
			if table != nil {
				t.Fatal("a table and an error")
			}
			return
		}
		var row dwarfcfi.Row
		for off := uint64(0); off < 256; off++ {
			addr := table.text + off
			r, ok := table.Rule(addr)
			if ok && r == rule.None {
				t.Fatalf("%#x: no rule", addr)
			}
			if table.Row(addr, &row) == nil && r.Kind() == rule.FromSP && rule.Compile(&row, addr) != r {
				t.Fatalf("%#x: rule %v, row %v", addr, r, rule.Compile(&row, addr))
			}
		}
		for off := uint64(0); off < 256; off += 31 {
			table.Growth(table.text + off)
			table.CallsMorestack(table.text + off)
		}
		for _, addr := range []uint64{0, table.text - 1, ^uint64(0)} {
			table.Rule(addr)
			table.Growth(addr)
			table.CallsMorestack(addr)
		}
	}, inputs.In(func(image []byte) [][2]int {
		return [][2]int{{0, builtText - builtBase}, {builtText - builtBase + 4*32, len(image)}} // not the code
	})))
}

// whole loads all of a part of a file.
func whole(r io.ReaderAt) LoadFunc {
	return func(offset, size uint64) ([]byte, func(from, to int) error, error) {
		data := make([]byte, size)
		_, err := r.ReadAt(data, int64(offset))
		return data, nil, err
	}
}
