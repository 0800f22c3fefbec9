package symbols

import (
	"testing"

	"unspool/testdata/programs"
	"unspool/vmas"
)

func TestExports(t *testing.T) {
	im := New(Options{}).Image(programs.System(t)[0], nil, vmas.FileID{})
	exports := im.Exports()
	for _, c := range []struct {
		name   string
		chosen bool
	}{{"malloc", false}, {"qsort", false}, {"memcpy", true}} {
		found := false
		for _, x := range exports[c.name] {
			f, ok := im.Table().Lookup(x.Addr)
			found = found || ok && f.Addr == x.Addr && x.Chosen == c.chosen
		}
		if !found {
			t.Errorf("%s: %+v", c.name, exports[c.name])
		}
	}
	if n := len(exports["no_function_of_that_name"]); n > 0 || len(exports) < 1000 {
		t.Errorf("%d names", len(exports))
	}
}
