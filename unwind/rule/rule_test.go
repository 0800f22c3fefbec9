package rule

import (
	"math/rand/v2"
	"testing"

	"unspool/dwarfcfi"
)

func TestCompile(t *testing.T) {
	offset := func(off int32) dwarfcfi.RegRule { return dwarfcfi.RegRule{Kind: dwarfcfi.Offset, Offset: off} }
	row := func(reg uint8, off int64, bp dwarfcfi.RegRule) *dwarfcfi.Row {
		r := &dwarfcfi.Row{RA: IP}
		r.CFA = dwarfcfi.CFARule{Kind: dwarfcfi.CFARegister, Reg: reg, Offset: off}
		r.Regs[IP] = offset(-8)
		r.Regs[BP] = bp
		return r
	}
	none := dwarfcfi.RegRule{}
	saving := func(r *dwarfcfi.Row, regs ...int) *dwarfcfi.Row {
		for i, reg := range regs {
			r.Regs[reg] = offset(-24 - 8*int32(i))
		}
		return r
	}
	for _, c := range []struct {
		name string
		row  *dwarfcfi.Row
		want Rule
	}{
		{"_Unwind_Resume", saving(row(BP, 16, offset(-16)), DX, AX), EHReturn.With(0x0202, 0)},
		{"mcount", saving(row(SP, 64, none), DX, CX, AX), FromSP | 8<<16},
		{"function entry", row(SP, 8, none), FromSP | 1<<16},
		{"after push rbp", row(SP, 16, offset(-16)), FromSP | 2<<4 | 2<<16},
		{"frame pointer set up", row(BP, 16, offset(-16)), FromBP | 2<<4 | 2<<16},
		{"largest CFA", row(SP, 8*MaxCFA, none), FromSP | MaxCFA<<16},
		{"CFA out of reach", row(SP, 8*MaxCFA+8, none), Local},
		{"CFA not on a word", row(SP, 12, none), Local},
		{"BP out of reach", row(SP, 16, offset(-8*MaxBP-8)), Local},
		{"BP above the CFA", row(SP, 16, offset(8)), Local},
		{"CFA from RBX", row(BX, 16, none), General},
	} {
		if got := Compile(c.row, 0); got != c.want {
			t.Errorf("%s: rule %v, want %v", c.name, got, c.want)
		}
	}
	wide, ok := CompileWide(row(BP, 8*MaxCFA+8, offset(-8*MaxBP-8)))
	if want := (WideRule{Kind: FromBP, CFA: 8*MaxCFA + 8, BP: 8*MaxBP + 8}); !ok || wide != want {
		t.Errorf("a rule with large numbers: %+v, %v", wide, ok)
	}
	if _, ok := CompileWide(row(SP, 8*MaxCFA+8, offset(8))); ok {
		t.Error("BP above the CFA has a rule")
	}
	if w, ok := CompileWide(row(IP, 16, none)); ok {
		t.Errorf("a CFA from RIP: %+v", w)
	}
	end := row(SP, 8, none)
	end.Regs[IP] = dwarfcfi.RegRule{Kind: dwarfcfi.Undefined}
	if got := Compile(end, 0); got != EndOfStack {
		t.Errorf("undefined return address: rule %v, want %v", got, EndOfStack)
	}
}

func TestCacheKeepsEveryRule(t *testing.T) {
	var c Cache
	want := make(map[uint32]Rule)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		off := rng.Uint32N(1 << 20)
		if off%7 == 0 {
			off = 0 // the smallest key has to work, too
		}
		if _, ok := want[off]; ok {
			continue
		}
		r := Rule(rng.Uint32N(1<<32-1) + 1)
		c.Put(off, r)
		want[off] = r
	}
	for off, r := range want {
		if got := c.Get(off); got != r {
			t.Fatalf("offset %#x: rule %v, want %v", off, got, r)
		}
	}
	if got := c.Get(1 << 30); got != None {
		t.Errorf("unknown offset: rule %v", got)
	}
}

func TestRulesAsText(t *testing.T) {
	for r, want := range map[Rule]string{
		FromSP.With(1, 0):         "from SP: CFA = SP+8, BP = BP",
		FromBP.With(2, 2):         "from BP: CFA = BP+16, BP = *(CFA-16)",
		GuessSP.With(3, MaxBP):    "guess from SP: CFA = SP+24, BP lost",
		FromSP.With(3, MaxBP):     "from SP: CFA = SP+24, BP = *(CFA-32760)",
		FromSaved.With(0x2003, 0): "from a saved SP: CFA = *(SP+24)+16, BP = BP",
		GuessReg.With(0x1a, 0):    "guess from a register: CFA = register 10+8, BP = BP",
		Realigned.With(1, 0):      "realigned: CFA = *(BP-8), BP = *BP",
		WideAt(7):                 "wide: number 7",
		EndOfStack:                "end of stack",
		Unreadable:                "unreadable",
		FromC:                     "called from C",
		EHReturn.With(0x0202, 0):  "eh_return",
		NewThread:                 "new thread",
		EHReturn + 1<<4:           "rule 0xac",
		None:                      "none",
	} {
		if got := r.String(); got != want {
			t.Errorf("%#x: %q, want %q", uint32(r), got, want)
		}
	}
}
