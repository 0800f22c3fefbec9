package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unspool/capture/symbols/srcline"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/unwind/image/fileid"
	"unspool/vmas"
)

// strip splits a program into a stripped file, which goes to path, and its debug file, which goes to
// debug and is linked to if link is set. It returns the functions that the program named.
func strip(t *testing.T, program, path, debug string, link bool) *Table {
	t.Helper()
	for _, p := range []string{path, debug} {
		if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	output(t, "objcopy", "--only-keep-debug", program, debug)
	args := []string{"--strip-all"}
	if link {
		args = append(args, "--add-gnu-debuglink="+debug)
	}
	output(t, "objcopy", append(args, program, path)...)
	return readFile(t, program)
}

// sameFunctions checks that an image has the functions of a table that lie in sections with code.
func sameFunctions(t *testing.T, im *Image, want *Table) {
	t.Helper()
	have := im.Table()
	if have == nil {
		t.Fatalf("no names: %q", im.s.Problems())
	}
	for i := range want.Len() {
		w := want.At(i)
		if got, ok := have.Lookup(w.Addr); !ok || got != w {
			t.Errorf("%+v, %v; want %+v", got, ok, w)
		}
	}
}

const (
	withID = "-Wl,--build-id=0x00112233445566778899aabbccddeeff00112233"
	noID   = "-Wl,--build-id=none"
	idPath = "usr/lib/debug/.build-id/00/112233445566778899aabbccddeeff00112233.debug"
)

var id = []byte("\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff\x00\x11\x22\x33")

func TestNamesFromSeparateDebugFiles(t *testing.T) {
	for _, c := range []struct {
		name, flag, debug string
		link              bool
	}{
		{"by build ID", withID, idPath, false},
		{"by link, beside the image", noID, "opt/app/program.debug", true},
		{"by link, in .debug", noID, "opt/app/.debug/program.debug", true},
		{"by link, in the folder for debug files", noID, "usr/lib/debug/opt/app/program.debug", true},
		{"by link, with a build ID", withID, "opt/app/.debug/program.debug", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			want := strip(t, compile(t, "p.c", program, "-O1", c.flag), filepath.Join(root, "opt/app/program"),
				filepath.Join(root, c.debug), c.link)
			s := New(Options{Root: root, Cache: t.TempDir()})
			sameFunctions(t, s.Image("/opt/app/program", nil, vmas.FileID{}), want)
			if p := s.Problems(); len(p) > 0 {
				t.Errorf("problems: %q", p)
			}
			// Without a root, the image's own folder is searched.
			if strings.HasPrefix(c.debug, "opt") {
				sameFunctions(t, New(Options{}).Image(filepath.Join(root, "opt/app/program"), nil, vmas.FileID{}), want)
			}
		})
	}
}

func TestADebugFileOfAnotherBuildIsNamedAndNotUsed(t *testing.T) {
	other := compile(t, "p.c", "int main(void) { return 1; }\n", "-O1", "-Wl,--build-id=0x99")
	for _, c := range []struct{ name, flag, debug, word string }{
		{"build ID", withID, idPath, "build ID 99"},
		{"CRC", noID, "opt/app/program.debug", "CRC"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			debug := filepath.Join(root, c.debug)
			strip(t, compile(t, "p.c", program, "-O1", c.flag), filepath.Join(root, "opt/app/program"), debug, true)
			output(t, "cp", other, debug)
			s := New(Options{Root: root, Cache: t.TempDir()})
			im := s.Image("/opt/app/program", nil, vmas.FileID{})
			if _, ok := find(im.Table(), "compare"); ok {
				t.Error("the other build's debug file is used")
			}
			p := strings.Join(s.Problems(), "\n")
			if !strings.Contains(p, "/"+c.debug) || !strings.Contains(p, c.word) {
				t.Errorf("problems: %s", p)
			}
		})
	}
}

// TestADebugFileAtOtherAddressesIsNamedAndNotUsed has a debug file of the same build ID whose segments have
// other addresses, as after prelinking: its names would be those of other functions.
func TestADebugFileAtOtherAddressesIsNamedAndNotUsed(t *testing.T) {
	root := t.TempDir()
	at := func(address string) string {
		return compile(t, "p.c", program, "-O1", "-no-pie", withID, "-Wl,-Ttext-segment="+address)
	}
	debug := filepath.Join(root, idPath)
	strip(t, at("0x400000"), filepath.Join(root, "opt/app/program"), debug, false)
	output(t, "objcopy", "--only-keep-debug", at("0x600000"), debug)
	s := New(Options{Root: root, Cache: t.TempDir()})
	if f, ok := find(s.Image("/opt/app/program", nil, vmas.FileID{}).Table(), "compare"); ok {
		t.Errorf("the debug file is used: %+v", f)
	}
	p := strings.Join(s.Problems(), "\n")
	const word = "its segments are at 0x600000, the image's at 0x400000"
	if !strings.Contains(p, "/"+idPath) || !strings.Contains(p, word) {
		t.Errorf("problems: %s", p)
	}
}

