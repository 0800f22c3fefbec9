package dwarfcfi

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// show writes a row as DWARF's own tables do: its range, the CFA, the rules that are there.
func show(r *Row) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%x-%x ", r.Start, r.End)
	switch r.CFA.Kind {
	case CFAUnset:
		s.WriteString("cfa?")
	case CFARegister:
		fmt.Fprintf(&s, "r%d%+d", r.CFA.Reg, r.CFA.Offset)
	case CFAExpression:
		fmt.Fprintf(&s, "exp(%x)", r.CFAExpr())
	}
	for n, rule := range r.Regs {
		switch rule.Kind {
		case Undefined:
			fmt.Fprintf(&s, " r%d=u", n)
		case SameValue:
			fmt.Fprintf(&s, " r%d=s", n)
		case Offset:
			fmt.Fprintf(&s, " r%d=c%+d", n, rule.Offset)
		case ValOffset:
			fmt.Fprintf(&s, " r%d=v%+d", n, rule.Offset)
		case Register:
			fmt.Fprintf(&s, " r%d=r%d", n, rule.Reg)
		case Expression:
			fmt.Fprintf(&s, " r%d=exp(%x)", n, r.Expr(rule))
		case ValExpression:
			fmt.Fprintf(&s, " r%d=vexp(%x)", n, r.Expr(rule))
		}
	}
	if r.RASigned {
		s.WriteString(" signed")
	}
	return s.String()
}

// instructions are programs for 0x1000..0x1100 that follow the instructions of callSite, with the
// first row of each.
var instructions = func() []instructionCase {
	b := join
	return []instructionCase{
		{"nothing", nil, "1000-1100 r7+8 r16=c-8"},
		{"nop", b(cfaNop), "1000-1100 r7+8 r16=c-8"},
		{"def_cfa", b(cfaDefCFA, 6, 16), "1000-1100 r6+16 r16=c-8"},
		{"def_cfa_sf", b(cfaDefCFASF, 6, sleb128(-4)), "1000-1100 r6+32 r16=c-8"},
		{"def_cfa_register", b(cfaDefCFARegister, 10), "1000-1100 r10+8 r16=c-8"},
		{"def_cfa_offset", b(cfaDefCFAOffset, uleb128(4096)), "1000-1100 r7+4096 r16=c-8"},
		{"def_cfa_offset_sf", b(cfaDefCFAOffsetSF, sleb128(-3)), "1000-1100 r7+24 r16=c-8"},
		{"def_cfa_expression", b(cfaDefCFAExpression, 2, 0x77, 0x08), "1000-1100 exp(7708) r16=c-8"},
		{"a register after an expression keeps the offset",
			b(cfaDefCFAExpression, 2, 0x77, 0x08, cfaDefCFAOffset, 24, cfaDefCFARegister, 6),
			"1000-1100 r6+24 r16=c-8"},
		{"offset", b(cfaOffset|6, 2), "1000-1100 r7+8 r6=c-16 r16=c-8"},
		{"offset_extended", b(cfaOffsetExtended, 6, 2), "1000-1100 r7+8 r6=c-16 r16=c-8"},
		{"offset_extended_sf", b(cfaOffsetExtendedSF, 6, sleb128(-2)), "1000-1100 r7+8 r6=c+16 r16=c-8"},
		{"GNU_negative_offset_extended", b(cfaGNUNegOffsetExtended, 6, 2), "1000-1100 r7+8 r6=c+16 r16=c-8"},
		{"val_offset", b(cfaValOffset, 6, 2), "1000-1100 r7+8 r6=v-16 r16=c-8"},
		{"val_offset_sf", b(cfaValOffsetSF, 6, sleb128(-2)), "1000-1100 r7+8 r6=v+16 r16=c-8"},
		{"register", b(cfaRegister, 16, 5), "1000-1100 r7+8 r16=r5"},
		{"same_value", b(cfaSameValue, 3), "1000-1100 r7+8 r3=s r16=c-8"},
		{"undefined", b(cfaUndefined, 16), "1000-1100 r7+8 r16=u"},
		{"expression", b(cfaExpression, 3, 2, 0x76, 0x00), "1000-1100 r7+8 r3=exp(7600) r16=c-8"},
		{"val_expression", b(cfaValExpression, 7, 3, 0x76, 0x00, 0x06), "1000-1100 r7+8 r7=vexp(760006) r16=c-8"},
		{"restore gives the CIE's rule back", b(cfaOffset|16, 9, cfaOffset|3, 2, cfaRestore|16, cfaRestore|3),
			"1000-1100 r7+8 r16=c-8"},
		{"restore_extended", b(cfaOffset|16, 9, cfaRestoreExtended, 16), "1000-1100 r7+8 r16=c-8"},
		{"remember and restore, nested",
			b(cfaRememberState, cfaDefCFAOffset, 16, cfaRememberState, cfaDefCFAOffset, 32, cfaOffset|3, 4,
				cfaRestoreState), "1000-1100 r7+16 r16=c-8"},
		{"restore_state restores the CFA as well",
			b(cfaRememberState, cfaDefCFAExpression, 1, 0x96, cfaUndefined, 16, cfaRestoreState),
			"1000-1100 r7+8 r16=c-8"},
		{"GNU_args_size", b(cfaGNUArgsSize, uleb128(300)), "1000-1100 r7+8 r16=c-8"},
		{"AARCH64_negate_ra_state", b(cfaNegateRAState), "1000-1100 r7+8 r16=c-8 signed"},
		{"AARCH64_negate_ra_state_with_pc", b(cfaNegateRAStateWithPC), "1000-1100 r7+8 r16=c-8 signed"},
		{"two negations cancel out", b(cfaNegateRAState, cfaNegateRAState), "1000-1100 r7+8 r16=c-8"},
		{"rules for vector and mask registers are dropped",
			b(cfaOffsetExtended, 67, 2, cfaUndefined, 118, cfaRestoreExtended, 67), "1000-1100 r7+8 r16=c-8"},
		{"a location that does not move ends no row", b(cfaAdvanceLoc, cfaDefCFAOffset, 16),
			"1000-1100 r7+16 r16=c-8"},
		{"advance_loc", b(cfaAdvanceLoc|4, cfaDefCFAOffset, 16), "1000-1004 r7+8 r16=c-8"},
		{"advance_loc1", b(cfaAdvanceLoc1, 0x80, cfaDefCFAOffset, 16), "1000-1080 r7+8 r16=c-8"},
		{"advance_loc2", b(cfaAdvanceLoc2, 0xff, 0), "1000-10ff r7+8 r16=c-8"},
		{"advance_loc4", b(cfaAdvanceLoc4, 0x10, 0, 0, 0), "1000-1010 r7+8 r16=c-8"},
		{"MIPS_advance_loc8", b(cfaAdvanceLoc8, 0x10, 0, 0, 0, 0, 0, 0, 0), "1000-1010 r7+8 r16=c-8"},
		{"a row ends with its function", b(cfaAdvanceLoc2, 0xff, 0xff), "1000-1100 r7+8 r16=c-8"},
		{"set_loc", b(cfaSetLoc, le.AppendUint64(nil, 0x1020), cfaDefCFAOffset, 16), "1000-1020 r7+8 r16=c-8"},
		{"what follows the row is not read", b(cfaAdvanceLoc|1, 0x3f), "1000-1001 r7+8 r16=c-8"},
	}
}()

