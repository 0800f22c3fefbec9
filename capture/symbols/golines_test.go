package symbols

import (
	"os"
	"slices"
	"strings"
	"testing"

	"unspool/capture/symbols/srcline"
	"unspool/testdata/programs"
)

// Go's table has the lines and inlined functions that its compiler's DWARF has.
func TestLinesOfStrippedGoPrograms(t *testing.T) {
	need(t, "go")
	for _, c := range []struct {
		name, text string
		env, flags []string
	}{
		{"plain", goProgram, []string{"CGO_ENABLED=0"}, nil},
		{"position-independent", goProgram, []string{"CGO_ENABLED=0"}, []string{"-buildmode=pie"}},
		{"linked by the C linker", cgoProgram, []string{"CGO_ENABLED=1"}, []string{"-ldflags=-linkmode=external"}},
		{"32-bit", goProgram, []string{"CGO_ENABLED=0", "GOARCH=386"}, nil},
		{"another architecture", "package main\n\nfunc main() { println(42) }\n",
			[]string{"CGO_ENABLED=0", "GOARCH=arm64"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			file, err := os.Open(programs.BuildGo(t, c.text, c.env, c.flags...))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			st, err := file.Stat()
			if err != nil {
				t.Fatal(err)
			}
			f, err := parseELF(file, st.Size())
			if err != nil {
				t.Fatal(err)
			}
			table, err := f.table(nil)
			if err != nil {
				t.Fatal(err)
			}
			var addrs []uint64
			for i := range table.Len() {
				fn := table.At(i)
				if name, _, _ := strings.Cut(fn.Name, "."); name != "main" && name != "runtime" {
					continue
				}
				for addr := fn.Addr; addr < fn.Addr+fn.Size; addr += 12 {
					addrs = append(addrs, addr)
				}
			}
			want := make([][]srcline.Frame, len(addrs))
			d, err := srcline.Open(srcline.File{ReaderAt: file, Size: st.Size(), Name: file.Name()}, srcline.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := d.Frames(addrs, func(i int, frames []srcline.Frame) { want[i] = slices.Clone(frames) }); err != nil {
				t.Fatal(err)
			}
			compared, inlined, differ := 0, 0, 0
			err = f.goLines(nil, addrs, func(i int, have []srcline.Frame) {
				for _, f := range have {
					if !strings.HasPrefix(f.File, "/") || strings.HasSuffix(f.File, ".s") {
						return // DWARF says less about what was generated and about assembly
					}
				}
				if len(want[i]) > 0 && want[i][0].Line == 0 {
					return
				}
				for k := range want[i] {
					want[i][k].Column = 0
				}
				compared++
				if len(have) > 1 {
					inlined++
				}
				if outer := len(want[i]) - 1; outer >= 0 && outer < len(have) && want[i][outer].Start == 0 {
					want[i][outer].Start = have[outer].Start // DWARF does not say where wrappers begin that Go has made
				}
				if !slices.Equal(have, want[i]) {
					if differ++; differ <= 5 {
						t.Errorf("%#x: %+v, by DWARF %+v", addrs[i], have, want[i])
					}
				}
			})
			if err != nil || differ > 0 || compared < 1000 || inlined < compared/10 {
				t.Errorf("%d addresses compared, %d with inlined functions, %d differ: %v", compared, inlined, differ, err)
			}
		})
	}
}
