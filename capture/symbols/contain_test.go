package symbols

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unspool/capture/symbols/srcline"
	"unspool/testdata/programs"
	"unspool/vmas"
	"unspool/vmas/process"
)

// faulty opens files of which one read is a fault of this program.
type faulty struct {
	process.Here
	left int // reads before it
}

func (f *faulty) OpenRegular(path string) (*process.OpenFile, error) {
	return f.fault(f.Here.OpenRegular(path))
}

func (f *faulty) OpenWithin(root, path string) (*process.OpenFile, error) {
	return f.fault(f.Here.OpenWithin(root, path))
}

func (f *faulty) fault(file *process.OpenFile, err error) (*process.OpenFile, error) {
	if err == nil {
		file.By = func(file *os.File, p []byte, off int64) (int, error) {
			if f.left--; f.left < 0 {
				panic("planted")
			}
			return file.ReadAt(p, off)
		}
	}
	return file, err
}

// TestFaultsCostTheFile plants a panic in place of each read of a file: what is missing then is said, and
// another file keeps its names.
func TestFaultsCostTheFile(t *testing.T) {
	path := compile(t, "p.c", "int f(int x) { return x; }\nint main(void) { return f(1); }\n", "-g", "-O1")
	other := compile(t, "q.c", "int main(void) { return 0; }\n", "-O1")
	ask := map[string]func(im *Image){
		"names":           func(im *Image) { im.Lookup(0x1000) },
		"unwind table":    func(im *Image) { im.CFI() },
		"names of calls":  func(im *Image) { im.Exports() },
		"lines":           func(im *Image) { im.Lines([]uint64{0x1000, 0x1130}, func(int, []srcline.Frame) {}) },
		"the file itself": func(im *Image) { _, _ = im.Open() },
	}
	for what, question := range ask {
		t.Run(what, func(t *testing.T) {
			const most = 1000
			planted := 0
			for ; planted < most; planted++ {
				opener := &faulty{left: planted}
				s := New(Options{Opener: opener, Cache: t.TempDir()})
				question(s.Image(path, nil, vmas.FileID{}))
				if opener.left >= 0 {
					break // there is no such read
				}
				want := fmt.Sprintf("%s: ", path)
				if p := s.Problems(); len(p) == 0 || !strings.HasPrefix(p[0], want) || !strings.HasSuffix(p[0], "planted") {
					t.Errorf("at read %d: problems %q", planted, p)
				}
				opener.left = most
				if s.Image(other, nil, vmas.FileID{}).Table() == nil {
					t.Errorf("at read %d: another file has no names, problems %q", planted, s.Problems())
				}
			}
			if planted == 0 || planted == most {
				t.Errorf("panics were planted in %d reads", planted)
			}
		})
	}
}

// TestFaultsInNames: a mangled name that leads to a fault stays as it is, and others are demangled.
func TestFaultsInNames(t *testing.T) {
	s := New(Options{})
	s.demangle = func(name string) string {
		if name == "_Z3badv" {
			panic("planted")
		}
		return Demangle(name)
	}
	for mangled, want := range map[string]string{"_Z3badv": "_Z3badv", "_Z4goodv": "good"} {
		if got := s.Name(mangled); got != want {
			t.Errorf("%s is called %s", mangled, got)
		}
	}
	s.Name("_Z3badv")
	if p := s.Problems(); len(p) != 1 || !strings.HasSuffix(p[0], "planted") {
		t.Errorf("problems %q", p)
	}
}

// TestLinesThatNobodyWaitsFor: once lines are not wanted any more, no other unit is read, which is no problem.
func TestLinesThatNobodyWaitsFor(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.c": "int a(void) { return 1; }\n", "b.c": "int b(void) { return 2; }\n",
		"main.c": "int a(void), b(void);\nint main(void) { return a() + b(); }\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	programs.Run(t, dir, "gcc", "-g", "-O0", "-o", "p", "a.c", "b.c", "main.c")
	s := New(Options{})
	im := s.Image(filepath.Join(dir, "p"), nil, vmas.FileID{})
	var addrs []uint64
	for i := range im.Table().Len() {
		if f := im.Table().At(i); f.Name == "a" || f.Name == "b" || f.Name == "main" {
			addrs = append(addrs, f.Addr)
		}
	}
	yielded := func(stop func() bool) (n int) {
		im.LinesUntil(func() bool { return stop != nil && n > 0 && stop() }, addrs, func(int, []srcline.Frame) { n++ })
		return n
	}
	if n := yielded(nil); n != 3 {
		t.Fatalf("%d of 3 functions have lines", n)
	}
	if n := yielded(func() bool { return true }); n != 1 || len(s.Problems()) > 0 {
		t.Errorf("%d functions have lines after the end; problems %q", n, s.Problems())
	}
}