type instructionCase struct {
	name    string
	program []byte
	want    string // the row at 0x1000
}

func TestEveryInstructionMakesItsRule(t *testing.T) {
	for _, c := range instructions {
		t.Run(c.name, func(t *testing.T) {
			var row Row
			if err := oneFDE(t, cieSpec{}, c.program).Row(0x1000, &row); err != nil {
				t.Fatal(err)
			}
			if got := show(&row); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestBadProgramsAreRefused(t *testing.T) {
	b := func(parts ...any) []byte { return join(parts...) }
	for _, c := range []struct {
		name    string
		program []byte
	}{
		{"unknown instruction", b(0x3f)},
		{"user instruction of another machine", b(0x1c)},
		{"restore_state without remember_state", b(cfaRestoreState)},
		{"remember_state nested without end", bytes.Repeat([]byte{cfaRememberState}, maxRemembered+1)},
		{"cut in an operand", b(cfaDefCFA, 7)},
		{"number without end", b(cfaDefCFAOffset, 0x80, 0x80)},
		{"expression longer than the entry", b(cfaDefCFAExpression, 100, 0x96)},
		{"expression of 2^63 bytes", b(cfaDefCFAExpression, uleb128(1<<63))},
		{"set_loc backwards", b(cfaSetLoc, le.AppendUint64(nil, 0xfff))},
		{"advance_loc around the address space", b(cfaAdvanceLoc8, le.AppendUint64(nil, math.MaxUint64))},
		{"CFA from a vector register", b(cfaDefCFA, 67, 8)},
		{"offset beyond 2 GiB", b(cfaOffset|6, uleb128(1<<40))},
		{"offset whose product wraps", b(cfaOffset|6, uleb128(1<<61))},
		{"too long", bytes.Repeat([]byte{cfaNop}, maxProgram+1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			var row Row
			err := oneFDE(t, cieSpec{}, c.program).Row(0x10ff, &row)
			var place *Error
			if !errors.Is(err, ErrBadCFI) || !errors.As(err, &place) || place.Section != ".eh_frame" {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRowsFollowOneAnother(t *testing.T) {
	table := oneFDE(t, cieSpec{codeAlign: 2},
		cfaAdvanceLoc|1, cfaDefCFAOffset, 16, cfaOffset|6, 2,
		cfaAdvanceLoc|4, cfaRememberState, cfaDefCFARegister, 6,
		cfaAdvanceLoc1, 100, cfaRestoreState,
		cfaAdvanceLoc|2, cfaAdvanceLoc, cfaDefCFAOffset, 8)
	want := []string{
		"1000-1002 r7+8 r16=c-8",
		"1002-100a r7+16 r6=c-16 r16=c-8",
		"100a-10d2 r6+16 r6=c-16 r16=c-8",
		"10d2-10d6 r7+16 r6=c-16 r16=c-8",
		"10d6-1100 r7+8 r6=c-16 r16=c-8",
	}
	d, err := table.FDE(0x1080)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for row, err := range d.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, show(row))
		for _, pc := range []uint64{row.Start, row.End - 1} {
			var direct Row
			if err := table.Row(pc, &direct); err != nil || show(&direct) != show(row) {
				t.Errorf("row at %#x is %s (%v), in order %s", pc, show(&direct), err, show(row))
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestReturnAddressColumnAndSignalFrame(t *testing.T) {
	var row Row
	table := oneFDE(t, cieSpec{augmentation: "zS", ra: 8})
	if err := table.Row(0x1000, &row); err != nil || !row.Signal || row.RA != 8 {
		t.Errorf("RA %d, signal %v, %v", row.RA, row.Signal, err)
	}
	table = oneFDE(t, cieSpec{})
	if err := table.Row(0x1000, &row); err != nil || row.Signal || row.RA != 16 {
		t.Errorf("RA %d, signal %v, %v", row.RA, row.Signal, err)
	}
}

func TestRowHasExpressions(t *testing.T) {
	for kind := range ValExpression + 1 {
		var r Row
		r.Regs[3].Kind = kind
		if want := kind == Expression || kind == ValExpression; r.HasExpressions() != want {
			t.Errorf("a register of kind %d: %v", kind, !want)
		}
	}
	for kind, want := range map[CFAKind]bool{CFAUnset: false, CFARegister: false, CFAExpression: true} {
		var r Row
		if r.CFA.Kind = kind; r.HasExpressions() != want {
			t.Errorf("a CFA of kind %d: %v", kind, !want)
		}
	}
}

// A row that a look-up gives holds as far as look-ups find its FDE, if FDEs overlap.
func TestRowsOfFDEsThatOverlap(t *testing.T) {
	for _, eh := range []bool{true, false} {
		b := builder{eh: eh}
		c := b.cie(cieSpec{program: callSite})
		b.fde(c, b.abs(0x1000, 0x100))
		b.fde(c, b.abs(0x1040, 0x10), cfaDefCFAOffset, 16)
		b.fde(c, b.abs(0x1080, 0x100))
		table := b.table(t)
		for _, want := range []struct{ pc, start, end uint64 }{
			{0x1000, 0x1000, 0x1040}, {0x103f, 0x1000, 0x1040}, {0x1040, 0x1040, 0x1050},
			{0x1050, 0x1050, 0x1080}, {0x1080, 0x1080, 0x1180},
		} {
			var row Row
			if err := table.Row(want.pc, &row); err != nil || row.Start != want.start || row.End != want.end {
				t.Errorf(".eh_frame %v: %#x: row %#x to %#x, %v, want %#x to %#x", eh, want.pc, row.Start, row.End, err,
					want.start, want.end)
			}
		}
	}
	eh, debug := builder{eh: true}, builder{}
	c := eh.cie(cieSpec{program: callSite})
	eh.fde(c, eh.abs(0x1040, 0x10))
	eh.fde(c, eh.abs(0x1080, 0x10))
	debug.fde(debug.cie(cieSpec{program: callSite}), debug.abs(0x1000, 0x100))
	s := eh.sections()
	s.DebugFrame = debug.Section
	table, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ pc, start, end uint64 }{
		{0x1000, 0x1000, 0x1040}, {0x1048, 0x1040, 0x1050}, {0x1060, 0x1050, 0x1080}, {0x10f0, 0x1090, 0x1100},
	} {
		var row Row
		if err := table.Row(want.pc, &row); err != nil || row.Start != want.start || row.End != want.end {
			t.Errorf("both sections: %#x: row %#x to %#x, %v, want %#x to %#x", want.pc, row.Start, row.End, err,
				want.start, want.end)
		}
	}
}
