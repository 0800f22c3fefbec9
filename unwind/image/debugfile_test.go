package image

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unspool/dwarfcfi"
	"unspool/testdata/programs"
	"unspool/unwind/image/debugfile"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// splitProgram is compiled so that it has .debug_frame only, and stripped of
// it. It returns the whole file, the stripped one and its debug file.
func splitProgram(t *testing.T, id, compress string) (whole, stripped, debug string) {
	t.Helper()
	const program = `
__attribute__((noinline)) int work(volatile int *p) { volatile char b[100]; b[*p] = 1; return b[0] + *p; }
__attribute__((noinline))
int more(int n) { volatile int x[8]; x[n & 7] = n; return n ? more(n - 1) + work(&x[1]) : 0; }
int main(int argc, char **argv) { (void)argv; return more(argc) + more(2 * argc); }
`
	kept := programs.Keep(t, fmt.Sprintf("split program %q %s %s", program, id, compress), func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "prog.c"), []byte(program), 0o666); err != nil {
			t.Fatal(err)
		}
		run(t, dir, "gcc", "-O2", "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-Wl,--build-id="+id,
			"-o", "whole", "prog.c")
		keep := []string{"--only-keep-debug", "whole", "prog.debug"}
		if compress != "" {
			keep = append(keep, "--compress-debug-sections="+compress)
		}
		run(t, dir, "objcopy", keep...)
		run(t, dir, "objcopy", "--strip-debug", "--add-gnu-debuglink=prog.debug", "whole", "prog")
	})
	dir := t.TempDir() // tests change the files
	if err := os.CopyFS(dir, os.DirFS(kept)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "whole"), filepath.Join(dir, "prog"), filepath.Join(dir, "prog.debug")
}

// run runs a tool in a folder.
func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("skipped for want of %s", name)
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(strings.Join(args, " "), "--compress-debug-sections") {
			t.Skipf("skipped for want of an objcopy that can do this: %s", out)
		}
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

// put copies a file to a place in the root of process 1 below proc.
func put(t *testing.T, proc, place, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	place = filepath.Join(proc, "1/root", place)
	if err = errors.Join(err, os.MkdirAll(filepath.Dir(place), 0o755),
		os.WriteFile(place, content, 0o755)); err != nil {
		t.Fatal(err)
	}
}

// mapProgram maps the stripped file as process 1 sees it.
func mapProgram(t *testing.T) *vmas.Mapping {
	t.Helper()
	table := vmas.NewTable("")
	table.Comm(1, 1, []byte("test"), true)
	const program = "/opt/bin/prog"
	return table.Mmap(1, vmas.Map{Addr: 0x400000, Len: 1 << 20, Prot: vmas.ProtExec, Name: []byte(program)})
}

// mapWhole maps the stripped file as process 1 sees it, and gives its image.
func mapWhole(t *testing.T, proc string) (*Store, *Image, *vmas.Mapping) {
	t.Helper()
	m := mapProgram(t)
	images := NewStore(proc)
	return images, images.Lookup(1, m), m
}

