package symbols

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"unspool/capture/symbols/srcline"
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
