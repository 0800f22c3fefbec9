package unwind

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"unspool/testdata/programs"
	"unspool/unwind/image"
	"unspool/unwind/rule"
)

// TestFileIsCutShortInAnEvaluation truncates a library under its image, of which not all was looked at:
// it is lost and named once; what was found before stays.
func TestFileIsCutShortInAnEvaluation(t *testing.T) {
	library, err := os.ReadFile(programs.System(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	regs := Regs{}
	for n := range regs.Value {
		regs.set(n, 0x7ffc_0000_0000)
	}
	stack := Stack{Base: 0x7ffc_0000_0000, Data: make([]byte, 1<<12)}
	path := filepath.Join(t.TempDir(), "library.so")
	if err := os.WriteFile(path, library, 0o600); err != nil {
		t.Fatal(err)
	}
	space, _ := asImage(t, path, 0x7f00_0000_0000)
	failed := 0
	hooks := image.Hooks{Failed: func(string, error) { failed++ }}
	images := image.New(image.Config{Proc: "/proc", Hooks: hooks})
	im := images.Lookup(1, firstMapping(space))
	if err := im.Parse(); err != nil {
		t.Fatal(err)
	}
	p := placeIn(im, firstMapping(space))
	file := contentsOf(t, path)
	var pcs [2]uint64 // of the first FDE and the last one
	for fde := range file.cfi.FDEs() {
		if off, ok := file.offset(fde.Start); ok {
			pcs[1] = p.m.Start + off
		}
		if pcs[0] == 0 {
			pcs[0] = pcs[1]
		}
	}
	before := p.rule(pcs[0])
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, end := NewUnwinder(images).begin(space, &stack).evaluate(&p, pcs[1], &regs); end != BadCFI {
		t.Errorf("of a file that is cut: %v", end)
	}
	for range 2 {
		if r := p.rule(pcs[1]); r != rule.Unreadable {
			t.Errorf("%v afterwards", r)
		}
	}
	if r := p.rule(pcs[0]); r != before {
		t.Errorf("%v where %v was found before", r, before)
	}
	if failed != 1 {
		t.Errorf("named %d times", failed)
	}
	images.Forget(p.m.File)
}

// TestShortExpressions compares the evaluation that needs no evaluator with
// the evaluator, on each architecture.
func TestShortExpressions(t *testing.T) {
	const base = 0xffc0_0000
	rng := rand.New(rand.NewPCG(5, 6))
	stack := Stack{Base: base, Data: make([]byte, 256), Asked: 256}
	for i := range stack.Data {
		stack.Data[i] = byte(rng.Uint32())
	}
	exprs := [][]byte{
		{0x74, 0x20, 0x06},             // *(esp + 32): CFA of __kernel_sigreturn
		{0x74, 0xbc, 0x01, 0x06},       // *(esp + 188): CFA of __kernel_rt_sigreturn
		{0x74, 0xd8, 0x01},             // esp + 216
		{0x75, 0x7c, 0x06},             // *(ebp - 4): CFA of a realigned main
		{0x75, 0x00},                   // ebp
		{0x74, 0xff, 0x7e},             // esp - 129
		{0x74, 0x80, 0x80, 0x04, 0x06}, // *(esp + 65536): beyond the copy
		{0x74, 0x70, 0x06},             // *(esp - 16): below it
		{0x78, 0x00},                   // eip
		{0x79, 0x00},                   // no register of i386
		{0x73, 0x00},                   // ebx, which is not known
		{0x73, 0x00, 0x06},
		{0x74, 0x04, 0x06, 0x23, 0x04}, // *(esp + 4) + 4
		{0x74},
		{},
	}
	for _, arch := range rule.Arches {
		for _, expr := range exprs {
			compareShort(t, arch, expr, &stack, rng)
		}
	}
}

func compareShort(t *testing.T, arch *rule.Arch, expr []byte, stack *Stack, rng *rand.Rand) {
	var old Regs
	for r := range arch.NumRegs {
		if r != rule.BX { // as i386 numbers it, too
			old.set(r, stack.Base+4*rng.Uint64N(8))
		}
	}
	left := maxExpressions
	e := evaluation{arch: arch, old: old, stack: stack, pc: 0x8001234, missing: stepped, left: &left}
	v, ok := e.eval(expr)
	why := e.missing
	e.missing = stepped
	want, wantOK := e.evalAny(expr, nil)
	if ok != wantOK || ok && v != want || why != e.missing {
		t.Errorf("%s: % x: %#x %v %v, evaluator %#x %v %v",
			arch.Names[0], expr, v, ok, why, want, wantOK, e.missing)
	}
}
