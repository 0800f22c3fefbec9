package gotab

import (
	"debug/dwarf"
	"debug/elf"
	"slices"
	"strings"
	"testing"
)

// TestGrowthIsWhatDWARFSays compares what is read from the runtime's code with its debugging information,
// from wherever in the runtime's assembly it is asked for.
func TestGrowthIsWhatDWARFSays(t *testing.T) {
	for _, c := range []struct {
		name, source string
		env, args    []string
	}{
		{"plain", goProgram, []string{"CGO_ENABLED=0"}, nil},
		{"pie", goProgram, []string{"CGO_ENABLED=0"}, []string{"-buildmode=pie"}},
		{"cgo", cgoProgram, []string{"CGO_ENABLED=1"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			name := buildGo(t, c.source, c.env, c.args...)
			want := Growth{
				M:     offsetOf(t, name, "runtime.g", "m"),
				CurG:  offsetOf(t, name, "runtime.m", "curg"),
				Sched: offsetOf(t, name, "runtime.g", "sched"),
			}
			if at := offsetOf(t, name, "runtime.gobuf", "g"); at != 16 {
				t.Errorf("a g's own address is at %d of sched", at)
			}
			var from []uint64
			var newstack []uint64 // and what Go makes for assembly to call it
			symbols := goSymbols(t, name)
			for _, s := range symbols {
				switch strings.TrimSuffix(s.name, ".abi0") {
				case "runtime.goexit", "runtime.rt0_go", "runtime.mstart", "runtime.mcall", "runtime.morestack":
					from = append(from, s.addr)
				case "runtime.newstack":
					newstack = append(newstack, s.addr)
				}
			}
			for _, addr := range from {
				got, ok := openPclntab(t, name).Growth(addr)
				if want.Return = got.Return; !ok || got != want {
					t.Errorf("from %#x: %+v, %v, want %+v", addr, got, ok, want)
				}
				if to := calledBefore(symbols, got.Return); !slices.Contains(newstack, to) {
					t.Errorf("from %#x: %#x follows a call of %#x, want %#x", addr, got.Return, to, newstack)
				}
			}
			if len(from) < 4 {
				t.Errorf("%d functions", len(from))
			}
			if g, ok := openPclntab(t, name).Growth(0x10); ok {
				t.Errorf("outside of the code: %+v", g)
			}
		})
	}
}

// calledBefore is what the call calls that ends at an address, 0 if there is none.
func calledBefore(symbols []goSymbol, addr uint64) uint64 {
	for _, s := range symbols {
		if off := addr - s.addr; off >= 5 && off < uint64(len(s.code)) && s.code[off-5] == 0xe8 {
			c := s.code[off-4:]
			return addr + uint64(int64(int32(uint32(c[0])|uint32(c[1])<<8|uint32(c[2])<<16|uint32(c[3])<<24)))
		}
	}
	return 0
}

// offsetOf is where a field of a structure is, by the debugging information of a file.
func offsetOf(t *testing.T, file, structure, field string) uint16 {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	for r := d.Reader(); ; {
		e, err := r.Next()
		if err != nil || e == nil {
			t.Fatalf("no %s.%s: %v", structure, field, err)
		}
		if e.Tag != dwarf.TagStructType || e.Val(dwarf.AttrName) != structure {
			continue
		}
		of, err := d.Type(e.Offset)
		if err != nil {
			t.Fatal(err)
		}
		for _, is := range of.(*dwarf.StructType).Field {
			if is.Name == field {
				return uint16(is.ByteOffset)
			}
		}
	}
}
