package packages

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi/elf"
	"unspool/testdata/programs"
	"unspool/vmas"
)

// system is a root with a distribution and packages with lists of files.
func system(t *testing.T, release string, lists map[string]string) *System {
	t.Helper()
	root := t.TempDir()
	s := &System{Root: root}
	if release != "" {
		s.put(t, "/usr/lib/os-release", release)
	}
	for name, list := range lists {
		s.put(t, "/var/lib/dpkg/info/"+name, list)
	}
	return s
}

// put writes a file of the system.
func (s *System) put(t *testing.T, path, text string) {
	t.Helper()
	path = filepath.Join(s.Root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFilesOfTheDistribution(t *testing.T) {
	for path, want := range map[string]bool{
		"/usr/bin/cc1": true, "/lib/x86_64-linux-gnu/libc.so.6": true, "/lib64/ld.so": true, "/bin/sh": true,
		"/usr/local/bin/own": false, "/opt/own": false, "/home/me/usr/bin/own": false, "/library": false,
		"[vdso]": false,
	} {
		if got := IsDistributed(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// A file has one of three names in a package's list, as /usr was merged or not when the package was built.
func TestOwnersWhereUsrIsMerged(t *testing.T) {
	s := system(t, "", map[string]string{"old.list": "/.\n/bin/old\n", "new.list": "/.\n/usr/bin/new\n"})
	paths := []string{"/bin/old", "/usr/bin/old", "/usr/bin/new", "/bin/new", "/bin/ol", "bin/old"}
	want := []string{"old", "old", "new", "new", "", ""}
	if got := owners(filepath.Join(s.Root, "var/lib/dpkg/info"), paths); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestInstall(t *testing.T) {
	lists := map[string]string{
		"libc6:amd64.list":   "/.\n/lib\n/lib/x86_64-linux-gnu/libc.so.6\n",
		"gcc-12.list":        "/.\n/usr/bin/cc1\n/usr/bin/x$(reboot)\n",
		"x$(reboot).list":    "/.\n/usr/bin/evil\n",
		"gcc-12.md5sums":     "/.\n/usr/bin/other\n",
		"libisl23:i386.list": "/.\n/usr/lib/libisl.so\n",
	}
	files := []File{
		{"/usr/lib/x86_64-linux-gnu/libc.so.6", []byte{0xab, 0xcd, 0xef}}, {"/bin/cc1", nil}, {"/usr/bin/cc1", nil},
		{"/usr/bin/evil", nil}, {"/usr/bin/other", []byte{1}}, {"/opt/own", nil}, {"/usr/bin/cc", nil},
		{"evil\n/usr/bin/cc1", nil},
	}
	for name, c := range map[string]struct{ release, want string }{
		"Debian": {"ID=debian\n", "`apt update && apt install libc6-dbg gcc-12-dbgsym`"},
		"Mint": {"NAME=Mint\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n",
			"`apt update && apt install libc6-dbg gcc-12-dbgsym`"},
		"Rocky": {"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
			"`dnf --enablerepo='*debug*' install /usr/lib/debug/.build-id/ab/cdef.debug`"},
		"openSUSE": {"ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n",
			"`zypper install -C 'debuginfo(build-id)=abcdef'`"},
		"Arch": {"ID=arch\n", ""},
		"none": {"", ""},
	} {
		s := system(t, c.release, lists)
		s.put(t, "/etc/apt/sources.list", "deb http://one/debian-debug sid-debug main\ndeb http://ddebs.one/ sid main\n")
		if got := s.Install(files); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := system(t, "ID=debian\n", lists).Install(files[3:]); got != "" {
		t.Errorf("of files in no package: %q", got)
	}
}

// A file is a system's if it is the one that was recorded.
func TestHas(t *testing.T) {
	content, err := os.ReadFile(programs.Build(t, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	s := system(t, "", nil)
	path := filepath.Join(s.Root, "program")
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
	id, err := elf.ReadBuildID(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(id)
	other[0]++
	for _, c := range []struct {
		path    string
		buildID []byte
		inode   uint64
		want    bool
	}{
		{"/program", id, 0, true}, {"/program", other, st.Ino, false}, {"/program", nil, st.Ino, true},
		{"/program", nil, st.Ino + 1, false}, {"/program", nil, 0, true}, {"/none", nil, 0, false},
		{"/program (deleted)", id, 0, true}, {"[vdso]", nil, 0, false},
	} {
		if got := s.Has(nil, c.path, c.buildID, vmas.FileID{Inode: c.inode}); got != c.want {
			t.Errorf("%s, %x, %d: %v", c.path, c.buildID, c.inode, got)
		}
	}
}

func TestOwners(t *testing.T) {
	s := system(t, "", map[string]string{"libc6:amd64.list": "/.\n/lib/libc.so.6\n", "odd.list": "/.\n/usr/bin/odd\n"})
	status := "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\n\nPackage: libc6-dev\nVersion: 3\n"
	if err := os.WriteFile(filepath.Join(s.Root, "/var/lib/dpkg/status"), []byte(status), 0o600); err != nil {
		t.Fatal(err)
	}
	got := s.Owners([]string{"/usr/lib/libc.so.6", "/bin/odd", "/none"})
	if want := []string{"libc6 2.36-9", "odd", ""}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := system(t, "", nil).Owners([]string{"/usr/bin/sh"}); got[0] != "" {
		t.Errorf("of a root without a package manager: %q", got)
	}
}
