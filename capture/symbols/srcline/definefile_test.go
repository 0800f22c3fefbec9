package srcline

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"testing"
)

// definesFile is a program whose line program names its file, which the header does not.
func definesFile(t testing.TB) []byte {
	t.Helper()
	source, err := filepath.Abs("testdata/definefile.s")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run(t, dir, "gcc", "-nostdlib", "-static", "-Wl,--build-id=none", "-o", "t", source)
	b, err := os.ReadFile(filepath.Join(dir, "t"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFileOfALineProgram: strings of the tables may lie in the line program.
func TestFileOfALineProgram(t *testing.T) {
	b := definesFile(t)
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(File{ReaderAt: bytes.NewReader(b), Size: int64(len(b)), Name: "t"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	n := 0
	err = d.Frames([]uint64{f.Entry}, func(_ int, frames []Frame) {
		n++
		if got := frames[len(frames)-1]; got.File != "/src/generated.js" || got.Line != 42 {
			t.Errorf("%+v", got)
		}
	})
	if n != 1 || err != nil {
		t.Errorf("%d addresses: %v", n, err)
	}
}
