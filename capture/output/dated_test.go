package output

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// keepDated writes a file of its own in a place.
func keepDated(t *testing.T, p *Place, text string, most int) (name string) {
	t.Helper()
	f, err := p.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Discard()
	path, err := f.KeepDated(most)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil { // it has its name while it is written
		t.Fatal(err)
	}
	return filepath.Base(path)
}

// TestDatedFiles makes more files than there are names for the time, and keeps the last ones.
func TestDatedFiles(t *testing.T) {
	const made, kept = 50, 30
	dir := t.TempDir()
	p, err := Find(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	other, err := Find(filepath.Join(dir, "data")) // of another recording at the same time
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	text := make(map[string]string)
	var names []string
	for i := range made {
		said := string(rune('a' + i))
		name := keepDated(t, p, said, kept)
		if _, taken := text[name]; taken {
			t.Fatalf("%s twice", name)
		}
		if _, ok := ParseDated("data", name); !ok {
			t.Errorf("%s is no date", name)
		}
		text[name] = said
		if names = append(names, name); len(names) > kept {
			delete(text, names[len(names)-1-kept])
		}
		if i%10 == 0 {
			text[keepDated(t, other, "other", made)] = "other"
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != kept+made/10 {
		t.Errorf("%d files", len(entries))
	}
	for _, e := range entries {
		if got, _ := os.ReadFile(filepath.Join(dir, e.Name())); string(got) != text[e.Name()] {
			t.Errorf("%s has %q, want %q", e.Name(), got, text[e.Name()])
		}
	}
}

// TestDatedFilesReplaceNothing has all names of the next time taken.
func TestDatedFilesReplaceNothing(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	var taken []string
	for i := range 500 {
		name := "data" + dateSuffix(now.Add(time.Duration(i)*dateStep))
		taken = append(taken, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte("taken"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Find(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if name := keepDated(t, p, "new", 1); slices.Contains(taken, name) {
		t.Error(name)
	}
	for _, name := range taken {
		if got, _ := os.ReadFile(filepath.Join(dir, name)); string(got) != "taken" {
			t.Fatalf("%s has %q", name, got)
		}
	}
}

func TestParseDated(t *testing.T) {
	at := time.Date(2026, 11, 30, 14, 3, 10, 550_000_000, time.Local)
	if got, ok := ParseDated("perf.data", "perf.data.2026113014031055"); !ok || !got.Equal(at) {
		t.Errorf("%v, %t", got, ok)
	}
	if got := dateSuffix(at.Add(9 * time.Millisecond)); got != ".2026113014031055" { // as perf has it
		t.Error(got)
	}
	for _, name := range []string{"perf.data", "perf.data.old", "perf.data.1", "perf.data.202611301403105",
		"perf.data.20261130140310555", "perf.data.2026133014031055", "perf.data.202611301403105x",
		"perf.data-2026113014031055", "perf.dat.2026113014031055", "x.2026113014031055", ".2026113014031055"} {
		if at, ok := ParseDated("perf.data", name); ok {
			t.Errorf("%s is of %v", name, at)
		}
	}
}
