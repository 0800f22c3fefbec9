package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	proto "github.com/google/pprof/profile"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// The hot and the cold part of a function are one function everywhere: a row, a node of the tree, a function of a file
// for another tool.
func TestPartsOfAFunctionAreOneRow(t *testing.T) {
	t.Parallel()
	lane.Tools(t, "nm")
	program := buildCase(t, "cold.cc", "-g")
	if n := strings.Count(output(t, "", "nm", program), " _ZN3app6handleEl"); n != 2 {
		t.Skipf("the compiler has made %d parts of app::handle", n)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "perf.data")
	if e := unspool(t, dir, slices.Concat([]string{"record", "-q", "-o", path}, programs.Faults(),
		[]string{"--", program})...); e.status != 0 {
		t.Fatalf("record: status %d\n%s", e.status, e.stderr)
	}
	const faults = 30
	var samples uint64
	for _, options := range [][]string{nil, {"--inline"}} {
		var report struct {
			Events []struct {
				Functions []struct {
					Name  string
					Total uint64
				}
			}
		}
		text := unspool(t, dir, append([]string{"report", "--json", path}, options...)...).stdout
		if err := json.Unmarshal([]byte(text), &report); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		rows := 0
		for _, f := range report.Events[0].Functions {
			if strings.HasPrefix(f.Name, "app::handle") {
				rows++
				samples = f.Total
			}
		}
		if rows != 1 || samples < faults {
			t.Errorf("%v: %d rows of app::handle, the last of %d samples", options, rows, samples)
		}
		text = unspool(t, dir, append([]string{"report", path}, options...)...).stdout
		if _, tree, _ := strings.Cut(text, "call tree"); strings.Count(tree, "app::handle") != 1 {
			t.Errorf("%v: not one node of app::handle in\n%s", options, text)
		}
	}
	convert := func(file string) []byte {
		e := unspool(t, dir, "convert", "-q", path, "-o", file)
		content, err := os.ReadFile(filepath.Join(dir, file))
		if e.status != 0 || err != nil {
			t.Fatalf("convert -o %s: status %d, %v\n%s", file, e.status, err, e.stderr)
		}
		return content
	}
	for file, of := range map[string]string{
		"out.svg":             `<title>app::handle`,
		"out.speedscope.json": `"name":"app::handle"`,
	} {
		if n := strings.Count(string(convert(file)), of); n != 1 {
			t.Errorf("%s: %d times %s", file, n, of)
		}
	}
	if folded := convert("out.folded"); strings.Contains(string(folded), "handle.cold") ||
		strings.Contains(string(folded), "handle [") {
		t.Errorf("a part in\n%s", folded)
	}
	p, err := proto.ParseData(convert("out.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	var functions []string
	for _, f := range p.Function {
		if strings.HasPrefix(f.Name, "app::handle") {
			functions = append(functions, f.Name+" "+f.SystemName)
			if f.StartLine != 17 {
				t.Errorf("%s begins in line %d", f.Name, f.StartLine)
			}
		}
	}
	if !slices.Equal(functions, []string{"app::handle _ZN3app6handleEl"}) {
		t.Errorf("functions of pprof: %q", functions)
	}
}