func TestFilesOfTheBuildIDCache(t *testing.T) {
	cache := t.TempDir()
	program := compile(t, "p.c", program, "-O1", withID)
	folder := filepath.Join(cache, ".build-id/00/112233445566778899aabbccddeeff00112233")
	want := strip(t, program, filepath.Join(folder, "elf"), filepath.Join(folder, "debug"), false)
	// At the path there is another build, or nothing.
	other := compile(t, "p.c", "int main(void) { return 1; }\n", "-Wl,--build-id=0x99")
	for _, path := range []string{other, "/nonexistent/program", other + deleted} {
		s := New(Options{Cache: cache})
		sameFunctions(t, s.Image(path, id, vmas.FileID{}), want)
		if p := s.Problems(); len(p) > 0 {
			t.Errorf("%s: problems: %q", path, p)
		}
	}
}

// TestFileWithMoreOfItsBuild has files of one build in the cache and at the path, which were stripped differently:
// names and lines come from the one with more, wherever it is.
func TestFileWithMoreOfItsBuild(t *testing.T) {
	full := compile(t, "p.c", program, "-O1", "-g", withID)
	names := filepath.Join(t.TempDir(), "names")
	nothing := filepath.Join(t.TempDir(), "nothing")
	output(t, "objcopy", "--strip-debug", full, names)
	output(t, "objcopy", "--strip-all", full, nothing)
	zdebug := filepath.Join(t.TempDir(), "zdebug")
	output(t, "objcopy", "--compress-debug-sections=zlib-gnu", full, zdebug)
	for _, c := range []struct {
		cached, path string
		lines        bool
	}{{nothing, names, false}, {names, nothing, false}, {nothing, full, true}, {names, full, true},
		{full, nothing, true}, {names, zdebug, true}} {
		cache := t.TempDir()
		folder := filepath.Join(cache, ".build-id/00/112233445566778899aabbccddeeff00112233")
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		output(t, "cp", c.cached, filepath.Join(folder, "elf"))
		s := New(Options{Cache: cache})
		im := s.Image(c.path, id, vmas.FileID{})
		if im.Table() == nil {
			t.Errorf("%s cached, %s at the path: no names: %q", c.cached, c.path, s.Problems())
			continue
		}
		f, named := find(im.Table(), "compare")
		lines := false
		im.Lines([]uint64{f.Addr}, func(_ int, frames []srcline.Frame) { lines = true })
		if !named || lines != c.lines {
			t.Errorf("%s cached, %s at the path: named: %v, lines: %v", c.cached, c.path, named, lines)
		}
	}
}

// TestBuildIDsOfOtherLengths has two builds at one path, by turns, with IDs as recordings have them: short
// ones with zeros behind them, and the first 20 bytes of long ones.
func TestBuildIDsOfOtherLengths(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	for _, size := range []int{8, 16, 32} {
		var programs [2]string
		var recorded [2][]byte
		for i := range programs {
			whole := bytes.Repeat([]byte{byte(0x11 * (i + 1))}, size)
			programs[i] = compile(t, "p.c", program, "-O1", fmt.Sprintf("-Wl,--build-id=0x%x", whole))
			recorded[i] = append(whole, make([]byte, 20)...)[:20]
		}
		for round := range 4 {
			content, err := os.ReadFile(programs[round%2])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o777); err != nil {
				t.Fatal(err)
			}
			for i, id := range recorded {
				s := New(Options{Cache: t.TempDir()})
				used := s.Image(path, id, vmas.FileID{}).Table() != nil
				if own := i == round%2; used != own || own != (len(s.Problems()) == 0) {
					t.Errorf("%d bytes, round %d, %x: used %v, problems %q", size, round, id, used, s.Problems())
				}
			}
		}
	}
}

