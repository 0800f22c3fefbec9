package symbols

import (
	"os/exec"
	"strings"
	"testing"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

var namesOfD = map[string]string{
	"_Dmain":                       "D main",
	"_D3std5stdio7writelnFNfAyaZv": "std.stdio.writeln",
	"_D4test3fooFiZ3barMFZv":       "test.foo.bar",
	"_D4test3fooFiZ3barMxFNaNbZ3bazMFKiJlLfMPvZAa": "test.foo.bar.baz",
	"_D4core8internal5array__T9appendingTaZQnFNaAaZv": "" +
		"core.internal.array.appending!(...).appending",
	"_D4core8internal5array17__T9appendingTaZ9appendingFNaAaZv": "" +
		"core.internal.array.appending!(...).appending",
	"_D6object9Throwable6__ctorMFNaNbNiNfAyaQdmCQBiQBcZC6object9Throwable": "object.Throwable.this",
	"_D4test1S6__dtorMFNbZv":                                   "test.S.~this",
	"_D8demangle4testFDFZaZv":                                  "demangle.test",
	"_D8demangle4testFG42aHiPxkZv":                             "demangle.test",
	"_D8demangle__T4testVi3VlN5Vee8P2VAyaa3_616263S3fooZ1fFZv": "demangle.test!(...).f",
	"_D4test1fFNaNkMKC4test1CE4test1EZNn":                      "test.f",
	"_D4test1fFZv.constprop.0":                                 "test.f [clone .constprop.0]",
	"_D3app3runFB2OaiNlaZv":                                    "app.run",
	"_D3app26__T3runS153lib6string3padZ4loopFZv":               "app.run!(...).loop",
	"_D3app31__T3runS20_D3lib6string3padFZvZ4loopFZv":          "app.run!(...).loop",
	"_D4test1fPFiZv":                                           "test.f",
}

func TestDemangleD(t *testing.T) {
	for mangled, want := range namesOfD {
		if got := Demangle(mangled); got != want {
			t.Errorf("%s: %s, want %s", mangled, got, want)
		}
	}
	for _, other := range []string{"_D", "_DYNAMIC", "_D4test", "_D9test", "_D4testF", "_D4test1fFZ", "_DQa",
		"_D4test1fFZvv", "_D4test__T1fTZ1fFZv"} {
		if got := Demangle(other); got != other && other != "_D4test" {
			t.Errorf("%s: %s", other, got)
		}
	}
}

// c++filt gives the same names, apart from parameters and arguments.
func TestDemangleDAgreesWithCxxfilt(t *testing.T) {
	need(t, "c++filt")
	for mangled, want := range namesOfD {
		out, err := exec.Command("c++filt", "-s", "dlang", mangled).Output()
		if err != nil {
			t.Fatal(err)
		}
		full := strings.TrimSpace(string(out))
		if full == mangled || full == want || strings.Contains(mangled, ".") {
			continue // or it does not know the form
		}
		var name strings.Builder
		depth := 0
		for i, c := range full {
			switch {
			case c == '(':
				if depth++; depth == 1 && i > 0 && full[i-1] == '!' {
					name.WriteString("(...)")
				}
			case c == ')':
				depth--
			case depth == 0:
				name.WriteRune(c)
			}
		}
		if have, _, _ := strings.Cut(strings.ReplaceAll(name.String(), " const", ""), " "); have != want {
			t.Errorf("%s: %s, c++filt says %s", mangled, want, full)
		}
	}
}

func FuzzDemangleD(f *testing.F) {
	for mangled := range namesOfD {
		f.Add(mangled)
	}
	for _, name := range inputs.Names(100, "_D", "/usr/lib/x86_64-linux-gnu/lib*.so*") {
		f.Add(name)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, mangled string) {
		defer costs.For(len(mangled)).Check(t)()
		name, ok := demangleD(mangled)
		if ok && len(name) > min(maxMangled, 8*len(mangled)*len(mangled))+2 {
			t.Errorf("%q: %d bytes", mangled, len(name))
		}
	}))
}
