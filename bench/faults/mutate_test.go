package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string // kind: the line after it
	}{
		{"a = b < c", []string{"compare: a = b <= c"}},
		{"a = b != c", []string{"compare: a = b == c"}},
		{"a = len(b) >= 8", []string{"bound: a = len(b) >= 9", "compare: a = len(b) > 8"}},
		{"a = len(b) == 0xff", []string{"bound: a = len(b) == 0x100", "compare: a = len(b) != 0xff"}},
		{"a = b + c - d", []string{"sum: a = b + c + d", "sum: a = b - c - d"}},
		{"a += b", []string{"sum: a -= b"}},
		{"a = b && c", []string{"logic: a = b || c"}},
		{"if a < b {} // why", []string{"negate: if !(a < b) {} // why", "compare: if a <= b {} // why"}},
		{"if a == b {}", []string{"compare: if a != b {}"}},
		{"if !a {}", []string{"negate: if a {}"}},
		{"if a.b() {}", []string{"negate: if !a.b() {}"}},
		{"if err != nil {}", nil},
		{"a = b[1]", []string{"bound: a = b[2]"}},
		{"a = b[1:c]", []string{"bound: a = b[2:c]"}},
		{"f(a)", []string{"drop: {}"}},
		{"f(a, b, c.d)", []string{"drop: {}", "swap: f(b, a, c.d)", "swap: f(a, c.d, b)"}},
		{"f(a, a, g(b), c)", []string{"drop: {}"}},
		{"a = min(b, c)", nil},
		{"panic(a)", nil},
		{"return a", []string{"return: return false"}},
		{"return false", []string{"return: return true"}},
		{"defer func() (int, bool) { return a, true }()",
			[]string{"return: defer func() (int, bool) { return a, false }()"}},
		{"defer func() { return }()", nil},
	} {
		source := "package p\n\nfunc f() bool {\n\t" + c.line + "\n}\n"
		faults, err := candidates("p.go", []byte(source))
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		var got []string
		for _, f := range faults {
			got = append(got, f.kind+": "+f.after)
			if f.before != c.line || f.line != 4 || f.nth != 1 || f.function != "f" {
				t.Errorf("%s: %+v", c.line, f)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}

// A fault is planted in the same line, wherever that has moved.
func TestLocate(t *testing.T) {
	f := &fault{file: "p/a.go", function: "T.f", line: 9, nth: 2, kind: "compare",
		before: "if a < b {", after: "if a <= b {"}
	const method = "func (t *T[V]) f(a, b int) {\n\tif a < b {\n\t}\n\tif a < b {\n\t}\n}\n"
	const want = "func (t *T[V]) f(a, b int) {\n\tif a < b {\n\t}\n\tif a <= b {\n\t}\n}\n"
	const other = "func f(a, b int) {\n\tif a < b {\n\t}\n\tif a < b {\n\t}\n}\n"
	for _, c := range []struct {
		name, file string
		files      map[string]string
	}{
		{"other lines", "p/a.go", map[string]string{"p/a.go": other + "\n\n" + method}},
		{"other file", "p/b.go", map[string]string{"p/a.go": other, "p/b.go": method}},
		{"other folder", "q/b.go", map[string]string{"p/a.go": other, "q/b.go": method}},
		{"folder before others", "p/b.go", map[string]string{"p/b.go": method, "q/b.go": method}},
		{"ambiguous", "", map[string]string{"q/a.go": method, "q/b.go": method}},
		{"gone", "", map[string]string{"p/a.go": other, "p/a_test.go": method, "bench/p/a.go": method}},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("package p\n\n"+text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		at, err := f.locate(dir)
		if at.file != c.file || (err == nil) != (c.file != "") {
			t.Errorf("%s: found in %q, want %q; %v", c.name, at.file, c.file, err)
		}
		if err == nil && !strings.HasSuffix(string(f.apply(at)), want) {
			t.Errorf("%s: became\n%s", c.name, f.apply(at))
		}
	}
}

func TestInstrument(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"a = b", "_reached.Hit(7); a = b"},
		{"if a {\n\t} else if b {", "_reached.Hit(7); if a {\n\t} else if b {"},
		{"switch a {\n\tcase b:", "_reached.Hit(7); switch a {\n\tcase b:"},
		{"switch a {\n\tcase b:\n\t\tc()", "switch a {\n\tcase b:\n\t\t_reached.Hit(7); c()"},
		{"g(func() {\n\t\tc()", "g(func() {\n\t\t_reached.Hit(7); c()"},
		{"g(a,\n\t\tb + c", "_reached.Hit(7); g(a,\n\t\tb + c"},
	} {
		closing := ""
		switch open := strings.Count(c.line, "{") - strings.Count(c.line, "}"); {
		case open > 0 && strings.Count(c.line, "(") > strings.Count(c.line, ")"):
			closing = "})"
		case open > 0:
			closing = "}"
		case strings.Count(c.line, "(") > strings.Count(c.line, ")"):
			closing = ")"
		}
		source := "package p // why\n\nfunc f() {\n\t" + c.line + closing + "\n}\n"
		lines := strings.Split(c.line, "\n")
		begin := strings.LastIndex(source, strings.TrimSpace(lines[len(lines)-1]))
		got, err := instrument([]byte(source), []site{{begin: begin, number: 7}})
		want := "package p; import _reached \"unspool/bench/faults/reached\" // why\n\nfunc f() {\n\t" +
			c.want + closing + "\n}\n"
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.line, err, got, want)
		}
	}
}
