package jit

import (
	"math/rand/v2"
	"testing"

	"unspool/dwarfcfi"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/unwind/jit/jitdump"
	"unspool/unwind/jit/jittest"
	"unspool/unwind/rule"
)

// TestYoungestCode compares what a dump finds with a search through all code.
func TestYoungestCode(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var d dump
	written := make(map[uint64]jitdump.Entry) // the youngest, by address
	age := make(map[uint64]int)
	for range 200 {
		for range 1 + rng.IntN(20) {
			// Runtimes reuse memory in pieces of about the same size.
			r := jitdump.Entry{Kind: jitdump.CodeLoad, Addr: 64 * rng.Uint64N(1000), Size: 1 + rng.Uint64N(100)}
			d.add(&r)
			written[r.Addr], age[r.Addr] = r, int(d.seq)
		}
		d.merge()
		for range 20 {
			pc := rng.Uint64N(64 * 1000)
			want := -1
			for addr, r := range written {
				if pc-addr < r.Size {
					want = max(want, age[addr])
				}
			}
			got := -1
			if c := d.find(pc); c != nil {
				got = int(c.seq)
			}
			if got != want {
				t.Fatalf("%#x: found the code written as number %d, want %d", pc, got, want)
			}
		}
	}
}

func FuzzJitdump(f *testing.F) {
	f.Add(jittest.EhFrame(11, jittest.Trampoline), uint64(0x1000), uint64(11), uint64(6))
	f.Add(jittest.EhFrame(33, jittest.Framed), ^uint64(7), uint64(33), uint64(9))
	for _, frames := range inputs.Sections(20, 4<<10, ".eh_frame", inputs.Programs...) {
		f.Add(frames, uint64(0x1000), uint64(len(frames)), uint64(1))
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, frame []byte, addr, size, off uint64) {
		defer costs.For(len(frame)).Check(t)()
		var d dump
		r := jitdump.Entry{Kind: jitdump.CodeLoad, Addr: addr, Size: size, Frame: frame}
		d.add(&r)
		d.merge()
		var row dwarfcfi.Row
		if err := d.row(addr+off, &row); err == nil {
			if off >= size {
				t.Fatalf("a row for %#x in code of %#x bytes", off, size)
			}
			rule.Compile(&row, addr+off)
		}
	}))
}
