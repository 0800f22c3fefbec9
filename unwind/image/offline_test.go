package image

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi/elf"
	"unspool/dwarfcfi/elf/elftest"
	"unspool/testdata/programs"
	"unspool/unwind/image/debugfile"
	"unspool/unwind/image/fileid"
	"unspool/unwind/vdso"
	"unspool/vmas"
	"unspool/vmas/process"
)

func copyELF(t *testing.T, from, to string) vmas.BuildID {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o777), os.WriteFile(to, content, 0o777)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id, err := elf.ReadBuildID(f)
	if err != nil || len(id) == 0 {
		t.Skipf("%s has no build ID: %v", from, err)
	}
	return vmas.NewBuildID(id)
}

// libc is a file with a build ID.
func libc(t *testing.T) string {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	for line := range strings.Lines(string(maps)) {
		if i := strings.IndexByte(line, '/'); i > 0 && strings.Contains(line, "libc.so") {
			return strings.TrimSpace(line[i:])
		}
	}
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6",
		"/usr/lib/libc.so.6"} {
		if _, serr := os.Stat(path); serr == nil {
			return path
		}
	}
	t.Skipf("libc.so.6 is not installed: %v", err)
	return ""
}

// identity is what an MMAP2 record says of a file.
func identity(t *testing.T, path string) vmas.FileID {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return vmas.FileID{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev), Inode: st.Ino}
}

// mapped is a file as a record names it.
func mapped(name string, id vmas.FileID) *vmas.File {
	return vmas.NewTable("").Mmap(1, vmas.Map{Len: 0x1000, Prot: vmas.ProtExec, Name: []byte(name), ID: id}).File
}

