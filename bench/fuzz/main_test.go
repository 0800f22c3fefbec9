package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// Rows of targets that are not run again are kept as they are.
func TestTableIsReadAsItWasWritten(t *testing.T) {
	rows := []result{
		{"vmas", "FuzzMaps", 10000000,
			[]string{"1", "3 + 4", "80.0 % of 7", "0.1 %", "2.0 %", "none", "2026-11-23"}},
		{"dwarfcfi", "FuzzELF", 5, []string{"1", "3 + 4", "80.0 % of 7", "0.1 %", "2.0 %", "2", "2026-11-23"}},
	}
	targets := []result{{pkg: "dwarfcfi", target: "FuzzELF"}, {pkg: "vmas", target: "FuzzMaps"},
		{pkg: "vmas", target: "FuzzNew"}}
	name := filepath.Join(t.TempDir(), "FUZZ.md")
	if err := os.WriteFile(name, table(targets, rows, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readTable(name); !reflect.DeepEqual(got, []result{rows[1], rows[0]}) {
		t.Errorf("%+v", got)
	}
}

func TestCoverageIsOfTheFunctionsThatWereCalled(t *testing.T) {
	t.Chdir(t.TempDir())
	const source = "package p\n\nfunc f() {\n\tg()\n\tg()\n}\n\nfunc g() {\n}\n\nfunc never() {\n\tg()\n}\n"
	const profile = "mode: set\nunspool/p.go:3.10,5.3 2 1\nunspool/p.go:5.3,6.2 1 0\n" +
		"unspool/p.go:8.10,9.2 1 1\n" +
		"unspool/p.go:11.14,13.2 9 0\ngithub.com/a/b.go:1.1,2.2 7 1\n"
	for name, text := range map[string]string{"p.go": source, "profile": profile} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if share, functions, err := coverage("profile"); share != 0.75 || functions != 2 || err != nil {
		t.Errorf("%v of %d functions, %v", share, functions, err)
	}
}
