package srcline

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "x.c")
	if err := os.WriteFile(source, []byte("int x(void) { return 1; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	build := func(flags ...string) func() []byte {
		return func() []byte {
			run(t, dir, append(append([]string{"gcc", "-nostdlib", "-o", "x"}, flags...), "x.c")...)
			b, err := os.ReadFile(filepath.Join(dir, "x"))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
	for _, test := range []struct {
		name string
		file func() []byte
		want error
	}{
		{"no ELF file", func() []byte { return bytes.Repeat([]byte("ELF"), 100) }, ErrBadELF},
		{"an empty file", func() []byte { return nil }, ErrBadELF},
		{"no debugging information", build("-shared"), ErrNoDWARF},
		{"a relocatable file", build("-g", "-c"), ErrUnsupported},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := test.file()
			_, err := Open(File{ReaderAt: bytes.NewReader(b), Size: int64(len(b)), Name: "the file"}, Options{})
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), "the file: ") {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}

// Without the files that it refers to, debugging information still has lines, and the error says what is
// missing.
func TestMissingFiles(t *testing.T) {
	gone := func() (File, error) { return File{}, fs.ErrNotExist }
	missing := Options{
		Alt: func(string, []byte) (File, error) { return gone() },
		DWO: func(string, string, uint64) (File, error) { return gone() },
	}
	for _, test := range []struct {
		name    string
		flags   []string
		after   []string
		options Options
		names   string // of the file that is missing, in the error
		cause   error
	}{
		{"split unit", []string{"-g", "-gsplit-dwarf"}, []string{"true"}, missing, ".dwo", fs.ErrNotExist},
		{"split unit, not asked for", []string{"-g", "-gsplit-dwarf"}, []string{"true"}, Options{}, ".dwo",
			errNoOpener},
		{"alternate file", []string{"-g"}, []string{"dwz", "-m", "alt", "program", "other"}, missing,
			"alternate file alt", fs.ErrNotExist},
		{"alternate file, not asked for", []string{"-g"}, []string{"dwz", "-m", "alt", "program", "other"},
			Options{}, "alternate file alt", errNoOpener},
	} {
		t.Run(test.name, func(t *testing.T) {
			need(t, test.after[0])
			dir := t.TempDir()
			single("nested.c", append([]string{"gcc", "-O2"}, test.flags...)...).in(t, dir)
			run(t, dir, "cp", "program", "other")
			run(t, dir, test.after...)
			name := filepath.Join(dir, "program")
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			d, err := Open(File{ReaderAt: bytes.NewReader(b), Size: int64(len(b)), Name: "program"}, test.options)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			lines := 0
			err = d.Frames(textAddrs(t, name), func(_ int, frames []Frame) {
				if strings.HasSuffix(frames[0].File, "nested.c") && frames[0].Line > 0 {
					lines++
				}
			})
			if lines < 10 {
				t.Errorf("%d addresses have a line", lines)
			}
			if !errors.Is(err, test.cause) || !strings.Contains(err.Error(), test.names) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A .dwo file of a later build does not belong to the image.
func TestSplitUnitOfAnotherBuild(t *testing.T) {
	dir := t.TempDir()
	single("nested.c", "gcc", "-O2", "-gdwarf-5", "-gsplit-dwarf").in(t, dir)
	dwo, err := filepath.Glob(filepath.Join(dir, "*.dwo"))
	if err != nil || len(dwo) != 1 {
		t.Fatal(dwo, err)
	}
	b, err := os.ReadFile(dwo[0])
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	single("nested.c", "gcc", "-O3", "-gdwarf-5", "-gsplit-dwarf", "-DOTHER").in(t, other)
	name := filepath.Join(other, "program")
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, _ := f.Stat()
	d, err := Open(File{ReaderAt: f, Size: info.Size(), Name: "program"},
		Options{DWO: func(string, string, uint64) (File, error) {
			return File{ReaderAt: bytes.NewReader(b), Size: int64(len(b)), Name: "stale.dwo"}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	err = d.Frames(textAddrs(t, name), func(i int, frames []Frame) {
		if frames[0].Func != "" && strings.HasSuffix(frames[0].File, "nested.c") {
			t.Errorf("%+v", frames)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "stale.dwo") {
		t.Errorf("error %v", err)
	}
}

// TestOddDIEs has functions for all addresses, so what is within types is not read: it would be an error.
func TestOddDIEs(t *testing.T) {
	dir := t.TempDir()
	single("odd.s", "gcc", "-nostdlib", "-static", "-m64").in(t, dir)
	name := filepath.Join(dir, "program")
	d := open(t, name)
	var text uint64
	syms, _ := symbolsOf(t, name)
	for _, s := range syms {
		if s.Name == "_start" {
			text = s.Value
		}
	}
	got := frames(t, d, []uint64{text, text + 4, text + 8, text + 12, text + 16})
	for i, want := range []int{1, 1, 1, maxInlined + 1, 0} {
		if len(got[i]) != want {
			t.Errorf("address %d: %d frames, want %d", i, len(got[i]), want)
		}
	}
	for _, f := range got[3] {
		if f.Func != "d" {
			t.Errorf("%+v", f)
			break
		}
	}
}

func TestUnsortedAddresses(t *testing.T) {
	dir := t.TempDir()
	single("odd.s", "gcc", "-nostdlib", "-static", "-m64").in(t, dir)
	err := open(t, filepath.Join(dir, "program")).Frames([]uint64{2, 1}, func(int, []Frame) {
		t.Error("yielded")
	})
	if !errors.Is(err, errUnsorted) {
		t.Error(err)
	}
}
