package gotab

import (
	"debug/elf"
	"strings"
	"testing"

	"golang.org/x/arch/x86/x86asm"

	"unspool/dwarfcfi"

	"unspool/unwind/rule"
)

// A goSymbol is a function in the symbol table, which the rules do not use.
type goSymbol struct {
	name string // without the suffix of functions in assembly, which their wrappers do not have
	asm  bool   // the name had that suffix
	addr uint64
	code []byte
}

func goSymbols(tb testing.TB, name string) (list []goSymbol) {
	tb.Helper()
	f, err := elf.Open(name)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		tb.Fatal(err)
	}
	text := f.Section(".text")
	data, err := text.Data()
	if err != nil {
		tb.Fatal(err)
	}
	var lo, hi uint64
	for _, s := range symbols {
		switch s.Name {
		case "runtime.text":
			lo = s.Value
		case "runtime.etext":
			hi = s.Value
		}
	}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Value >= lo && s.Value < hi && s.Size > 0 &&
			!strings.HasPrefix(s.Name, "go:") {
			off := s.Value - text.Addr
			base, asm := strings.CutSuffix(s.Name, ".abi0")
			list = append(list, goSymbol{base, asm, s.Value, data[off : off+s.Size]})
		}
	}
	return list
}

// TestRulesFollowTheCode follows what the instructions of every Go function do to SP
// and BP, along all branches, and compares the result with the rule at every
// instruction.
func TestRulesFollowTheCode(t *testing.T) {
	for _, b := range goBuilds {
		t.Run(b.name, func(t *testing.T) {
			name := buildGo(t, b.source, b.env, b.args...)
			table := openPclntab(t, name)
			functions, rules := 0, 0
			symbols, names := goSymbols(t, name), make(map[uint64]string)
			for _, s := range symbols {
				names[s.addr] = s.name
			}
			for _, s := range symbols {
				w := codeWalk{t: t, table: table, symbol: s, names: names, seen: make(map[int]spState)}
				if s.name == "runtime.systemstack" {
					// The table of the code before covers the branch to a crash, too.
					continue
				}
				if w.run(); w.rules > 0 {
					functions++
				}
				rules += w.rules
			}
			t.Logf("%d rules of %d functions", rules, functions)
			if functions < 1000 {
				t.Errorf("%d functions were compared", functions)
			}
		})
	}
}

// TestRulesOfTheRaceDetectorsCalls does the same for the function by which code calls the race detector. That
// is in C and needs another stack: the SP of the first one is in a register meanwhile.
func TestRulesOfTheRaceDetectorsCalls(t *testing.T) {
	name := buildGo(t, goProgram, []string{"CGO_ENABLED=1"}, "-race")
	for _, s := range goSymbols(t, name) {
		if s.name != "racecall" {
			continue
		}
		w := codeWalk{t: t, table: openPclntab(t, name), symbol: s, seen: make(map[int]spState)}
		if w.run(); w.held < 2 {
			t.Errorf("%d rules of %d are for an SP in another register", w.held, w.rules)
		}
		return
	}
	t.Error("no racecall")
}

// spState is where SP and the caller's BP are: how far below the CFA SP is, and the
// slot that holds BP. bp means that BP has the caller's value.
type spState struct {
	depth, slot int64
	bp          bool
	frame       int64 // depth at which BP points as frame pointer, 0 for none

	held      x86asm.Reg // has the SP of this depth; 0 for none
	heldDepth int64
	elsewhere bool // SP has a value that the code alone does not tell
}

type codeWalk struct {
	t      *testing.T
	table  *Table
	symbol goSymbol
	names  map[uint64]string
	seen   map[int]spState
	rules  int
	held   int // of these, with the SP in another register
	failed bool
}

func (w *codeWalk) run() {
	type todo struct {
		off   int
		state spState
	}
	work := []todo{{0, spState{depth: 8, bp: true}}}
	for len(work) > 0 && !w.failed {
		off, s := work[len(work)-1].off, work[len(work)-1].state
		work = work[:len(work)-1]
		for off < len(w.symbol.code) {
			if _, ok := w.seen[off]; ok {
				break
			}
			w.seen[off] = s
			inst, err := x86asm.Decode(w.symbol.code[off:], 64)
			if err != nil || !w.check(off, s) {
				break
			}
			next := off + inst.Len
			if rel, ok := inst.Args[0].(x86asm.Rel); ok && inst.Op != x86asm.CALL {
				if to := next + int(rel); to >= 0 && to < len(w.symbol.code) {
					work = append(work, todo{to, s})
				}
			}
			if rel, ok := inst.Args[0].(x86asm.Rel); ok && inst.Op == x86asm.CALL {
				if neverReturns(w.names[w.symbol.addr+uint64(next)+uint64(int64(rel))]) {
					break
				}
			}
			if inst.Op == x86asm.JMP || inst.Op == x86asm.RET || inst.Op == x86asm.UD2 || inst.Op == x86asm.INT ||
				!s.apply(&inst) {
				break
			}
			off = next
		}
	}
}

// neverReturns reports whether the compiler knows that a function of the runtime does not
// return. The code behind a call of it belongs to another branch.
func neverReturns(name string) bool {
	if strings.HasSuffix(name, ".throw") {
		return true
	}
	name, ok := strings.CutPrefix(name, "runtime.")
	return ok && (strings.Contains(name, "anic") || strings.HasSuffix(name, "hrow") || name == "block" ||
		name == "goexit1" || name == "abort")
}

