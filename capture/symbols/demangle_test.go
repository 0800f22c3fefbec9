package symbols

import (
	"strings"
	"testing"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

func FuzzDemangle(f *testing.F) {
	f.Add("_ZNSt6vectorIiSaIiEE9push_backEOi")
	f.Add("_RNvCs1234_7mycrate3foo")
	f.Add("_Z" + strings.Repeat("1aI", 20) + "E")
	f.Add("_ZN1aI" + strings.Repeat("S_", 30) + "EE")
	for _, name := range inputs.Names(400, "_", "/usr/lib/x86_64-linux-gnu/lib*.so.?") {
		f.Add(name)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, name string) {
		defer costs.For(len(name)).Check(t)()
		if got := Demangle(name); len(got) > maxMangled && len(got) > len(name) {
			t.Fatalf("%d bytes from %d", len(got), len(name))
		}
	}))
}
