package debugfile

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/dwarfcfi/elf"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/vmas/process"
)

// elfFile is a 64-bit ELF file of one note segment with a build ID, or
// without a note.
func elfFile(id ...byte) []byte {
	le := func(b []byte, v uint64, n int) []byte {
		for ; n > 0; n-- {
			b = append(b, byte(v))
			v >>= 8
		}
		return b
	}
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	b = le(le(le(b, 3, 2), 62, 2), 1, 4)            // ET_DYN, EM_X86_64, EV_CURRENT
	b = le(le(le(b, 0, 8), 64, 8), 0, 8)            // entry, phoff, shoff
	b = le(le(le(b, 0, 4), 64, 2), 56, 2)           // flags, ehsize, phentsize
	b = le(le(b, min(1, uint64(len(id))), 2), 0, 6) // phnum; no sections
	if len(id) == 0 {
		return b
	}
	size := uint64(16 + len(id))
	b = le(le(b, 4, 4), 4, 4) // PT_NOTE, PF_R
	for _, v := range []uint64{120, 120, 120, size, size, 4} {
		b = le(b, v, 8)
	}
	b = le(le(le(b, 4, 4), uint64(len(id)), 4), 3, 4) // namesz, descsz, NT_GNU_BUILD_ID
	return append(append(b, "GNU\x00"...), id...)
}

func TestFind(t *testing.T) {
	own, other := []byte{0xab, 0xcd, 0xef, 1}, []byte{0xab, 0xcd, 0xef, 2}
	if id, err := elf.ReadBuildID(bytes.NewReader(elfFile(own...))); err != nil || !bytes.Equal(id, own) {
		t.Fatalf("hand-made file: build ID %x, %v", id, err)
	}
	linkTo := func(content []byte) Link { return Link{"prog.debug", crc32.ChecksumIEEE(content)} }
	const image, byID = "/opt/bin/prog", "usr/lib/debug/.build-id/ab/cdef01.debug"
	plain, right, wrong := elfFile(), elfFile(own...), elfFile(other...)
	for _, c := range []struct {
		name    string
		files   map[string][]byte
		links   map[string]string
		buildID []byte
		link    Link
		want    string // "" when nothing may be found
		err     error
	}{
		{name: "by build ID", files: map[string][]byte{byID: right}, buildID: own, want: byID},
		{name: "another build's in the build ID directory", files: map[string][]byte{byID: wrong}, buildID: own,
			err: ErrOther},
		{name: "without build ID in the build ID directory", files: map[string][]byte{byID: plain}, buildID: own,
			err: ErrOther},
		{name: "beside the image", files: map[string][]byte{"opt/bin/prog.debug": plain}, link: linkTo(plain),
			want: "opt/bin/prog.debug"},
		{name: "in .debug", files: map[string][]byte{"opt/bin/.debug/prog.debug": plain}, link: linkTo(plain),
			want: "opt/bin/.debug/prog.debug"},
		{name: "below /usr/lib/debug", files: map[string][]byte{"usr/lib/debug/opt/bin/prog.debug": plain},
			link: linkTo(plain),
			want: "usr/lib/debug/opt/bin/prog.debug"},
		{name: "image with build ID, debug file without", files: map[string][]byte{"opt/bin/prog.debug": plain},
			buildID: own,
			link:    linkTo(plain), want: "opt/bin/prog.debug"},
		{name: "CRC right, build ID wrong", files: map[string][]byte{"opt/bin/prog.debug": wrong}, buildID: own,
			link: linkTo(wrong), err: ErrOther},
		{name: "CRC wrong", files: map[string][]byte{"opt/bin/prog.debug": plain}, link: Link{"prog.debug", 1},
			err: ErrOther},
		{name: "CRC of another file, build ID right", files: map[string][]byte{"opt/bin/prog.debug": right},
			buildID: own, link: Link{"prog.debug", 1}, want: "opt/bin/prog.debug"},
		{name: "CRC wrong, the debug file without build ID", files: map[string][]byte{"opt/bin/prog.debug": plain},
			buildID: own, link: Link{"prog.debug", 1}, err: ErrOther},
		{name: "a wrong one before the right one",
			files: map[string][]byte{"opt/bin/prog.debug": wrong, "opt/bin/.debug/prog.debug": right}, buildID: own,
			link: linkTo(right), want: "opt/bin/.debug/prog.debug"},
		{name: "no ELF file", files: map[string][]byte{byID: []byte("hello")}, buildID: own, err: elf.ErrBadELF},
		{name: "symbolic link, absolute within the root", files: map[string][]byte{"store/d": right},
			links: map[string]string{byID: "/store/d"}, buildID: own, want: byID},
		{name: "symbolic link out of the root", links: map[string]string{byID: "/proc/self/exe"}, buildID: own,
			err: fs.ErrNotExist},
		{name: "nothing there", buildID: own, link: linkTo(plain), err: fs.ErrNotExist},
		{name: "no build ID, no link", files: map[string][]byte{byID: right, "opt/bin/prog.debug": plain},
			err: fs.ErrNotExist},
		{name: "the image is not its own debug file", files: map[string][]byte{"opt/bin/prog": plain},
			link: Link{"prog", crc32.ChecksumIEEE(plain)}, err: fs.ErrNotExist},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, content := range c.files {
				name = filepath.Join(root, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
					os.WriteFile(name, content, 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			for name, to := range c.links {
				name = filepath.Join(root, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(to, name)); err != nil {
					t.Fatal(err)
				}
			}
			roots := []Root{In(process.Here{}, filepath.Join(root, "gone")), In(process.Here{}, root)}
			f, err := Find(roots, image, c.buildID, c.link)
			if err == nil {
				defer f.Close()
				if want := filepath.Join(root, c.want); f.Name() != want || c.want == "" {
					t.Fatalf("found %s, want %q", f.Name(), c.want)
				}
				return
			}
			if c.want != "" || !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
		})
	}
}

func TestFindRefusesWhatIsTooLarge(t *testing.T) {
	root := t.TempDir()
	own := []byte{0xab, 0xcd}
	for name, size := range map[string]int64{
		filepath.Join(root, "usr/lib/debug/.build-id/ab/cd.debug"): Largest + 1,
		filepath.Join(root, "prog.debug"):                          LargestCRC + 1,
	} {
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, elfFile(own...), 0o644),
			os.Truncate(name, size))
		if err != nil {
			t.Skipf("no sparse files here: %v", err)
		}
	}
	for _, c := range []struct {
		id   []byte
		link Link
	}{{own, Link{}}, {nil, Link{"prog.debug", 1}}} {
		if _, err := Find([]Root{In(process.Here{}, root)}, "/prog", c.id, c.link); err == nil ||
			!strings.Contains(err.Error(), "too large") {
			t.Errorf("build ID %x: %v", c.id, err)
		}
	}
}

