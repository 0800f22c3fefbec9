package dwarfcfi

import (
	"errors"
	"fmt"
	"testing"
)

func TestCIEsOfEveryVersionAndSection(t *testing.T) {
	for _, eh := range []bool{true, false} {
		for _, wide := range []bool{false, true} {
			for _, version := range []byte{1, 3, 4} {
				t.Run(fmt.Sprintf("eh %v, DWARF64 %v, version %d", eh, wide, version), func(t *testing.T) {
					b := builder{eh: eh, wide: wide}
					spec := cieSpec{version: version, program: callSite}
					if version == 4 {
						spec.addrSize, spec.segSize = 8, 2
					}
					b.fde(b.cie(cieSpec{program: []byte{cfaDefCFA, 6, 16}}), b.abs(0x900, 0x10))
					b.fde(b.cie(spec), b.abs(0x1000, 0x100), cfaDefCFAOffset, 16)
					var row Row
					if err := b.table(t).Row(0x1010, &row); err != nil {
						t.Fatal(err)
					}
					if got, want := show(&row), "1000-1100 r7+16 r16=c-8"; got != want {
						t.Errorf("got  %s\nwant %s", got, want)
					}
				})
			}
		}
	}
}

func TestAugmentations(t *testing.T) {
	personality := join(peIndirect|pePCRel|peSdata4, le.AppendUint32(nil, 0x1234))
	for _, c := range []struct {
		augmentation string
		data         []byte
		bad          bool
	}{
		{augmentation: ""},
		{augmentation: "z"},
		{augmentation: "zR", data: []byte{peAbsptr}},
		{augmentation: "zPLR", data: join(personality, pePCRel|peSdata4, peAbsptr)},
		{augmentation: "zRS", data: []byte{peAbsptr}},
		{augmentation: "zRB", data: []byte{peAbsptr}},
		{augmentation: "zRG", data: []byte{peAbsptr}},
		{augmentation: "zR?!", data: []byte{peAbsptr, 1, 2, 3, 4}},
		{augmentation: "zPR", data: join(peOmit, peAbsptr)},
		{augmentation: "zPR", data: join(peULEB128, 0x80, 1, peAbsptr)},
		{augmentation: "eh", data: make([]byte, 8), bad: false},
		{augmentation: "R", bad: true},
		{augmentation: "armcc+", bad: true},
		{augmentation: "zR", bad: true},                           // no data
		{augmentation: "zPR", data: []byte{pePCRel}, bad: true},   // cut short
		{augmentation: "zR", data: []byte{peIndirect}, bad: true}, // needs the process
		{augmentation: "zR", data: []byte{0x0f}, bad: true},
		{augmentation: "zR", data: []byte{0x60}, bad: true},
		{augmentation: "zR", data: []byte{peOmit}, bad: true},
	} {
		t.Run(fmt.Sprintf("%s %x", c.augmentation, c.data), func(t *testing.T) {
			spec := cieSpec{augmentation: c.augmentation, data: c.data}
			if c.augmentation == "eh" {
				// The pointer to exception data stands between the augmentation string and the alignment
				// factors.
				b := builder{eh: true}
				cie := &cieSpec{augmentation: "eh"}
				cie.offset = b.entry(nil, join(1, "eh", 0, c.data, 1, sleb128(-8), 16, callSite))
				b.fde(cie, b.abs(0x1000, 0x100))
				var row Row
				if err := b.table(t).Row(0x1000, &row); err != nil || show(&row) != "1000-1100 r7+8 r16=c-8" {
					t.Errorf("%s, %v", show(&row), err)
				}
				return
			}
			var row Row
			err := oneFDE(t, spec).Row(0x1000, &row)
			if c.bad != errors.Is(err, ErrBadCFI) || !c.bad && err != nil {
				t.Fatalf("got %v", err)
			}
			if err == nil && show(&row) != "1000-1100 r7+8 r16=c-8" {
				t.Errorf("got %s", show(&row))
			}
		})
	}
}

func TestBadCIEsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		spec cieSpec
	}{
		{"version 2", cieSpec{version: 2}},
		{"version 5", cieSpec{version: 5}},
		{"address size 3", cieSpec{version: 4, addrSize: 3}},
		{"segment selector of 200 bytes", cieSpec{version: 4, addrSize: 8, segSize: 200}},
		{"return address in register 1000", cieSpec{version: 3, ra: 1000}},
		{"CIE that advances", cieSpec{program: []byte{cfaAdvanceLoc | 1}}},
		{"CIE that restores", cieSpec{program: []byte{cfaRestore | 3}}},
		{"endless augmentation", cieSpec{augmentation: "z234567890123456789012345678901234567890"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var row Row
			if err := oneFDE(t, c.spec).Row(0x1000, &row); !errors.Is(err, ErrBadCFI) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPointerEncodings(t *testing.T) {
	// The pointers stand at section + 16 (one CIE of a known size before them); the
	// function is at 0x20_1000 and has 0x40 bytes.
	const (
		addr   = 0x20_0000
		text   = 0x20_0100
		data   = 0x20_0200
		target = 0x20_1000
	)
	for _, ptrSize := range []int{8, 4} {
		for _, c := range []struct {
			name string
			enc  byte
			base uint64 // what it is relative to; 1: its own place
		}{
			{"absptr", peAbsptr, 0},
			{"signed absptr", peSigned, 0},
			{"uleb128", peULEB128, 0},
			{"sleb128", peSLEB128, 0},
			{"udata4", peUdata4, 0},
			{"udata8", peUdata8, 0},
			{"sdata4", peSdata4, 0},
			{"sdata8", peSdata8, 0},
			{"pcrel sdata4", pePCRel | peSdata4, 1},
			{"pcrel sdata2", pePCRel | peSdata2, 1},
			{"pcrel udata2", pePCRel | peUdata2, 1},
			{"pcrel absptr", pePCRel | peAbsptr, 1},
			{"pcrel sleb128", pePCRel | peSLEB128, 1},
			{"textrel udata4", peTextRel | peUdata4, text},
			{"datarel sdata4", peDataRel | peSdata4, data},
			{"datarel sdata8", peDataRel | peSdata8, data},
			{"funcrel udata4", peFuncRel | peUdata4, 0},
			{"aligned", peAligned, 0},
		} {
			t.Run(fmt.Sprintf("%s, %d bytes", c.name, ptrSize), func(t *testing.T) {
				b := builder{eh: true, ptrSize: ptrSize}
				b.Addr = addr
				cie := b.cie(cieSpec{augmentation: "zR", data: []byte{c.enc}, program: callSite})
				at := uint64(addr + len(b.Data) + 8)
				base := c.base
				if base == 1 {
					base = at
				}
				value := func(v uint64) []byte {
					switch c.enc & peFormat {
					case peULEB128:
						return uleb128(v)
					case peSLEB128:
						return sleb128(int64(v))
					}
					size := fixedSize(c.enc, uint8(ptrSize))
					return le.AppendUint64(nil, v)[:size]
				}
				var pad []byte
				if c.enc == peAligned {
					pad = make([]byte, -at&uint64(ptrSize-1))
				}
				b.fde(cie, join(pad, value(target-base), value(0x40)))
				sections := b.sections()
				sections.Text, sections.Data = text, data
				table, err := New(sections)
				if err != nil {
					t.Fatal(err)
				}
				d, err := table.FDE(target + 0x3f)
				if err != nil || d.Start != target || d.End != target+0x40 {
					t.Errorf("%#x..%#x, %v", d.Start, d.End, err)
				}
			})
		}
	}
}
