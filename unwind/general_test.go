package unwind

import (
	"os"
	"path/filepath"
	"testing"

	"unspool/testdata/programs"
	"unspool/unwind/rule"
)

// TestFileIsCutShortInAnEvaluation truncates a library under its image, which is lost
// and named once; what was found before stays.
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
	space, images := asImage(t, path, 0x7f00_0000_0000)
	failed := 0
	images.Failed = func(string, error) { failed++ }
	p := place{m: &space.Mappings()[0]}
	p.image = images.Lookup(1, p.m)
	if err := p.image.Parse(); err != nil {
		t.Fatal(err)
	}
	file := contentsOf(t, path)
	var pcs []uint64
	for fde := range file.cfi.FDEs() {
		if off, ok := file.offset(fde.Start); ok && len(pcs) < 2 {
			pcs = append(pcs, p.m.Start+off)
		}
	}
	before := p.image.Rule(p.m, pcs[0])
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, end := NewUnwinder(images).begin(space, &stack).evaluate(&p, pcs[1], &regs); end != BadCFI {
		t.Errorf("of a file that is cut: %v", end)
	}
	for range 2 {
		if r := p.image.Rule(p.m, pcs[1]); r != rule.Unreadable {
			t.Errorf("%v afterwards", r)
		}
	}
	if r := p.image.Rule(p.m, pcs[0]); r != before {
		t.Errorf("%v where %v was found before", r, before)
	}
	if failed != 1 {
		t.Errorf("named %d times", failed)
	}
	images.Forget(p.m.File)
}
