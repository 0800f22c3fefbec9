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

	"unspool/capture"
	"unspool/capture/check"
	"unspool/capture/compare"
)

// Every key that is written is explained.
func TestHelpOfJSON(t *testing.T) {
	e := unspool(t, "", "help", "json")
	if e.status != 0 || e.stderr != "" {
		t.Fatalf("%+v", e)
	}
	text := e.stdout
	statistics, text, _ := strings.Cut(text, "\nREPORT")
	reports, comparisons, ok := strings.Cut(text, "\nCOMPARISON OF TWO WAYS")
	comparisons, checks, found := strings.Cut(comparisons, "\nCALLERS CHECKED AGAINST")
	if !ok || !found {
		t.Fatal("a section is missing")
	}

	var stats capture.Stats
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
	t.Parallel()
	dir := t.TempDir()
	if e := unspool(t, dir, "man", dir); e.status != 0 || e.stdout+e.stderr != "" {
		t.Fatalf("%+v", e)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, page := range pages {
		pages[i] = filepath.Base(page)
	}
	want := []string{
		"unspool-check.1", "unspool-compare.1", "unspool-convert.1", "unspool-doctor.1", "unspool-json.1",
		"unspool-live-unwinder.1",
		"unspool-record.1", "unspool-report.1", "unspool-top.1", "unspool.1",
	}
	if !slices.Equal(pages, want) {
		t.Fatalf("pages %q", pages)
	}
	option := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`)
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
		if command == "" || command == "json" {
			continue
		}
		options := option.FindAllStringSubmatch(unspool(t, "", command, "--help").stdout, -1)
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
	for _, page := range pages {
		out, err := exec.Command("groff", "-K", "utf8", "-man", "-ww", "-z",
			filepath.Join(dir, page)).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", page, err, out)
		}
	}
}
