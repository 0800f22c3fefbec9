package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"unspool/capture/counts"
	"unspool/capture/format/export"
	"unspool/capture/verdict/check"
	"unspool/capture/verdict/compare"
)

// Every key that is written is explained.
func TestHelpOfJSON(t *testing.T) {
	e := unspoolHere(t, "", "help", "json")
	if e.status != 0 || e.stderr != "" {
		t.Fatalf("%+v", e)
	}
	text := e.stdout
	statistics, text, _ := strings.Cut(text, "\nREPORT")
	reports, comparisons, ok := strings.Cut(text, "\nCOMPARISON OF TWO WAYS")
	comparisons, checks, found := strings.Cut(comparisons, "\nCALLERS CHECKED AGAINST")
	comparisons, built, times := strings.Cut(comparisons, "\nTIMES OF TWO BUILDS")
	if !ok || !found || !times {
		t.Fatal("a section is missing")
	}

	var stats counts.Stats
	var written bytes.Buffer
	var object any
	if err := stats.WriteJSON(&written); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(written.Bytes(), &object); err != nil {
		t.Fatal(err)
	}
	explains(t, "STATISTICS", statistics, keysOf(object))

	reports, differences, ok := strings.Cut(reports, "\nDIFFERENCE")
	if !ok {
		t.Fatal("a section is missing")
	}
	explains(t, "REPORT", reports, keysOfType(reflect.TypeFor[reported]()))
	// What is said of each recording stands above.
	ofHeader := keysOfType(reflect.TypeFor[reportedHeader]())
	explains(t, "DIFFERENCE", differences,
		slices.DeleteFunc(keysOfType(reflect.TypeFor[differed]()), func(key string) bool {
			return slices.Contains(ofHeader, key)
		}))

	keys := keysOfType(reflect.TypeFor[compare.Result]())
	for c := range compare.Class(compare.NumClasses) {
		keys = append(keys, c.Key())
	}
	explains(t, "COMPARISON", comparisons, keys)

	keys = keysOfType(reflect.TypeFor[builtTwice]())
	explains(t, "BUILDS", built, slices.DeleteFunc(keys, func(key string) bool {
		return key != "difference" && slices.Contains(keysOfType(reflect.TypeFor[differed]()), key) &&
			!slices.Contains([]string{"a", "b", "confidence", "low", "high", "excludes_zero", "runs"}, key)
	}))

	written.Reset()
	edges := check.Result{Wrong: []check.Wrong{{}}}
	for s := range edges.BySource {
		edges.BySource[s][check.Right] = 1
	}
	if err := edges.WriteJSON(&written); err != nil {
		t.Fatal(err)
	}
	object = nil
	if err := json.Unmarshal(written.Bytes(), &object); err != nil {
		t.Fatal(err)
	}
	sources := append(check.SourceNames(), "sample") // which are those of the statistics
	keys = slices.DeleteFunc(keysOf(object), func(key string) bool { return slices.Contains(sources, key) })
	explains(t, "CHECK", checks, append(keys, keysOfType(reflect.TypeFor[check.Wrong]())...))
}

// README has a line for each format.
func TestFormatsOfREADME(t *testing.T) {
	text := mustRead(t, "../../README.md")
	for _, f := range export.Formats() {
		var endings []string
		for _, e := range f.Endings {
			endings = append(endings, "`"+e+"`")
		}
		line := regexp.MustCompile("(?m)^\\| " + regexp.QuoteMeta(strings.Join(endings, ", ")) + "[^|]*\\| `" + f.Name +
			"` \\| .+ \\|$")
		if !line.Match(text) {
			t.Errorf("no line like %s", line)
		}
	}
}

// explains looks for each key as a word. That of the version stands above all sections.
func explains(t *testing.T, section, text string, keys []string) {
	t.Helper()
	if len(keys) < 20 {
		t.Errorf("%s: %d keys only", section, len(keys))
	}
	for _, key := range keys {
		if key != "version" && !regexp.MustCompile(`\b`+key+`\b`).MatchString(text) {
			t.Errorf("%s: %s is not explained", section, key)
		}
	}
}

// keysOf are the keys of an object and of all objects in it.
func keysOf(value any) (keys []string) {
	object, _ := value.(map[string]any)
	for key, v := range object {
		keys = append(append(keys, key), keysOf(v)...)
	}
	return keys
}

// keysOfType are the keys that a type is written with, or read from.
func keysOfType(t reflect.Type) (keys []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return keysOfType(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if !f.IsExported() {
				continue
			}
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if key == "" {
				key = strings.ToLower(f.Name)
			}
			keys = append(append(keys, key), keysOfType(f.Type)...)
		}
	}
	return keys
}

// Each command has a page that says what its help says, and that troff has nothing against.
func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	if e := unspoolHere(t, dir, "man", "."); e.status != 0 || e.stdout+e.stderr != "" {
		t.Fatalf("%+v", e)
	}
	option := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`)
	pages := entriesOf(t, dir)
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Fatal(err)
		}
		roff := strings.ReplaceAll(string(text), `\-`, "-")
		if strings.Contains(roff, noValue) || strings.Contains(roff, "completion") {
			t.Errorf("%s:\n%s", page, roff)
		}
		_, command, _ := strings.Cut(strings.TrimSuffix(page, ".1"), "-")
		isTopic := slices.ContainsFunc(topics(), func(c *cobra.Command) bool { return c.Name() == command })
		if command == "" || isTopic {
			continue
		}
		options := option.FindAllStringSubmatch(unspoolHere(t, dir, command, "--help").stdout, -1)
		if len(options) == 0 {
			t.Errorf("%s has no options", command)
		}
		for _, o := range options {
			if !strings.Contains(roff, "\\fB--"+o[1]+"\\fP") {
				t.Errorf("%s has no --%s", page, o[1])
			}
		}
	}
	need(t, "groff")
	cmd := exec.Command("groff", append([]string{"-K", "utf8", "-man", "-ww", "-z"}, pages...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestHelpFitsTheTerminal looks at the width of help, which is not limited elsewhere.
func TestHelpFitsTheTerminal(t *testing.T) {
	t.Parallel()
	terminal, written := openTerminal(t, 90)
	r := start(t, t.TempDir(), func(cmd *exec.Cmd) { cmd.Stdout = terminal }, "record", "--help")
	r.finish(t, time.Minute)
	terminal.Close()
	out := written()
	if !strings.Contains(out, "--no-sandbox") {
		t.Fatalf("%q", out)
	}
	_, options, _ := strings.Cut(out, "Flags:")
	for line := range strings.Lines(options) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\r\n")); n > 90 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}
