package srcline

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

// tiny compiles a few lines, so that the file is small enough to fuzz.
func tiny(t testing.TB, name string, flags ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	source := "static inline int f(int x) { return x * 3; }\n" +
		"static inline int g(int x) { if (x > 3) { int y = f(x); return y + 1; } return f(x + 1); }\n" +
		"int h(int x) { return g(x) + f(x); }\nvoid _start(void) { h(4); for (;;) ; }\n"
	if err := os.WriteFile(filepath.Join(dir, "t.c"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	command := append([]string{"gcc", "-O2", "-ffreestanding", "-nostdlib", "-static", "-Wl,--build-id=none",
		"-o", "t"}, flags...)
	run(t, dir, append(command, "t.c")...)
	files, err := filepath.Glob(filepath.Join(dir, name))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %q %v", name, files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzFrames calls Frames for a file, and with a second one as any other file that the first refers to.
func FuzzFrames(f *testing.F) {
	for _, flags := range [][]string{{"-gdwarf-4"}, {"-gdwarf-5"}, {"-gdwarf-5", "-gz"},
		{"-gdwarf-2", "-gstrict-dwarf"}, {"-g", "-gdwarf64"}, {"-g", "-m32"}} {
		f.Add(tiny(f, "t", flags...), []byte{})
	}
	for _, version := range []string{"-gdwarf-4", "-gdwarf-5"} {
		f.Add(tiny(f, "t", version, "-gsplit-dwarf"), tiny(f, "*.dwo", version, "-gsplit-dwarf"))
	}
	f.Add(definesFile(f), []byte{})
	for _, file := range inputs.Files(20, 40<<10, "../../../dist/inputs/*.elf") {
		f.Add(file, file)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, main, other []byte) {
		defer costs.For(len(main) + len(other)).Check(t)()
		file := func(b []byte) File { return File{ReaderAt: bytes.NewReader(b), Size: int64(len(b)), Name: "fuzz"} }
		more := func() (File, error) { return file(other), nil }
		d, err := Open(file(main), Options{
			Alt: func(string, []byte) (File, error) { return more() },
			DWO: func(string, string, uint64) (File, error) { return more() },
			DWP: more,
		})
		if err != nil {
			return
		}
		defer d.Close()
		addrs := []uint64{0, 1, 0x1000, 0x401000, 0x401001, 0x401003, 0x401004, 0x401008, 0x401010, 0x401011,
			0x401018, 0x401020, 1<<63 + 1, 1<<64 - 1}
		seen := make(map[int]bool)
		_ = d.Frames(addrs, func(i int, frames []Frame) {
			if seen[i] {
				t.Errorf("%#x yielded twice", addrs[i])
			}
			seen[i] = true
			if len(frames) == 0 || len(frames) > maxInlined+1 {
				t.Errorf("%#x: %d frames", addrs[i], len(frames))
			}
		})
	}, inputs.InELF(".debug", ".gnu_debug")))
}

// A file that is cut short or changed anywhere yields frames or is refused, and errors say where it is bad.
func TestDamagedFiles(t *testing.T) {
	for _, flags := range [][]string{{"-gdwarf-4"}, {"-gdwarf-5"}} {
		whole := tiny(t, "t", flags...)
		f, err := elf.NewFile(bytes.NewReader(whole))
		if err != nil {
			t.Fatal(err)
		}
		text := f.Section(".text")
		addrs := []uint64{text.Addr, text.Addr + text.Size - 1}
		frames := func(b []byte) (n int, err error) {
			d, err := Open(File{ReaderAt: bytes.NewReader(b), Size: int64(len(b)), Name: "t"}, Options{})
			if err != nil {
				return 0, err
			}
			err = d.Frames(addrs, func(int, []Frame) { n++ })
			return n, err
		}
		if n, err := frames(whole); n != len(addrs) || err != nil {
			t.Fatalf("the file itself: %d addresses, %v", n, err)
		}
		check := func(what string, at uint64, err error) {
			var place *Error
			if err != nil && !errors.As(err, &place) {
				t.Errorf("%s at %#x: %v has no place", what, at, err)
			}
		}
		for n := range whole {
			if n%7 == 0 {
				_, err := frames(whole[:n])
				check("cut", uint64(n), err)
			}
		}
		for _, s := range f.Sections {
			if s.Type == elf.SHT_NOBITS || len(s.Name) < 6 || s.Name[:6] != ".debug" {
				continue
			}
			for at := s.Offset; at < s.Offset+s.Size; at++ {
				for _, v := range []byte{0, 0x7f, 0xff} {
					b := bytes.Clone(whole)
					b[at] = v
					_, err := frames(b)
					check("changed", at, err)
				}
			}
		}
	}
}
