package dwarfcfi

import (
	"bytes"
	"os"
	"testing"
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
		b.fde(b.cie(spec), b.abs(0x1000, 16), cfaRememberState, cfaExpression, 3, 2, 0x76, 0, cfaAdvanceLoc|1, cfaRestoreState)
		f.Add(b.Data, []byte{}, uint64(0x1008), false)
	}
	f.Fuzz(func(t *testing.T, frame, hdr []byte, pc uint64, small bool) {
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
	})
}

func FuzzEval(f *testing.F) {
	f.Add([]byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}, uint64(0), uint64(0x7000))
	f.Add([]byte{0x77, 8, 0x94, 1, 0x06, 0x08, 1, 0x22}, uint64(8), uint64(0))
	f.Add([]byte{0x33, 0x31, 0x1c, 0x12, 0x28, 0xfa, 0xff}, uint64(1), uint64(2))
	f.Add([]byte{0x31, 0x30, 0x1b}, uint64(1), uint64(2))
	f.Add([]byte{0x9e, 0xff, 0xff, 0xff, 0xff, 0x7f}, uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, expr []byte, cfa, sp uint64) {
		v := machine
		v.Regs = append([]uint64(nil), machine.Regs...)
		v.Regs[7] = sp
		Eval(expr, &v)
		Eval(expr, &v, cfa)
		v.PtrSize = 4
		if got, err := Eval(expr, &v, cfa); err == nil && got>>32 != 0 {
			t.Errorf("%#x from a 32-bit image", got)
		}
	})
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
	f.Fuzz(func(t *testing.T, file []byte) {
		r := bytes.NewReader(file)
		ReadBuildID(r)
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
	})
}

// smallELF writes an executable of the class with one segment, a note, .eh_frame_hdr, .eh_frame and
// section headers. One function is at 0x401000.
func smallELF(class int) []byte {
	wide := class == 64
	word := func(b []byte, v uint64) []byte {
		if wide {
			return le.AppendUint64(b, v)
		}
		return le.AppendUint32(b, uint32(v))
	}
	const base = 0x400000
	names := "\x00.eh_frame\x00.eh_frame_hdr\x00.note.gnu.build-id\x00.plt\x00.shstrtab\x00"
	nameAt := func(name string) uint32 { return uint32(bytes.Index([]byte(names), []byte("\x00"+name+"\x00")) + 1) }

	note := join(le.AppendUint32(nil, 4), le.AppendUint32(nil, 8), le.AppendUint32(nil, 3), "GNU\x00", "12345678")
	frame := builder{eh: true, ptrSize: class / 8}
	at := frame.fde(frame.cie(cieSpec{program: callSite}), frame.abs(base+0x1000, 0x100))

	headers := 64 + 3*56
	noteAt := uint64(headers)
	hdrAt := noteAt + uint64(len(note))
	frameAt := hdrAt + 20
	hdr := join(1, pePCRel|peSdata4, peUdata4, peDataRel|peSdata4,
		le.AppendUint32(nil, uint32(frameAt-hdrAt-4)), le.AppendUint32(nil, 1),
		le.AppendUint32(nil, uint32(base+0x1000-(base+hdrAt))), le.AppendUint32(nil, uint32(frameAt-hdrAt+at)))
	namesAt := frameAt + uint64(len(frame.Data))
	shoff := namesAt + uint64(len(names))

	b := join(0x7f, "ELF", class/32, 1, 1, make([]byte, 9))
	machine, phsize, shsize := uint16(62), 56, 64
	if !wide {
		machine, phsize, shsize = 3, 32, 40
	}
	b = le.AppendUint16(le.AppendUint16(b, 2), machine)
	b = le.AppendUint32(b, 1)
	b = word(word(word(b, base+0x1000), 64), shoff)
	b = le.AppendUint32(b, 0)
	for _, v := range []int{64, phsize, 3, shsize, 6, 5} {
		b = le.AppendUint16(b, uint16(v))
	}
	b = append(b, make([]byte, 64-len(b))...)

	segment := func(typ, flags uint32, offset, size uint64) {
		b = le.AppendUint32(b, typ)
		if wide {
			b = le.AppendUint32(b, flags)
		}
		for _, v := range []uint64{offset, base + offset, base + offset, size, size} {
			b = word(b, v)
		}
		if !wide {
			b = le.AppendUint32(b, flags)
		}
		b = word(b, 4)
	}
	segment(1, 5, 0, 0x2000)
	segment(4, 4, noteAt, uint64(len(note)))
	segment(0x6474e550, 4, hdrAt, uint64(len(hdr)))
	b = append(b, make([]byte, headers-len(b))...)
	b = join(b, note, hdr, frame.Data, names)

	section := func(name string, typ uint32, flags, addr, offset, size uint64) {
		b = le.AppendUint32(le.AppendUint32(b, nameAt(name)), typ)
		for _, v := range []uint64{flags, addr, offset, size} {
			b = word(b, v)
		}
		b = append(b, make([]byte, 8)...)
		b = word(word(b, 4), 0)
	}
	b = append(b, make([]byte, shsize)...)
	section(".note.gnu.build-id", 7, 2, base+noteAt, noteAt, uint64(len(note)))
	section(".eh_frame_hdr", 1, 2, base+hdrAt, hdrAt, uint64(len(hdr)))
	section(".eh_frame", 1, 2, base+frameAt, frameAt, uint64(len(frame.Data)))
	section(".plt", 1, 6, base+0x1800, 0x1800, 0x40)
	section(".shstrtab", 3, 0, 0, namesAt, uint64(len(names)))
	return append(b, make([]byte, 0x2000-len(b))...)
}
