package dwarfcfi

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"unspool/testdata/programs"
)

const libc = "/lib/x86_64-linux-gnu/libc.so.6"

func readLibc(t testing.TB) []byte {
	t.Helper()
	file, err := os.ReadFile(libc)
	if err != nil {
		t.Skipf("%s is not installed", libc)
	}
	return file
}

func tableOf(t testing.TB, file []byte) *Table {
	t.Helper()
	s, err := FindSections(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	table, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestRowOfASmallFile(t *testing.T) {
	for _, class := range []int{64, 32} {
		var row Row
		err := tableOf(t, smallELF(class)).Row(0x401010, &row)
		if err != nil || show(&row) != "401000-401100 r7+8 r16=c-8" {
			t.Errorf("ELF%d: %s, %v", class, show(&row), err)
		}
	}
}

// withoutSections wipes what the file header says about section headers.
func withoutSections(file []byte) []byte {
	file = bytes.Clone(file)
	clear(file[40:48])
	clear(file[58:64])
	return file
}

func TestFileWithoutSectionHeadersHasTheSameRows(t *testing.T) {
	file := readLibc(t)
	bogus := bytes.Clone(file)
	shoff := le.Uint64(bogus[40:])
	for i := shoff; i < uint64(len(bogus)); i++ {
		bogus[i] = byte(i * 7)
	}
	whole := tableOf(t, file)
	for name, other := range map[string][]byte{"none": withoutSections(file), "bogus": bogus} {
		table := tableOf(t, other)
		if table.eh.Addr != whole.eh.Addr || table.hdr.count != whole.hdr.count {
			t.Errorf("%s: .eh_frame at %#x with %d entries, want %#x and %d", name,
				table.eh.Addr, table.hdr.count, whole.eh.Addr, whole.hdr.count)
		}
		compareRows(t, name, whole, table)
		table.hdr.count = 0 // from here on by an index, which must end at the terminator
		compareRows(t, name+", own index", whole, table)
	}
}

// compareRows looks up every FDE of want in got and compares their first and last rows.
func compareRows(t *testing.T, name string, want, got *Table) {
	t.Helper()
	n := 0
	for d, err := range want.FDEs() {
		if err != nil {
			t.Fatal(err)
		}
		for _, pc := range []uint64{d.Start, d.End - 1} {
			var a, b Row
			errA, errB := d.Row(pc, &a), got.Row(pc, &b)
			if errA != nil || errB != nil || show(&a) != show(&b) {
				t.Fatalf("%s: at %#x: %s, want %s; %v, %v", name, pc, show(&b), show(&a), errB, errA)
			}
		}
		n++
	}
	if n == 0 {
		t.Fatalf("%s: no FDEs", name)
	}
}

func TestOwnIndexFindsWhatTheSearchTableFinds(t *testing.T) {
	file := readLibc(t)
	plain := tableOf(t, file)
	plain.hdr.count = 0
	compareRows(t, "own index", tableOf(t, file), plain)
	if x := plain.eh.index; len(x.near) == 0 || cap(x.near) != len(x.near) || x.far != nil || x.err != ErrNoFDE {
		t.Errorf("index has %d entries in %d places, %d wide ones, error %v", len(x.near), cap(x.near), len(x.far),
			x.err)
	}
}

func TestSizesThatLieCostNothing(t *testing.T) {
	file := smallELF(64)
	shoff := le.Uint64(file[40:])
	for i := range uint64(6) {
		for j := range uint64(8) {
			file[shoff+64*i+32+j] = 0x3f // sh_size
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	FindSections(bytes.NewReader(file), int64(len(file)))
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	if allocated > 4<<20 {
		t.Errorf("%d bytes allocated", allocated)
	}
}

// build compiles C source with the given flags.
func build(t *testing.T, source string, flags ...string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	for _, f := range flags {
		if linker, ok := strings.CutPrefix(f, "-fuse-ld="); ok {
			if _, err := exec.LookPath("ld." + linker); err != nil {
				t.Skipf("ld.%s is not installed", linker)
			}
		}
	}
	dir := programs.Keep(t, fmt.Sprintf("%q %q", source, flags), func(dir string) {
		in, out := filepath.Join(dir, "a.c"), filepath.Join(dir, "a.out")
		if err := os.WriteFile(in, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"-o", out, in}, flags...)
		if text, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Skipf("gcc cannot compile with %v: %v: %s", flags, err, text)
		}
	})
	content, err := os.ReadFile(filepath.Join(dir, "a.out"))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "a.out") // beside which tests make others
	if err := os.WriteFile(out, content, 0o700); err != nil {
		t.Fatal(err)
	}
	return out
}

const freestanding = `
int f(int n) { volatile char buf[1000]; buf[n] = n; return buf[n + 1] * 2; }
int g(int n) { return f(n) + f(n + 1); }
void _start(void) { g(7); for (;;); }
`

func TestDebugFrameOfARealFile(t *testing.T) {
	path := build(t, freestanding, "-O2", "-g", "-nostdlib", "-static", "-fomit-frame-pointer",
		"-fno-asynchronous-unwind-tables", "-fno-unwind-tables")
	table, layout, sections := openTable(t, path)
	if sections.EhFrame.Data != nil || layout.DebugFrame.Size == 0 {
		t.Fatalf("layout %+v", layout)
	}
	compareWithReadelf(t, path)
	for _, flag := range []string{"--compress-debug-sections=zlib", "--compress-debug-sections=zlib-gnu",
		"--compress-debug-sections=zstd"} {
		packed := path + ".packed"
		if text, err := exec.Command("objcopy", flag, path, packed).CombinedOutput(); err != nil {
			t.Logf("left out: objcopy %s: %v: %s", flag, err, text)
			continue
		}
		other, layout, _ := openTable(t, packed)
		if layout.DebugFrame.Packed == 0 {
			t.Errorf("%s: .debug_frame is not compressed", flag)
		}
		compareRows(t, flag, table, other)
	}
}

func TestI386RowsAgreeWithReadelf(t *testing.T) {
	compareWithReadelf(t, build(t, freestanding, "-O2", "-m32", "-nostdlib", "-static", "-fno-pie"))
	compareWithReadelf(t, build(t, freestanding, "-O2", "-m32", "-nostdlib", "-fPIC", "-shared"))
}

func TestStaticExecutableRowsAgreeWithReadelf(t *testing.T) {
	path := build(t, "int main(void) { return 0; }", "-O2", "-static")
	if _, layout, _ := openTable(t, path); layout.EhFrameHdr.Size != 0 {
		t.Log("this libc makes a search table for static executables")
	}
	compareWithReadelf(t, path)
}