// miniDebugInfo makes a stripped copy of a program with .gnu_debugdata as Fedora's find-debuginfo makes it:
// the symbols of functions that are not in .dynsym, packed by xz.
func miniDebugInfo(t testing.TB, program string, filters ...string) string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	names := func(flags ...string) map[string]bool {
		set := map[string]bool{}
		for line := range strings.Lines(output(t, "nm", append(flags, "--format=posix", "--defined-only",
			program)...)) {
			f := strings.Fields(line)
			if len(f) > 1 && strings.ContainsAny(f[1], "TtDd") {
				name, _, _ := strings.Cut(f[0], "@")
				set[name] = true
			}
		}
		return set
	}
	dynamic := names("-D")
	var keep strings.Builder
	for name := range names() {
		if !dynamic[name] {
			keep.WriteString(name + "\n")
		}
	}
	if err := os.WriteFile(at("keep"), []byte(keep.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	output(t, "objcopy", "--only-keep-debug", program, at("debug"))
	output(t, "objcopy", "-S", "--remove-section=.gdb_index", "--remove-section=.comment",
		"--keep-symbols="+at("keep"), at("debug"), at("mini"))
	output(t, "xz", append(filters, "--check=crc32", "--keep", at("mini"))...)
	output(t, "objcopy", "--strip-all", program, at("stripped"))
	output(t, "objcopy", "--add-section=.gnu_debugdata="+at("mini.xz"), at("stripped"), at("program"))
	return at("program")
}

func TestNamesFromMiniDebugInfo(t *testing.T) {
	for _, flags := range [][]string{{"-O1", "-rdynamic"}, {"-O1", "-static"}} {
		program := compile(t, "p.c", program, flags...)
		want, symbols := readFile(t, program), symbolsOf(t, program)
		for _, filters := range [][]string{{}, {"--x86", "--lzma2=preset=9"}} {
			mini := readFile(t, miniDebugInfo(t, program, filters...))
			if f, ok := find(mini, "compare"); !ok { // not in .dynsym
				t.Errorf("%v: no compare: %+v", flags, f)
			}
			if f, ok := find(mini, "main"); !ok {
				t.Errorf("%v: no main: %+v", flags, f)
			}
			for i := range want.Len() {
				w := want.At(i)
				got, ok := mini.Lookup(w.Addr)
				if ok && w.Entry != w.Addr && got.Entry == got.Addr {
					got.Name = strings.TrimSuffix(got.Name, ".cold") // it does not say which symbols are of the same file
				}
				switch {
				case !ok || got.Addr != w.Addr:
					if !symbols.weak[w.Addr] { // those are in .dynsym only
						t.Errorf("%v: no name for %+v", flags, w)
					}
				case got.Size != w.Size || !symbols.same(got.Name, w.Name):
					t.Errorf("%v: %+v, want %+v", flags, got, w)
				}
			}
		}
	}
}

// programSymbols is a program's symbol table, as debug/elf reads it.
type programSymbols struct {
	addr map[string]uint64
	weak map[uint64]bool // addresses with a weak name
}

func symbolsOf(t *testing.T, program string) programSymbols {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	p := programSymbols{make(map[string]uint64), make(map[uint64]bool)}
	for _, s := range all {
		p.addr[s.Name] = s.Value
		p.weak[s.Value] = p.weak[s.Value] || elf.ST_BIND(s.Info) == elf.STB_WEAK
	}
	return p
}

// same reports whether two names are equal, or aliases of a function or of the function that an entry of the PLT
// leads to.
func (p programSymbols) same(a, b string) bool {
	a, fromA := strings.CutSuffix(a, "@plt")
	b, fromB := strings.CutSuffix(b, "@plt")
	return fromA == fromB && (a == b || p.addr[a] != 0 && p.addr[a] == p.addr[b])
}

func TestUnpackingIsBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "zeroes")
	if err := os.WriteFile(path, make([]byte, 4<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	output(t, "xz", "-1", path)
	packed, err := os.ReadFile(path + ".xz")
	if err != nil {
		t.Fatal(err)
	}
	if data, err := unpackXZ(packed, 1<<20); err == nil {
		t.Errorf("%d bytes", len(data))
	}
}

func FuzzMiniDebugInfo(f *testing.F) {
	path := miniDebugInfo(f, compile(f, "p.c", program, "-O1"))
	file, err := elf.Open(path)
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	packed, err := io.ReadAll(file.Section(".gnu_debugdata").Open())
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("\xfd7zXZ\x00"))
	if inputs.Total() == 0 {
		f.Add(packed)
	} else {
		// A small dictionary is quicker, and a sum of what is packed could not be put right.
		whole, err := unpackXZ(packed, 1<<20)
		if err != nil {
			f.Fatal(err)
		}
		pack := exec.Command("xz", "--check=none", "--lzma2=dict=4KiB")
		pack.Stdin = bytes.NewReader(whole)
		if packed, err = pack.Output(); err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, packed []byte) {
		defer costs.For(len(packed)).Check(t)()
		const limit = 1 << 20
		data, err := unpackXZ(packed, limit)
		if err != nil {
			return
		}
		if len(data) > limit {
			t.Fatalf("%d bytes", len(data))
		}
		_, _ = readELF(bytes.NewReader(data), int64(len(data)))
	}, inputs.Repaired(sumsOfXZ)))
}

