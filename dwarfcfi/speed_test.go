package dwarfcfi

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"unspool/dwarfcfi/elf"
)

// randomPCs are addresses in functions of the table.
func randomPCs(t testing.TB, table *Table, n int) []uint64 {
	t.Helper()
	var fdes []FDE
	for d, err := range table.FDEs() {
		if err == nil && d.End > d.Start {
			fdes = append(fdes, d)
		}
	}
	if len(fdes) == 0 {
		t.Fatal("no FDEs")
	}
	random := rand.New(rand.NewPCG(3, 4))
	pcs := make([]uint64, n)
	for i := range pcs {
		d := &fdes[random.IntN(len(fdes))]
		pcs[i] = d.Start + random.Uint64N(d.End-d.Start)
	}
	return pcs
}

func TestRowsAllocateNothing(t *testing.T) {
	readLibc(t)
	table, _, _ := openTable(t, libc)
	pcs := randomPCs(t, table, 1000)
	var row Row
	lookUp := func() {
		for _, pc := range pcs {
			if err := table.Row(pc, &row); err != nil {
				t.Fatal(err)
			}
		}
		if err := table.Row(0, &row); err != ErrNoFDE {
			t.Fatal(err)
		}
	}
	for _, hdr := range []bool{true, false} {
		if !hdr {
			table.hdr.count = 0
		}
		lookUp() // allocates the CIEs, the stack of remember_state and the index
		if n := testing.AllocsPerRun(10, lookUp); n != 0 {
			t.Errorf("search table %v: %v allocations for %d rows", hdr, n, len(pcs))
		}
	}
}

func BenchmarkRow(b *testing.B) {
	for _, hdr := range []bool{true, false} {
		name := "eh_frame_hdr"
		if !hdr {
			name = "index"
		}
		b.Run(name, func(b *testing.B) {
			readLibc(b)
			table, _, _ := openTable(b, libc)
			if !hdr {
				table.hdr.count = 0
			}
			pcs := randomPCs(b, table, 1<<12)
			var row Row
			table.Row(pcs[0], &row)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := table.Row(pcs[i%len(pcs)], &row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFDE(b *testing.B) {
	readLibc(b)
	table, _, _ := openTable(b, libc)
	pcs := randomPCs(b, table, 1<<12)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := table.FDE(pcs[i%len(pcs)]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIndex is the price of an image without a search table, paid once.
func BenchmarkIndex(b *testing.B) {
	readLibc(b)
	_, _, sections := openTable(b, libc)
	sections.EhFrameHdr = Section{}
	b.ReportAllocs()
	for b.Loop() {
		table, err := New(sections)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := table.FDE(0); err != ErrNoFDE {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadSections is what opening an image costs before its first row.
func BenchmarkReadSections(b *testing.B) {
	for _, pattern := range []string{libc, "/usr/lib/x86_64-linux-gnu/libLLVM-*.so.1"} {
		path := installed(pattern)
		if path == "" {
			continue
		}
		b.Run(pattern, func(b *testing.B) {
			file, err := os.ReadFile(path)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				l, err := elf.ReadLayout(bytes.NewReader(file), int64(len(file)))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := ReadSections(bytes.NewReader(file), l); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEval(b *testing.B) {
	plt := []byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22} // rsp+8+((rip&15)>=11)*8
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Eval(plt, &machine); err != nil {
			b.Fatal(err)
		}
	}
}
