package unwind

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"unspool/dwarfcfi"
	"unspool/testdata/programs"
	"unspool/unwind/rule"
)

// TestFileIsCutShortWhileItIsInUse truncates a library under its image, which is lost
// and named once; what was found before stays.
func TestFileIsCutShortWhileItIsInUse(t *testing.T) {
	library, err := os.ReadFile(programs.System(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	regs := Regs{}
	for n := range regs.Value {
		regs.set(n, 0x7ffc_0000_0000)
	}
	stack := Stack{Base: 0x7ffc_0000_0000, Data: make([]byte, 1<<12)}
	for name, ask := range map[string]func(*place, uint64) bool{
		"rule": func(p *place, pc uint64) bool { return p.image.rule(p.m, pc) == rule.Unreadable },
		"row": func(p *place, pc uint64) bool {
			var row dwarfcfi.Row
			return errors.Is(p.image.row(p.m, pc, &row), errCut)
		},
		"entry": func(p *place, pc uint64) bool {
			var row dwarfcfi.Row
			return errors.Is(p.image.entryRow(pc-p.m.Start, &row), errCut)
		},
		"evaluation": func(p *place, pc uint64) bool {
			_, end := evaluate(p, pc, &regs, &stack)
			return end == BadCFI
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "library.so")
			if err := os.WriteFile(path, library, 0o600); err != nil {
				t.Fatal(err)
			}
			space, images := asImage(t, path, 0x7f00_0000_0000)
			failed := 0
			images.Failed = func(string, error) { failed++ }
			p := place{m: &space.Mappings()[0]}
			p.image = images.of(1, p.m)
			p.image.parse()
			if p.image.err != nil || p.image.mapped == nil {
				t.Fatalf("not mapped: %v", p.image.err)
			}
			var pcs []uint64
			for fde := range p.image.cfi.FDEs() {
				if off, ok := offsetOf(p.image, fde.Start); ok && len(pcs) < 2 {
					pcs = append(pcs, p.m.Start+off)
				}
			}
			before := p.image.rule(p.m, pcs[0])
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			if !ask(&p, pcs[1]) {
				t.Error("not told that the file is cut")
			}
			for range 2 {
				if r := p.image.rule(p.m, pcs[1]); r != rule.Unreadable {
					t.Errorf("%#x afterwards", r)
				}
			}
			if r := p.image.rule(p.m, pcs[0]); r != before {
				t.Errorf("%#x where %#x was found before", r, before)
			}
			if failed != 1 {
				t.Errorf("named %d times", failed)
			}
			images.Forget(p.m.File)
		})
	}
	t.Run("another panic", func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("was kept")
			}
		}()
		var err error
		im := &Image{store: NewImages("/proc")}
		defer im.guard(false, &err)
		panic("other")
	})
}
