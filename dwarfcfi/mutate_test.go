package dwarfcfi

import (
	"bytes"
	"testing"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

// FuzzProgram puts instructions into an entry that is well-formed, so that all of them are looked at.
func FuzzProgram(f *testing.F) {
	f.Add([]byte{}, []byte{cfaAdvanceLoc | 1, cfaRememberState, cfaDefCFA, 6, 16, cfaAdvanceLoc | 4,
		cfaRestoreState},
		uint64(1), int64(-8), byte(1), false)
	f.Add([]byte{cfaDefCFAExpression, 3, 0x77, 8, 0x06}, []byte{cfaExpression, 3, 2, 0x76, 0}, uint64(4),
		int64(-4),
		byte(0), true)
	f.Add(bytes.Repeat([]byte{cfaRememberState}, 100),
		bytes.Repeat([]byte{cfaRememberState, cfaRestoreState}, 500),
		uint64(1), int64(-8), byte(3), false)
	f.Fuzz(inputs.Many(f, func(t *testing.T, initial, program []byte, codeAlign uint64,
		dataAlign int64, kind byte,
		small bool) {
		defer costs.For(len(initial) + len(program)).Check(t)()
		b := builder{eh: kind&1 != 0, wide: kind&2 != 0}
		if small {
			b.ptrSize = 4
		}
		spec := cieSpec{program: append(bytes.Clone(callSite), initial...), codeAlign: codeAlign,
			dataAlign: dataAlign}
		if kind&4 != 0 {
			spec.version, spec.addrSize = 4, 8
		}
		cie := b.cie(spec)
		b.fde(cie, b.abs(0x1000, 0x10000), program)
		b.fde(cie, b.abs(0x20000, 0x100), program)
		table := b.table(t)
		rows := 0
		for d, err := range table.FDEs() {
			if err != nil {
				continue
			}
			at := d.Start
			for row, err := range d.Rows() {
				if err != nil {
					break
				}
				if row.Start != at || row.End <= at || row.End > d.End {
					t.Fatalf("row %#x..%#x does not follow %#x in %#x..%#x", row.Start, row.End, at, d.Start, d.End)
				}
				at = row.End
				if rows++; rows > 2*len(program)+4 {
					t.Fatalf("%d rows from %d bytes", rows, len(program))
				}
				v, cost := counted(machine)
				if expr := row.CFAExpr(); expr != nil {
					Eval(expr, v)
					cost.check(t)
				}
			}
		}
	}))
}

// FuzzSections changes fields of the headers of an ELF file that is well-formed. Each change is the
// number of the 4 bytes that it is made to, and what these are made of.
func FuzzSections(f *testing.F) {
	f.Add(true, []byte{10, 0xff, 0xff, 0xff, 0x7f})
	f.Add(false, []byte{12, 0, 0, 0, 0, 40, 0, 0x10, 0, 0})
	f.Fuzz(inputs.Many(f, func(t *testing.T, small bool, changes []byte) {
		defer costs.For(len(changes) + 16<<10).Check(t)()
		class := 64
		if small {
			class = 32
		}
		file := smallELF(class)
		// The ELF header and the program headers begin the file; the section headers are behind the names.
		headers := bytes.Index(file, []byte(".shstrtab\x00")) + len(".shstrtab\x00")
		for ; len(changes) >= 5; changes = changes[5:] {
			const before = 60 // words of the headers at the beginning
			at := int(changes[0]) * 4
			if changes[0] >= before {
				at += headers - before*4
			}
			if at+4 <= len(file) {
				copy(file[at:], changes[1:5])
			}
		}
		s, err := FindSections(bytes.NewReader(file), int64(len(file)))
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
	}))
}