// apply does what an instruction does to SP and BP. It reports false when
// SP's value is not known any more.
func (s *spState) apply(inst *x86asm.Inst) bool {
	dst, _ := inst.Args[0].(x86asm.Reg)
	imm, isImm := inst.Args[1].(x86asm.Imm)
	mem, isMem := inst.Args[1].(x86asm.Mem)
	to, isStore := inst.Args[0].(x86asm.Mem)
	src, _ := inst.Args[1].(x86asm.Reg)
	switch inst.Op {
	case x86asm.PUSH, x86asm.PUSHFQ:
		s.depth += 8
		if dst == x86asm.RBP && s.bp {
			s.slot = s.depth
		}
		return true
	case x86asm.POP, x86asm.POPFQ:
		if dst == x86asm.RBP {
			s.bp, s.frame = s.depth == s.slot, 0
		}
		s.depth -= 8
		return true
	case x86asm.CMP, x86asm.TEST, x86asm.CALL:
		return true
	case x86asm.MOV:
		if isStore && src == x86asm.RBP && to.Base == x86asm.RSP && s.bp {
			s.slot = s.depth - to.Disp
		}
	}
	switch dst {
	case x86asm.R12:
		s.held = 0
		if inst.Op == x86asm.MOV && src == x86asm.RSP {
			s.held, s.heldDepth = dst, s.depth
		}
	case x86asm.RSP:
		switch {
		case inst.Op == x86asm.MOV && src != 0 && src == s.held:
			s.depth, s.elsewhere = s.heldDepth, false
		case s.held != 0 && s.slot == 0:
			s.elsewhere = true
		case inst.Op == x86asm.SUB && isImm:
			s.depth += int64(imm)
		case inst.Op == x86asm.ADD && isImm:
			s.depth -= int64(imm)
		case inst.Op == x86asm.LEA && isMem && mem.Base == x86asm.RSP && mem.Index == 0:
			s.depth -= mem.Disp
		default:
			return false
		}
	case x86asm.RBP, x86asm.EBP:
		s.frame = 0
		switch {
		case inst.Op == x86asm.MOV && src == x86asm.RSP:
			s.bp, s.frame = false, s.depth
		case inst.Op == x86asm.MOV && isMem && mem.Base == x86asm.RSP && s.depth-mem.Disp == s.slot:
			s.bp = true
		default:
			s.bp = false
		}
	}
	return true
}

// check compares the rule at an instruction with the state before it.
func (w *codeWalk) check(off int, s spState) bool {
	addr := w.symbol.addr + uint64(off)
	r, ok := w.table.Rule(addr)
	fail := func() bool {
		w.failed = true
		w.t.Errorf("%s+%#x: rule %v %v; the code has %+v", w.symbol.name, off, r, ok, s)
		return false
	}
	var cfa, bp int64
	reg := uint8(rule.SP)
	switch r.Kind() {
	case rule.OtherStack:
		// The rule uses the frame pointer, which must be there.
		if !ok || s.frame != 16 || s.slot != 16 {
			return fail()
		}
		return true
	case rule.EndOfStack, rule.Sigframe:
		return true
	case rule.NewThread:
		if w.symbol.name != "runtime.clone" || s.depth != 8 {
			return fail()
		}
		return true
	case rule.FromSP, rule.FromBP:
		cfa, bp = int64(r.CFA()), int64(r.BP())
		if r.Kind() == rule.FromBP {
			reg = rule.BP
		}
	case rule.Local, rule.General:
		var row dwarfcfi.Row
		if w.table.Row(addr, &row) != nil {
			return fail()
		}
		cfa, reg = row.CFA.Offset, row.CFA.Reg
		if row.Regs[rule.BP].Kind == dwarfcfi.Offset {
			bp = -int64(row.Regs[rule.BP].Offset)
		}
		if (row.Regs[rule.IP].Kind == dwarfcfi.Register) != (s.depth == 0) {
			return fail()
		}
	default:
		return fail()
	}
	w.rules++
	if heldIn := uint8(s.held - x86asm.R8 + 8); s.held != 0 && reg == heldIn {
		w.held++
		reg, s.depth, s.elsewhere = rule.SP, s.heldDepth, false
	}
	if s.elsewhere || reg != rule.SP && reg != rule.BP {
		return fail()
	}
	if reg == rule.SP && cfa != s.depth || reg == rule.BP && cfa != s.frame {
		return fail()
	}
	// A saved BP must be in its slot. If it is not saved, BP must still have the
	// caller's value, unless the function does not save BP and uses it.
	if bp != 0 && bp != s.slot || bp == 0 && !s.bp && s.slot != 0 &&
		!strings.HasPrefix(w.symbol.name, "runtime.cgocallback") {
		return fail()
	}
	return true
}

// TestCodeWithVectorsIsReadInStep: cmpbody has vzeroupper, of which golang.org/x/arch takes one byte for an instruction
// that writes SP.
func TestCodeWithVectorsIsReadInStep(t *testing.T) {
	table := openPclntab(t, buildGo(t, goProgram, []string{"CGO_ENABLED=0"}))
	for i := range uint32(table.count) {
		f, ok := table.entry(i)
		if !ok || table.code.name(f.name) != "cmpbody" {
			continue
		}
		if a := table.assembly(i, &f); a == nil || a.spWritten != 0 || a.bpWritten {
			t.Errorf("cmpbody: %+v", a)
		}
		return
	}
	t.Error("no cmpbody")
}
