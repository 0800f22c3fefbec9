package symbols

import (
	"bytes"
	std "debug/elf"
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/dwarfcfi/elf"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/testdata/programs"
)

const goProgram = `package main

import (
	"fmt"
	"sort"
)

type number interface{ ~int | ~string }

//go:noinline
func largest[T number](v []T) T { return slicesMax(v) }

func slicesMax[T number](v []T) (m T) {
	for _, x := range v {
		m = max(m, x)
	}
	return m
}

func main() {
	v := []int{3, 1, 2}
	sort.Slice(v, func(i, j int) bool { return v[i] < v[j] })
	fmt.Println(v, largest(v), largest([]string{"a"}))
}
`

const cgoProgram = `package main

// int twice(int x) { return 2 * x; }
import "C"

func main() { println(C.twice(21)) }
`

func TestNamesOfStrippedGoPrograms(t *testing.T) {
	need(t, "go")
	for _, c := range []struct {
		name, text string
		env, flags []string
	}{
		{"plain", goProgram, []string{"CGO_ENABLED=0"}, nil},
		{"position-independent", goProgram, []string{"CGO_ENABLED=0"}, []string{"-buildmode=pie"}},
		{"linked by the C linker", cgoProgram, []string{"CGO_ENABLED=1"}, []string{"-ldflags=-linkmode=external"}},
		{"linked statically", cgoProgram, []string{"CGO_ENABLED=1"},
			[]string{"-ldflags=-linkmode=external -extldflags=-static"}},
		{"32-bit", goProgram, []string{"CGO_ENABLED=0", "GOARCH=386"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			named, stripped := programs.BuildGo(t, c.text, c.env, c.flags...), filepath.Join(t.TempDir(), "stripped")
			if c.flags == nil {
				stripped = programs.BuildGo(t, c.text, c.env, "-ldflags=-s -w")
			} else {
				output(t, "objcopy", "--strip-all", named, stripped)
			}
			have := readFile(t, stripped)
			functions := 0
			for line := range strings.Lines(string(programs.Answer(t, nil, []string{named}, "go", "tool", "nm", "-size"))) {
				f := strings.Fields(line)
				if len(f) < 4 || f[2] != "T" && f[2] != "t" ||
					!strings.HasPrefix(f[3], "main.") && !strings.HasPrefix(f[3], "runtime.") {
					continue
				}
				addr, ok := hex([]byte(f[0]))
				name, _, _ := strings.Cut(strings.TrimSuffix(f[3], ".abi0"), "[")
				if !ok || name == "runtime.text" || name == "runtime.etext" {
					continue
				}
				functions++
				got, found := have.Lookup(addr)
				if short, _, _ := strings.Cut(got.Name, "["); !found || short != name || got.Addr != addr {
					t.Errorf("0x%x: %+v, %v; nm says %s", addr, got, found, f[3])
				}
			}
			if functions < 1000 {
				t.Errorf("nm shows %d functions", functions)
			}
		})
	}
}

// goTableBytes is a table of two functions, f at 0x10 and g at 0x20, which ends at 0x30.
func goTableBytes() []byte {
	b := binary.LittleEndian.AppendUint64(nil, 0xfffffff1|1<<48|8<<56) // since Go 1.20
	for _, word := range []uint64{2, 0, 0x1000, 72, 76, 76, 76, 76} {
		b = binary.LittleEndian.AppendUint64(b, word)
	}
	b = append(b, "f\x00g\x00"...)
	for _, word := range []uint32{0x10, 20, 0x20, 28, 0x30, 0x10, 0, 0x20, 2} {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	return b
}

// headerOfCode is an ELF header with one segment, of code that follows the header.
func headerOfCode(machine elf.Machine, addr, size uint64) []byte {
	b := make([]byte, 64, 64+56)
	copy(b, std.ELFMAG)
	b[std.EI_CLASS], b[std.EI_DATA] = byte(std.ELFCLASS64), byte(std.ELFDATA2LSB)
	le := binary.LittleEndian
	le.PutUint16(b[18:], uint16(machine))
	if machine == elf.EM_386 {
		b[std.EI_CLASS] = byte(std.ELFCLASS32)
		le.PutUint32(b[28:], 64) // e_phoff
		le.PutUint16(b[42:], 32) // e_phentsize
		le.PutUint16(b[44:], 1)  // e_phnum
		for _, v := range []uint64{uint64(std.PT_LOAD), 64 + 32, addr, 0, size, size, uint64(elf.PF_X), 0} {
			b = le.AppendUint32(b, uint32(v))
		}
		return b
	}
	le.PutUint64(b[32:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], 1)
	b = le.AppendUint32(le.AppendUint32(b, uint32(std.PT_LOAD)), uint32(elf.PF_X))
	for _, v := range []uint64{64 + 56, addr, 0, size, size, 0} {
		b = le.AppendUint64(b, v)
	}
	return b
}

// addGoTable reads the functions of a file of code at 0x1000 and a table.
func addGoTable(b []byte, machine elf.Machine) (t Table, err error) {
	const start, size = 0x1000, 0x100
	head := headerOfCode(machine, start, size)
	all := slices.Concat(head, bytes.Repeat([]byte{0xcc}, size), b)
	f, err := parseELF(bytes.NewReader(all), int64(len(all)))
	if err != nil {
		return t, err
	}
	builder := builder{code: f.codeRanges()}
	g, err := f.goTable(&elf.Section{Offset: uint64(len(head) + size), Size: uint64(len(b))})
	if err == nil && g.findText(builder.code) {
		g.add(&builder)
	}
	builder.finish(&t, func(addr uint64) uint64 { return codeEnd(builder.code, addr) })
	return t, err
}

func TestGoTable(t *testing.T) {
	table, err := addGoTable(goTableBytes(), elf.EM_X86_64)
	if err != nil {
		t.Fatal(err)
	}
	if table.Len() != 2 || table.At(0) != (Func{"f", 0x1010, 16, 0x1010}) ||
		table.At(1) != (Func{"g", 0x1020, 16, 0x1020}) {
		t.Errorf("%d functions, %+v", table.Len(), table.At(0))
	}
	for n := range goTableBytes() {
		if _, err := addGoTable(goTableBytes()[:n], elf.EM_X86_64); err == nil && n < len(goTableBytes())-16 {
			t.Errorf("no error for %d bytes", n)
		}
	}
}

func FuzzGoTable(f *testing.F) {
	f.Add(goTableBytes(), uint16(elf.EM_X86_64))
	f.Add(goTableBytes(), uint16(elf.EM_386))
	f.Add(goTableBytes(), uint16(std.EM_AARCH64))
	f.Fuzz(inputs.Many(f, func(t *testing.T, b []byte, machine uint16) {
		defer costs.For(len(b)).Check(t)()
		table, _ := addGoTable(b, elf.Machine(machine))
		if 8*table.Len() > len(b) || len(table.names) > 2*len(b)+maxName {
			t.Errorf("%d functions, %d bytes of names from %d bytes", table.Len(), len(table.names), len(b))
		}
		for i := range table.Len() {
			fn := table.At(i)
			if got, ok := table.Lookup(fn.Addr); !ok || got != fn {
				t.Errorf("%+v, %v; want %+v", got, ok, fn)
			}
		}
	}))
}
