package perfdata

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unspool/testdata/lane"
)

// pack compresses a perf map.
func pack(t testing.TB, text string) []byte {
	t.Helper()
	packed, err := PackPerfMap(strings.NewReader(text), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// withMaps is a recording that keeps perf maps.
func withMaps(t testing.TB, maps []PerfMap) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "perf.data")
	w, err := Create(Options{Path: path, Events: twoEvents()})
	if err != nil {
		t.Fatal(err)
	}
	for _, round := range recording(t, twoEvents(), 1, 5) {
		for _, rec := range round {
			if err := w.Write(rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.KeepPerfMaps(maps)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPerfMapsInARecording(t *testing.T) {
	want := []PerfMap{
		{Time: 7, PID: 100, Number: 1, Packed: pack(t, "10 8 one\nthis is no line\n0x20 8 two words\n")},
		{Time: 9, PID: 200, Number: 200},
	}
	path := withMaps(t, want)
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	maps := r.PerfMaps()
	if len(maps) != 2 {
		t.Fatalf("%+v", maps)
	}
	for i, text := range []string{"10 8 one\n20 8 two words\n", ""} {
		m := maps[i]
		if m.Time != want[i].Time || m.PID != want[i].PID || m.Number != want[i].Number {
			t.Errorf("%+v", m)
		}
		in, err := m.Open()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(in)
		if in.Close(); string(got) != text || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if f := r.Features(); len(f) == 0 || r.FeatureDamage() != nil {
		t.Errorf("%v, %v", f, r.FeatureDamage())
	}
}

// TestPerfMapsThatAreDamaged reads recordings that are cut, and others whose sizes are wrong.
func TestPerfMapsThatAreDamaged(t *testing.T) {
	path := withMaps(t, []PerfMap{{PID: 1, Packed: pack(t, "10 8 one\n")}})
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read := func(b []byte) int {
		r, err := newReader("a recording", bytes.NewReader(b), bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return 0
		}
		maps := r.PerfMaps()
		for i := range maps {
			if in, err := maps[i].Open(); err == nil {
				_, _ = io.Copy(io.Discard, in)
				in.Close()
			}
		}
		return len(maps)
	}
	if n := read(whole); n != 1 {
		t.Fatalf("%d maps", n)
	}
	for n := headerSize; n < len(whole); n++ {
		if maps := read(whole[:n]); maps != 0 {
			t.Errorf("%d maps in %d bytes of %d", maps, n, len(whole))
		}
	}
	for at := len(whole) - perfMapsTail - 64; at < len(whole); at++ {
		b := bytes.Clone(whole)
		for _, x := range []byte{1, 0x80, 0xff} {
			b[at] ^= x
			read(b)
		}
	}
}

func TestPerfMapsThatAreTooLong(t *testing.T) {
	line := strings.Repeat("x", 1000)
	text := strings.NewReader(strings.Repeat("10 8 "+line+"\n", maxPerfMap/1000))
	packed, err := PackPerfMap(text, 1<<30)
	if !errors.Is(err, ErrLongPerfMap) || len(packed) == 0 {
		t.Errorf("%d bytes, %v", len(packed), err)
	}
}

// TestPerfReadsRecordingsWithPerfMaps has perf read one, and write it again.
func TestPerfReadsRecordingsWithPerfMaps(t *testing.T) {
	lane.Tools(t, "perf")
	path := withMaps(t, []PerfMap{{PID: 1, Packed: pack(t, "10 8 one\n")}})
	for _, args := range [][]string{{"report", "--stdio", "--header-only"}, {"script"},
		{"inject", "-b", "-o", filepath.Join(t.TempDir(), "out")}} {
		cmd := lane.UserPerf(append(args, "-i", path)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}
