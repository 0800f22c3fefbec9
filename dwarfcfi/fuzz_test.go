package dwarfcfi

import (
	"bytes"
	"os"
	"testing"

	"unspool/dwarfcfi/elf/elftest"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

func FuzzTable(f *testing.F) {
	b, pairs := hundred(true)
	hdr := searchHdr(0x7000, peDataRel|peSdata4, pairs)
	f.Add(b.Data, hdr.Data, uint64(0x1008), false)
	f.Add(b.Data, []byte{}, uint64(0x1008), true)
	f.Add(b.Data, searchHdr(0x7000, peUdata2, pairs).Data, uint64(0x1008), false)
	for _, spec := range []cieSpec{
		{augmentation: "zPLR", data: join(peIndirect|pePCRel|peSdata4, 1, 2, 3, 4, 0, peAbsptr)},
		{version: 4, addrSize: 4, segSize: 1},
	} {
		b := builder{eh: true}
		b.fde(b.cie(spec), b.abs(0x1000, 16), cfaRememberState, cfaExpression, 3, 2, 0x76, 0, cfaAdvanceLoc|1,
			cfaRestoreState)
		f.Add(b.Data, []byte{}, uint64(0x1008), false)
	}
	for _, frames := range inputs.Sections(40, 2<<10, ".eh_frame", inputs.Programs...) {
		f.Add(frames, []byte{}, uint64(0x8000), false)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, frame, hdr []byte, pc uint64, small bool) {
		defer costs.For(len(frame) + len(hdr)).Check(t)()
		s := Sections{
			EhFrame:    Section{Addr: 0x8000, Data: frame, Open: small},
			EhFrameHdr: Section{Addr: 0x7000, Data: hdr},
			DebugFrame: Section{Data: frame},
			PtrSize:    8,
		}
		if small {
			s.PtrSize = 4
		}
		table, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		var row Row
		check := func(pc uint64) {
			if err := table.Row(pc, &row); err != nil {
				return
			}
			if pc < row.Start || pc >= row.End {
				t.Fatalf("row of %#x is %#x..%#x", pc, row.Start, row.End)
			}
			row.CFAExpr()
			for _, rule := range row.Regs {
				if rule.Kind >= Expression {
					row.Expr(rule)
				}
			}
		}
		check(pc)
		if start, end, ok := table.Gap(pc); ok && (pc < start || pc >= end) {
			t.Fatalf("gap around %#x is %#x..%#x", pc, start, end)
		}
		for d, err := range table.FDEs() {
			if err != nil {
				continue
			}
			check(d.Start)
			at := d.Start
			for row, err := range d.Rows() {
				if err != nil {
					break
				}
				if row.Start != at || row.End <= at || row.End > d.End {
					t.Fatalf("row %#x..%#x does not follow %#x in %#x..%#x", row.Start, row.End, at, d.Start, d.End)
				}
				at = row.End
			}
		}
	}))
}

func FuzzEval(f *testing.F) {
	f.Add([]byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}, uint64(0), uint64(0x7000))
	f.Add([]byte{0x77, 8, 0x94, 1, 0x06, 0x08, 1, 0x22}, uint64(8), uint64(0))
	f.Add([]byte{0x33, 0x31, 0x1c, 0x12, 0x28, 0xfa, 0xff}, uint64(1), uint64(2))
	f.Add([]byte{0x31, 0x30, 0x1b}, uint64(1), uint64(2))
	f.Add([]byte{0x9e, 0xff, 0xff, 0xff, 0xff, 0x7f}, uint64(1), uint64(2))
	f.Add([]byte{0x31, 0x77, 0, 0x06, 0x13, 0x2f, 0xf9, 0xff}, uint64(1), uint64(0x7000))
	f.Add([]byte{0x31, 0x23, 1, 0x31, 0x1b, 0x12, 0x28, 0xf8, 0xff}, uint64(1), uint64(2))
	f.Fuzz(inputs.Many(f, func(t *testing.T, expr []byte, cfa, sp uint64) {
		defer costs.For(len(expr)).Check(t)()
		eval := func(ptrSize int, initial ...uint64) (uint64, error) {
			v, cost := counted(machine)
			v.Regs = append([]uint64(nil), machine.Regs...)
			v.Regs[7] = sp
			v.PtrSize = ptrSize
			got, err := Eval(expr, v, initial...)
			cost.check(t)
			return got, err
		}
		eval(8)
		eval(8, cfa)
		if got, err := eval(4, cfa); err == nil && got>>32 != 0 {
			t.Errorf("%#x from a 32-bit image", got)
		}
	}))
}

func FuzzELF(f *testing.F) {
	for _, image := range [][]byte{smallELF(64), smallELF(32)} {
		f.Add(image)
		stripped := bytes.Clone(image)
		clear(stripped[40:48]) // e_shoff
		f.Add(stripped)
		big := bytes.Clone(image)
		big[5] = 2
		f.Add(big)
	}
	if self, err := os.ReadFile("/proc/self/exe"); err == nil {
		f.Add(self[:4096])
	}
	for _, file := range inputs.Files(40, 40<<10, inputs.Objects...) {
		f.Add(file)
	}
	for _, file := range inputs.Files(20, 40<<10, "../dist/inputs/*.elf") {
		f.Add(file)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, file []byte) {
		defer costs.For(len(file)).Check(t)()
		r := bytes.NewReader(file)
		s, err := FindSections(r, int64(len(file)))
		if err != nil {
			return
		}
		table, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		for range table.FDEs() {
		}
		var row Row
		table.Row(0x401000, &row)
	}, inputs.InELF(".eh_frame", ".debug_frame")))
}

// smallELF is a file with one function, at 0x401000.
func smallELF(class int) []byte {
	frame := builder{eh: true, ptrSize: class / 8}
	fde := frame.fde(frame.cie(cieSpec{program: callSite}), frame.abs(elftest.Base+0x1000, 0x100))
	return elftest.Small(class, frame.Data, fde)
}