func TestDebugFrameInSeparateFile(t *testing.T) {
	const id, byID = "0xabcdef0123456789", "/usr/lib/debug/.build-id/ab/cdef0123456789.debug"
	for _, c := range []struct{ name, id, compress, place string }{
		{"beside the image", "none", "", "/opt/bin/prog.debug"},
		{"in .debug", "none", "", "/opt/bin/.debug/prog.debug"},
		{"below usr lib debug", "none", "", "/usr/lib/debug/opt/bin/prog.debug"},
		{"by build ID", id, "", byID},
		{"by link, with build ID", id, "", "/opt/bin/prog.debug"},
		{"zlib", "none", "zlib", "/opt/bin/prog.debug"},
		{"zstd", id, "zstd", byID},
		{"zdebug", id, "zlib-gnu", byID},
	} {
		t.Run(c.name, func(t *testing.T) {
			whole, stripped, debug := splitProgram(t, c.id, c.compress)
			proc := t.TempDir()
			put(t, proc, "/opt/bin/prog", stripped)
			put(t, proc, c.place, debug)
			images, im, m := mapWhole(t, proc)
			images.hooks.Failed = func(path string, err error) { t.Errorf("%s: %v", path, err) }

			// What .eh_frame covers needs no debug file.
			im.isRead()
			var row, want dwarfcfi.Row
			pc := func(addr uint64) uint64 {
				off, ok := im.offset(addr)
				if !ok {
					t.Fatalf("%#x is in no segment", addr)
				}
				return m.Start + off
			}
			if im.Row(m, pc(im.entry), &row) != nil || im.debug.sought {
				t.Errorf("_start: row of %#x, debug file sought: %v", row.Start, im.debug.sought)
			}

			rows := 0
			table := openDebugFrame(t, whole)
			for fde := range table.FDEs() {
				for r := range fde.Rows() {
					if err := table.Row(r.Start, &want); err != nil {
						t.Fatal(err)
					}
					if err := im.Row(m, pc(r.Start), &row); err != nil || row.Rules != want.Rules {
						t.Errorf("%#x: %v, row %+v, want %+v", r.Start, err, row.Rules, want.Rules)
					}
					rows++
				}
			}
			if rows < 6 || !im.debug.sought {
				t.Errorf("%d rows", rows)
			}
		})
	}
}

// openDebugFrame reads the .debug_frame of a file that has it.
func openDebugFrame(t *testing.T, path string) *dwarfcfi.Table {
	t.Helper()
	s := sectionsOf(t, path)
	if s.DebugFrame.Data == nil {
		t.Fatal("no .debug_frame")
	}
	s.EhFrame, s.EhFrameHdr = dwarfcfi.Section{}, dwarfcfi.Section{}
	table, err := dwarfcfi.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// openCFI reads the CFI of a file.
func openCFI(t *testing.T, path string) *dwarfcfi.Table {
	t.Helper()
	table, err := dwarfcfi.New(sectionsOf(t, path))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func sectionsOf(t *testing.T, path string) dwarfcfi.Sections {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	s, err := dwarfcfi.FindSections(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDebugFileOfAnotherBuildIsNotUsed(t *testing.T) {
	const id, byID = "0xabcdef0123456789", "/usr/lib/debug/.build-id/ab/cdef0123456789.debug"
	for _, c := range []struct{ name, id, other, place, says string }{
		{"wrong CRC", "none", "none", "/opt/bin/prog.debug", "CRC"},
		{"wrong build ID", id, "0xabcdef0123456780", byID, "build ID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			whole, stripped, _ := splitProgram(t, c.id, "")
			_, _, other := splitProgram(t, c.other, "")
			f, err := os.OpenFile(other, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			f.Write([]byte{0})
			f.Close()
			proc := t.TempDir()
			put(t, proc, "/opt/bin/prog", stripped)
			put(t, proc, c.place, other)
			images, im, m := mapWhole(t, proc)
			var failed []error
			images.hooks.Failed = func(_ string, err error) { failed = append(failed, err) }
			im.isRead()
			for fde := range openDebugFrame(t, whole).FDEs() {
				off, _ := im.offset(fde.Start)
				var row dwarfcfi.Row
				if err := im.Row(m, m.Start+off, &row); err != dwarfcfi.ErrNoFDE {
					t.Errorf("%#x: %v, want %v", fde.Start, err, dwarfcfi.ErrNoFDE)
				}
				if got := im.Rule(m, m.Start+off); got.Kind() < rule.GuessSP || got.Kind() > rule.Uncovered {
					t.Errorf("%#x: rule %v, want none from CFI", fde.Start, got)
				}
			}
			if len(failed) != 1 || !errors.Is(failed[0], debugfile.ErrOther) ||
				!strings.Contains(failed[0].Error(), c.says) {
				t.Errorf("said %v, want it said once that the %s differs", failed, c.says)
			}
		})
	}
}