func TestOfflineFilesAreUsedOnlyWhenTheyAreTheRecordedOnes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "bin", "program")
	id := copyELF(t, libc(t), path)
	other := identity(t, path)
	other.Inode += 1 << 40 // the next one may be that of the next file
	older := identity(t, path)
	older.Generation = 1 << 40

	symfs := filepath.Join(dir, "symfs")
	copyELF(t, libc(t), filepath.Join(symfs, path))
	// A file's own name may end as the kernel ends those of removed files, and both may be there.
	removed := path + " (deleted)"
	copyELF(t, libc(t), removed)
	copyELF(t, libc(t), filepath.Join(symfs, removed))
	wrong := filepath.Join(dir, "wrong")
	if err := os.MkdirAll(filepath.Join(wrong, filepath.Dir(path)), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(wrong, path), []byte("no ELF file"), 0o666); err != nil {
		t.Fatal(err)
	}

	// The layout of today, and that of perf 4.8.
	hex := id.String()
	cache, old := filepath.Join(dir, "cache"), filepath.Join(dir, "old")
	copyELF(t, libc(t), filepath.Join(cache, "bin/program", hex, "elf"))
	copyELF(t, libc(t), filepath.Join(old, "bin/program", hex))
	for _, c := range []string{cache, old} {
		link := filepath.Join(c, ".build-id", hex[:2], hex[2:])
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o777),
			os.Symlink("../../bin/program/"+hex, link)); err != nil {
			t.Fatal(err)
		}
	}
	noted := func(string) vmas.BuildID { return id }
	const gone = "/nowhere/at/all"
	for _, c := range []struct {
		name    string
		offline Offline
		path    string
		id      vmas.FileID
		found   string // as its real path ends
		err     error
	}{
		{"build ID fits", Offline{}, path, vmas.FileID{BuildID: id}, path, nil},
		{"build ID of the recording's list fits", Offline{BuildID: noted}, path, other, path, nil},
		{"another build", Offline{}, path, vmas.FileID{BuildID: vmas.NewBuildID([]byte("another"))}, "",
			fileid.ErrReplaced},
		{"another build, though the inode fits",
			Offline{BuildID: func(string) vmas.BuildID { return vmas.NewBuildID([]byte("another")) }},
			path, identity(t, path), "", fileid.ErrReplaced},
		{"inode fits", Offline{}, path, identity(t, path), path, nil},
		{"removed, and there again", Offline{}, removed, identity(t, path), path, nil},
		{"named as if removed", Offline{}, removed, identity(t, removed), removed, nil},
		{"named as if removed, by build ID", Offline{}, removed, vmas.FileID{BuildID: id}, removed, nil},
		{"named as if removed, below symfs", Offline{Symfs: symfs}, removed, vmas.FileID{}, symfs + removed, nil},
		{"removed, and another inode", Offline{}, removed, other, "", fileid.ErrReplaced},
		{"build ID of the list for the whole name",
			Offline{BuildID: func(name string) vmas.BuildID {
				return map[string]vmas.BuildID{path: vmas.NewBuildID([]byte("another")), removed: id}[name]
			}}, removed, other, removed, nil},
		{"another inode", Offline{}, path, other, "", fileid.ErrReplaced},
		{"nothing known", Offline{}, path, vmas.FileID{}, "", errUnproven},
		{"nothing known, below symfs", Offline{Symfs: symfs}, path, vmas.FileID{}, symfs + path, nil},
		{"symfs comes first", Offline{Symfs: symfs, Cache: cache}, path, vmas.FileID{BuildID: id}, symfs + path,
			nil},
		{"symfs has another build", Offline{Symfs: wrong, Cache: cache}, path, vmas.FileID{BuildID: id},
			hex + "/elf", nil},
		{"no way out of symfs", Offline{Symfs: symfs}, "/../../.." + path, vmas.FileID{}, symfs + path, nil},
		{"cache", Offline{Cache: cache}, gone, vmas.FileID{BuildID: id}, hex + "/elf", nil},
		{"old cache", Offline{Cache: old}, gone, vmas.FileID{BuildID: id}, "program/" + hex, nil},
		{"no cache without a build ID", Offline{Cache: cache}, gone, other, "", errNotFound},
		{"gone", Offline{}, gone, vmas.FileID{BuildID: id}, "", errNotFound},
		{"a directory", Offline{}, dir, vmas.FileID{BuildID: id}, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			file, err := c.offline.file(mapped(c.path, c.id))
			if c.found == "" {
				name := strings.TrimSuffix(c.path, " (deleted)")
				if err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), name) {
					t.Errorf("%v, want %v", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if at, _ := os.Readlink("/proc/self/fd/" + filepath.Base(file.Name())); at != "" &&
				!strings.HasSuffix(at, c.found) {
				t.Errorf("%s, want %s", at, c.found)
			}
			if n, err := io.Copy(io.Discard, file); n == 0 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
}

// TestOfflineFileWithMoreOfItsBuild has a copy in the cache that was stripped, and at the path the same build
// with debugging information: the only CFI may be in that.
func TestOfflineFileWithMoreOfItsBuild(t *testing.T) {
	dir := t.TempDir()
	path := programs.Build(t, "plain", "-gdwarf-4", "-fno-asynchronous-unwind-tables")
	id := copyELF(t, path, filepath.Join(dir, "full"))
	cached := filepath.Join(dir, ".build-id", id.String()[:2], id.String()[2:], "elf")
	stripped := filepath.Join(dir, "stripped")
	if out, err := exec.Command("strip", "-o", stripped, path).CombinedOutput(); err != nil {
		t.Skipf("strip: %v\n%s", err, out)
	}
	for _, c := range []struct{ cached, path string }{{stripped, path}, {path, stripped}} {
		copyELF(t, c.cached, cached)
		o := Offline{Cache: dir}
		file, err := o.file(mapped(c.path, vmas.FileID{BuildID: id}))
		if err != nil {
			t.Fatal(err)
		}
		if detail := detailOf(&process.OpenFile{File: file}); detail != debugfile.Debugging {
			t.Errorf("%s cached, %s at the path: %s, which has %v", c.cached, c.path, file.Name(), detail)
		}
		file.Close()
	}
}

func TestOfflineVDSOIsOursOnlyOnTheSameKernel(t *testing.T) {
	m := ownVDSOMapping(t)
	data, err := vdso.Own()
	if err != nil {
		t.Fatal(err)
	}
	id := vmas.NewBuildID(imageBuildID(data))
	if id.IsZero() {
		t.Skip("the vDSO has no build ID")
	}
	dir := t.TempDir()
	hex := id.String()
	cached := filepath.Join(dir, ".build-id", hex[:2], hex[2:], "vdso")
	if err := errors.Join(os.MkdirAll(filepath.Dir(cached), 0o777),
		os.WriteFile(cached, data, 0o666)); err != nil {
		t.Fatal(err)
	}
	is := func(id vmas.BuildID) func(string) vmas.BuildID { return func(string) vmas.BuildID { return id } }
	another := vmas.NewBuildID([]byte("another"))
	for _, c := range []struct {
		name    string
		offline Offline
		ok      bool
	}{
		{"same kernel", Offline{SameKernel: true}, true},
		{"another kernel", Offline{}, false},
		{"same build", Offline{BuildID: is(id)}, true},
		{"another build", Offline{BuildID: is(another), SameKernel: true}, false},
		{"cached", Offline{BuildID: is(id), Cache: dir}, true},
	} {
		if got, err := c.offline.vdso(m); (err == nil) != c.ok || c.ok && vmas.NewBuildID(imageBuildID(got)) != id {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestOfflineVDSOOf32BitProcesses asks for a vDSO that this process does not have.
func TestOfflineVDSOOf32BitProcesses(t *testing.T) {
	if _, err := vdso.Own32(); err != nil {
		t.Skip(err)
	}
	table := vmas.NewTable("")
	m := table.Mmap(1, vmas.Map{Addr: 0xf7fc_0000, Len: 0x2000, Prot: vmas.ProtExec, Name: []byte("[vdso]")})
	same, other := Offline{SameKernel: true}, Offline{}
	data, err := same.vdso(m)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := elf.ReadLayout(bytes.NewReader(data), int64(len(data)))
	if err != nil || layout.Machine != elf.EM_386 || len(data) != 0x2000 {
		t.Errorf("%d bytes, %+v, %v", len(data), layout, err)
	}
	if _, err := other.vdso(m); err == nil {
		t.Error("the vDSO of another kernel")
	}
}

func ownVDSOMapping(t *testing.T) *vmas.Mapping {
	t.Helper()
	table, pid := vmas.NewTable("/proc"), uint32(os.Getpid())
	if _, err := table.Seed(pid); err != nil {
		t.Fatal(err)
	}
	for m := range table.Space(pid).Mappings() {
		if m.File.Kind == vmas.VDSO {
			return m
		}
	}
	t.Skip("no vDSO")
	return nil
}

// A PID in a recording may be that of another process by now, even our own.
func TestOfflineImagesAskNoProcess(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "program")
	id := copyELF(t, libc(t), path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var failed []string
	s := New(Config{Offline: &Offline{}})
	s.hooks.Failed = func(path string, err error) { failed = append(failed, err.Error()) }
	pid := uint32(os.Getpid())
	table := vmas.NewTable("")
	for i := range uint64(3) {
		m := table.Mmap(pid, vmas.Map{Addr: 0x1000 << i, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte(path),
			ID: vmas.FileID{BuildID: id}})
		s.Open(pid, m)
		if im := s.Lookup(pid, m); im == nil || im.opened {
			t.Fatalf("%+v", im)
		}
	}
	if len(failed) != 1 || !strings.Contains(failed[0], path) || !strings.Contains(failed[0], "not found") {
		t.Errorf("%q", failed)
	}
}

// TestShortBuildIDsOfARecording opens two builds that are at a path in turn, by their build IDs as older perf
// records them: those of less than 20 bytes with zeros behind them.
func TestShortBuildIDsOfARecording(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "program")
	ids := []string{"12345678", "87654321"}
	small := elftest.Small(64, nil, 0)
	for round := range 6 {
		content := bytes.Replace(small, []byte(ids[0]), []byte(ids[round%2]), 1)
		if err := os.WriteFile(path, content, 0o777); err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			recorded := vmas.NewBuildID([]byte(id + strings.Repeat("\x00", 12)))
			o := Offline{BuildID: func(string) vmas.BuildID { return recorded }}
			file, err := o.file(mapped(path, vmas.FileID{}))
			if err == nil {
				file.Close()
			}
			if own := i == round%2; own && err != nil || !own && !errors.Is(err, fileid.ErrReplaced) {
				t.Errorf("round %d: build ID %s: %v", round, id, err)
			}
		}
	}
}

// TestMappedFilesAreToldApart opens a file by its path as if it was a mapped one: its own, that of
// another device with the same inode, and that of an inode which was freed and used again.
func TestMappedFilesAreToldApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	copyELF(t, libc(t), path)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	own := vmas.File{Path: path, FileID: identity(t, path)}
	own.Generation = uint64(fileid.Generation(f))
	device, generation := own, own
	device.Minor++
	generation.Generation++
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		t.Skip("a file system on which devices are not compared: ", err)
	}
	for range 2 {
		for _, c := range []struct {
			name string
			want *vmas.File
			err  error
		}{{"itself", &own, nil}, {"another device", &device, fileid.ErrUnlike},
			{"another generation", &generation, fileid.ErrReplaced}} {
			if own.Generation == 0 && c.want == &generation {
				continue // which this file system does not tell
			}
			file, err := process.OpenRegular(path)
			if err != nil {
				t.Fatal(err)
			}
			if file, err = proven(file, c.want, ""); err == nil {
				file.Close()
			}
			if err != c.err {
				t.Errorf("%s: %v, want %v", c.name, err, c.err)
			}
		}
	}
}

// TestRecordedMemfd: of a file in memory only a name and an inode are recorded, unless it has a build ID.
func TestRecordedMemfd(t *testing.T) {
	for _, c := range []struct {
		name      string
		id        vmas.BuildID
		generated bool
	}{
		{"/memfd:vmem (deleted)", vmas.BuildID{}, true},
		{"/memfd:library (deleted)", vmas.NewBuildID([]byte("0123456789abcdefghij")), false},
		{"/nowhere/file", vmas.BuildID{}, false},
	} {
		s := New(Config{Offline: &Offline{}})
		failed := 0
		s.hooks.Failed = func(string, error) { failed++ }
		table := vmas.NewTable("")
		table.Comm(7, 7, []byte("test"), true)
		table.Mmap(7, vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, ID: vmas.FileID{BuildID: c.id},
			Name: []byte(c.name)})
		im := s.Lookup(7, table.Space(7).Find(0x1800))
		if im == nil || im.IsGenerated() != c.generated || c.generated == (failed > 0) {
			t.Errorf("%s: generated: %v, %d failures told", c.name, im.IsGenerated(), failed)
		}
	}
}