// TestEqualBuildIDNeedsNoCRC finds a debug file that would take a second to read.
func TestEqualBuildIDNeedsNoCRC(t *testing.T) {
	root := t.TempDir()
	own := []byte{0xab, 0xcd}
	name := filepath.Join(root, "prog.debug")
	if err := os.WriteFile(name, elfFile(own...), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, 2*LargestCRC); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	f, err := Find([]Root{In(process.Here{}, root)}, "/prog", own, Link{"prog.debug", 1})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestParseLink(t *testing.T) {
	for _, c := range []struct {
		section string
		want    Link
	}{
		{"abc\x00\x04\x03\x02\x01", Link{"abc", 0x01020304}},
		{"abcd\x00\x00\x00\x00\x04\x03\x02\x01", Link{"abcd", 0x01020304}},
		{"", Link{}},
		{"abc", Link{}},
		{"\x00\x00\x00\x00\x04\x03\x02\x01", Link{}},
		{"abc\x00\x04\x03\x02", Link{}},
		{"../passwd\x00\x00\x00\x04\x03\x02\x01", Link{}},
		{"..\x00\x00\x04\x03\x02\x01", Link{}},
		{strings.Repeat("a", MaxLink) + "\x00\x00\x00\x00\x01\x00\x00\x00", Link{}},
	} {
		got, ok := ParseLink([]byte(c.section))
		if got != c.want || ok != (c.want != Link{}) {
			t.Errorf("%q: %+v %v, want %+v", c.section, got, ok, c.want)
		}
	}
}

func FuzzParseLink(f *testing.F) {
	f.Add([]byte("abc\x00\x04\x03\x02\x01"))
	f.Add([]byte("libc.so.6.debug\x00\x01\x02\x03\x04"))
	for _, link := range inputs.Sections(20, 1<<10, ".gnu_debuglink", inputs.Programs...) {
		f.Add(link)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, section []byte) {
		defer costs.For(len(section)).Check(t)()
		link, ok := ParseLink(section)
		if !ok {
			return
		}
		for _, c := range candidates("/usr/bin/prog", nil, link) {
			dirs := []string{"/usr/bin", "/usr/bin/.debug", "/usr/lib/debug/usr/bin"}
			if !slices.Contains(dirs, filepath.Dir(c.path)) {
				t.Errorf("link %q leads to %s", link.Name, c.path)
			}
		}
	}))
}