// sumsOfXZ puts the sums of a stream of one block right: of its header, the block's header, the index and the
// footer. tukaani.org/xz/xz-file-format.txt.
func sumsOfXZ(b []byte) {
	const header = 12 // of the stream, and as long is its footer
	n := len(b)
	sum := func(from, to, at int) {
		if 0 <= from && from < to && to <= n && at+4 <= n {
			binary.LittleEndian.PutUint32(b[at:], crc32.ChecksumIEEE(b[from:to]))
		}
	}
	sum(6, 8, 8)
	if n <= 2*header {
		return
	}
	block := header + 4*(int(b[header])+1)
	sum(header, block-4, block-4)
	backward := binary.LittleEndian.Uint32(b[n-8:])
	if index := n - header - 4*(int(backward)+1); index > header {
		sum(index, n-header-4, n-header-4)
	}
	sum(n-8, n-2, n-header)
}

func TestAnotherKernelsNamesAreInTheCache(t *testing.T) {
	cache := t.TempDir()
	folder := filepath.Join(cache, ".build-id/00/112233445566778899aabbccddeeff00112233")
	if err := os.MkdirAll(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kallsyms"), []byte(kernelList), 0o666); err != nil {
		t.Fatal(err)
	}
	// Any ELF file with that build ID can be used as its vDSO.
	output(t, "cp", compile(t, "p.c", program, "-O1", "-shared", "-fPIC", withID), filepath.Join(folder, "vdso"))
	s := New(Options{Cache: cache})
	s.SetKernel(KernelID{BuildID: id, Release: "another"})
	if f, image, ok := s.Kernel(0xffffffffc0100004); !ok || f.Name != "ext4_start" || image != "[ext4]" {
		t.Errorf("%+v, %s, %v; %q", f, image, ok, s.Problems())
	}
	if _, ok := find(s.Image("[vdso]", id, vmas.FileID{}).Table(), "work_too"); !ok {
		t.Errorf("the vDSO of the cache is not used: %q", s.Problems())
	}
}

// TestFilesWithoutBuildIDsAreToldByInode has two builds without IDs at one path, by turns.
func TestFilesWithoutBuildIDsAreToldByInode(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "program")
	var kept [2]string
	var inodes [2]vmas.FileID
	for i := range kept {
		kept[i] = filepath.Join(dir, fmt.Sprint(i))
		content, err := os.ReadFile(compile(t, "p.c", program, "-O1", noID))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(kept[i], content, 0o777); err != nil {
			t.Fatal(err)
		}
		inodes[i] = inode(t, kept[i])
	}
	for round := range 4 {
		there := round % 2
		if err := os.Rename(kept[there], path); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		written := info.ModTime()
		for _, c := range []struct {
			what     string
			root     string
			inode    vmas.FileID
			recorded time.Time
			refused  error
		}{
			{"the one that was mapped", "", inodes[there], written, nil},
			{"the other one", "", inodes[1-there], written, fileid.ErrReplaced},
			{"what the user names", "/", inodes[1-there], written, nil},
			{"nothing known", "", vmas.FileID{}, time.Time{}, nil},
			{"written to since", "", inodes[there], written.Add(-1), errRewritten},
			{"only the path known, written to since", "", vmas.FileID{}, written.Add(-1), errRewritten},
			{"what the user names, written to since", "/", inodes[there], written.Add(-1), nil},
		} {
			s := New(Options{Cache: t.TempDir(), Root: c.root, Recorded: c.recorded})
			used := s.Image(path, nil, c.inode).Table() != nil
			problems := strings.Join(s.Problems(), "\n")
			if used != (c.refused == nil) || used != (problems == "") ||
				!used && !strings.Contains(problems, c.refused.Error()) {
				t.Errorf("round %d: %s: used %v, problems %q", round, c.what, used, problems)
			}
		}
		if err := os.Rename(path, kept[there]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFilesThatAreGoneAreFoundAmongOpenOnes has two programs whose path leads to neither any more. Whether a
// build ID was recorded does not depend on whether the file has one: it may have been read too late.
func TestFilesThatAreGoneAreFoundAmongOpenOnes(t *testing.T) {
	for _, file := range []string{withID, noID} {
		t.Run(file, func(t *testing.T) {
			var open []*os.File
			var inodes []vmas.FileID
			for _, source := range []string{"int main(void) { return 1; }\n", program} {
				path := compile(t, "p.c", source, "-O1", file)
				f, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				inodes = append(inodes, inode(t, path))
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				open = append(open, f)
			}
			for i, want := range []bool{false, true} {
				s := New(Options{Cache: t.TempDir(), Files: open})
				table, found := s.Image("/nonexistent/program", nil, inodes[i]).Table(), false
				if table != nil {
					_, found = find(table, "compare")
				}
				if found != want {
					t.Errorf("file %d: the function was found: %v; %q", i, found, s.Problems())
				}
			}
		})
	}
}
