package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"unspool/dwarfcfi"
	"unspool/testdata/programs"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// A mappedImage is an image with the mapping of its file.
type mappedImage struct {
	m     *vmas.Mapping
	image *Image
}

// TestFileIsCutShortWhileItIsInUse truncates a library under its image, of which not all was looked at:
// it is lost and named once; what was found before stays.
func TestFileIsCutShortWhileItIsInUse(t *testing.T) {
	library, err := os.ReadFile(programs.System(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func(*mappedImage, uint64) bool{
		"rule": func(p *mappedImage, pc uint64) bool { return p.image.Rule(p.m, pc) == rule.Unreadable },
		"row": func(p *mappedImage, pc uint64) bool {
			var row dwarfcfi.Row
			return errors.Is(p.image.Row(p.m, pc, &row), errCut)
		},
		"function": func(p *mappedImage, pc uint64) bool {
			_, _, ok := p.image.FDE(p.m, pc)
			return !ok && p.image.err != nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "library.so")
			if err := os.WriteFile(path, library, 0o600); err != nil {
				t.Fatal(err)
			}
			space, images := mappedAt(t, path, 0x7f00_0000_0000)
			failed := 0
			images.hooks.Failed = func(string, error) { failed++ }
			p := mappedImage{m: firstMapping(space)}
			p.image = images.Lookup(1, p.m)
			if err := p.image.Parse(); err != nil || len(p.image.lazy) == 0 {
				t.Fatalf("not read by and by: %v", err)
			}
			var pcs [2]uint64 // of the first FDE and the last one
			for fde := range openCFI(t, path).FDEs() {
				if off, ok := p.image.offset(fde.Start); ok {
					pcs[1] = p.m.Start + off
				}
				if pcs[0] == 0 {
					pcs[0] = pcs[1]
				}
			}
			before := p.image.Rule(p.m, pcs[0])
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			if !ask(&p, pcs[1]) {
				t.Error("not told that the file is cut")
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
		})
	}
}
