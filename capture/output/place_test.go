package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
)

// The users in the tests. The tests run as root; the tests of the program check the rules for processes of
// other users.
const (
	alice   = 1000
	mallory = 65534
)

// A stage is a directory with all kinds of files that a path may lead to.
type stage struct {
	*testing.T
	dir string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	needRoot(t)
	return &stage{t, t.TempDir()}
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) give(name string, uid int) { s.Helper(); s.must(os.Lchown(s.path(name), uid, uid)) }

func (s *stage) file(name, text string, uid int) {
	s.Helper()
	s.must(os.WriteFile(s.path(name), []byte(text), 0o600))
	s.give(name, uid)
}

func (s *stage) folder(name string, mode uint32, uid int) {
	s.Helper()
	s.must(os.Mkdir(s.path(name), 0o700))
	s.give(name, uid)
	s.must(unix.Chmod(s.path(name), mode))
}

func (s *stage) link(target, name string, uid int) {
	s.Helper()
	s.must(os.Symlink(target, s.path(name)))
	s.give(name, uid)
}

func (s *stage) holds(name, want string) {
	s.Helper()
	if b, err := os.ReadFile(s.path(name)); string(b) != want || err != nil {
		s.Errorf("%s holds %q, not %q: %v", name, b, want, err)
	}
}

// all lists all files on the stage, with the properties that must not change.
func (s *stage) all() (text string) {
	s.Helper()
	s.must(filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		target, _ := os.Readlink(path)
		text += fmt.Sprintf("%s %o %d %d %d %v\n", path, st.Mode, st.Uid, st.Ino, st.Size, target)
		return nil
	}))
	return text
}

// set makes the files of the cases.
func set(t *testing.T) *stage {
	s := newStage(t)
	s.folder("hers", 0o755, alice)
	s.file("hers/file", "old", alice)
	s.file("hers/of root", "old", 0)
	s.file("hers/planted", "old", mallory)
	s.link("file", "hers/link", alice)
	s.link("new", "hers/dangling", alice)
	s.link("link", "hers/chain", alice)
	s.link("/dev/null", "hers/null", alice)
	s.link("folder", "hers/to folder", alice)
	s.link("file", "hers/foreign", mallory)
	s.link("../theirs/file", "hers/away", alice)
	s.link("loop/x", "hers/loop", alice)
	s.must(os.Mkdir(s.path("hers/folder"), 0o755))
	s.give("hers/folder", alice)
	s.must(unix.Mkfifo(s.path("hers/fifo"), 0o600))
	s.must(unix.Mknod(s.path("hers/device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	s.must(unix.Mknod(s.path("hers/socket"), unix.S_IFSOCK|0o600, 0))

	s.folder("sticky", 0o1777, 0)
	s.link("../hers/file", "sticky/hers", alice)
	s.link("../hers/file", "sticky/foreign", mallory)
	s.link("../hers/new", "sticky/foreign dangling", mallory)
	s.link("../hers", "sticky/directory", alice)
	s.link("../hers", "sticky/foreign directory", mallory)
	s.link(s.path("hers"), "sticky/absolute", alice)
	s.file("sticky/planted", "", mallory)

	s.folder("theirs", 0o755, mallory)
	s.file("theirs/file", "old", alice)
	s.folder("theirs sticky", 0o1777, mallory)
	s.folder("open", 0o777, alice)
	s.link("../hers/file", "open/link", alice)
	s.folder("group", 0o775, alice)
	s.must(os.Chown(s.path("group"), alice, mallory))
	s.folder("group sticky", 0o1775, alice)
	s.must(os.Chown(s.path("group sticky"), alice, mallory))
	s.link("../hers/file", "group/link", alice)
	s.link("../hers/file", "group sticky/link", alice)
	return s
}

func TestPlaces(t *testing.T) {
	plain := user{uid: alice, gid: -1, etc: "/etc"}
	root := user{root: true, gid: -1, etc: "/etc"}
	sudo := user{root: true, uid: alice, gid: alice, sudo: true, etc: "/etc"}
	for _, c := range []struct {
		path  string
		user  user
		lands string // the file that is replaced or made; "" where it is refused
		says  string
	}{
		{"hers/new", plain, "hers/new", ""},
		{"hers/file", plain, "hers/file", ""},
		{"hers/of root", plain, "hers/of root", ""},
		{"hers/../hers/./file", plain, "hers/file", ""},
		{"hers/link", plain, "hers/file", ""},
		{"hers/dangling", plain, "hers/new", ""},
		{"hers/link", sudo, "hers/file", ""},
		{"sticky/new", plain, "sticky/new", ""},
		{"sticky/directory/new", plain, "hers/new", ""},
		{"sticky/directory/link", plain, "hers/file", ""},
		{"sticky/absolute/new", plain, "hers/new", ""},
		{"sticky/new", root, "sticky/new", ""},
		{"sticky/new", sudo, "sticky/new", ""},
		{"hers/new", sudo, "hers/new", ""},
		{"theirs/new", plain, "theirs/new", ""}, // the kernel decides
		{"open/new", plain, "open/new", ""},
		{"group/new", plain, "group/new", ""},
		{"group sticky/new", sudo, "group sticky/new", ""},
		{strings.Repeat("x", 255), root, strings.Repeat("x", 255), ""},

		{"", root, "", "is a directory"}, // the stage itself
		{"none/new", plain, "", "open .*none/new: no such file"},
		{"hers/file/new", plain, "", "not a directory"},
		{"hers/folder", plain, "", "is a directory"},
		{"hers/folder/", plain, "", "is a directory"},
		{"hers/folder/..", plain, "", "is a directory"},
		{"hers/to folder", plain, "", "is a directory"},
		{"hers/fifo", plain, "", "fifo is a FIFO"},
		{"hers/device", plain, "", "device is a device"},
		{"hers/socket", plain, "", "socket is a socket"},
		{"hers/planted", plain, "", "planted belongs to uid 65534"},
		{"hers/planted", sudo, "", "planted belongs to uid 65534"},
		{"hers/foreign", plain, "", "foreign is a link that belongs to uid 65534"},
		{"hers/chain", plain, "", "link is a link that a link leads to"},
		{"hers/null", plain, "", "/dev/null is a device"},
		{"hers/loop/x", plain, "", "too many levels"},
		{"hers/away", sudo, "", "theirs/file: the directory belongs to uid 65534"},
		{"sticky/hers", plain, "", "a directory that belongs to uid 0"},
		{"sticky/hers", sudo, "", "a directory that everybody may write"},
		{"open/link", plain, "", "a directory that everybody may write"},
		{"group/link", plain, "", "a directory that group 65534 may write"},
		{"group sticky/link", plain, "", "a directory that group 65534 may write"},
		{"sticky/foreign", root, "", "foreign is a link that belongs to uid 65534"},
		{"sticky/foreign dangling", root, "", "dangling is a link that belongs to uid 65534"},
		{"sticky/foreign directory/new", root, "", `"foreign directory" is a link that belongs to uid 65534`},
		{"sticky/foreign directory/new", plain, "", `"foreign directory" is a link that belongs to`},
		{"sticky/directory/new", root, "", `"directory" is a link that belongs to uid 1000`},
		{"sticky/planted", root, "", "planted belongs to uid 65534"},
		{"hers/new", root, "", "the directory belongs to uid 1000"},
		{"theirs/new", sudo, "", "the directory belongs to uid 65534"},
		{"theirs sticky/new", sudo, "", "the directory belongs to uid 65534"},
		{"open/new", sudo, "", "everybody may write the directory"},
		{"group/new", sudo, "", "group 65534 may write the directory"},
		{strings.Repeat("x", 256), root, "", "file name too long"},
	} {
		name := fmt.Sprintf("%.40s by uid %d", c.path, c.user.uid)
		if c.user.root {
			name += ", root"
		}
		t.Run(name, func(t *testing.T) {
			s := set(t)
			before := s.all()
			err := s.write(c.user, c.path, "new")
			if c.lands != "" {
				s.must(err)
				s.holds(c.lands, "new")
				// Nothing else has changed.
				s.must(os.Remove(s.path(c.lands)))
				before = without(before, s.path(c.lands))
			} else if err == nil || !matches(c.says, err.Error()) {
				t.Errorf("%v, want %q", err, c.says)
			} else if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %q", err)
			}
			if after := s.all(); after != before {
				t.Errorf("there was\n%sand is\n%s", before, after)
			}
		})
	}
}

// write makes an output as the user.
func (s *stage) write(u user, name, text string) error {
	p, err := u.find(s.dir + "/" + name)
	if err != nil {
		return err
	}
	defer p.Close()
	f, err := p.Create()
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Keep()
}

// without is the listing without one file, and without the sizes of directories, which grow.
func without(listing, path string) (text string) {
	for line := range strings.Lines(listing) {
		if !strings.HasPrefix(line, path+" ") {
			text += line
		}
	}
	return text
}

// Guessing a temporary name is of no use to others.
func TestTemporaryNameIsTaken(t *testing.T) {
	s := newStage(t)
	names := []string{"link", "dangling", "file", "free"}
	s.file("target", "old", 0)
	s.link("target", "link", mallory)
	s.link("missing", "dangling", mallory)
	s.file("file", "theirs", mallory)
	defer func(f func() string) { temporaryName = f }(temporaryName)
	temporaryName = func() string { name := names[0]; names = names[1:]; return name }
	s.must(s.write(current(), "out", "new"))
	s.holds("out", "new")
	s.holds("target", "old")
	s.holds("file", "theirs")
	if _, err := os.Lstat(s.path("missing")); err == nil {
		t.Error("the link was followed")
	}
}

func TestFilesAreTheUsers(t *testing.T) {
	s := newStage(t)
	for _, c := range []struct {
		user     user
		uid, gid uint32
	}{
		{user{root: true, gid: -1, etc: "/etc"}, 0, 0},
		{user{root: true, uid: alice, gid: 1234, sudo: true, etc: "/etc"}, alice, 1234},
		{user{root: true, uid: alice, gid: -1, sudo: true, etc: "/etc"}, alice, 0},
	} {
		s.file("out", "old", int(c.uid))
		s.must(os.Chmod(s.path("out"), 0o666))
		s.must(s.write(c.user, "out", "new"))
		var st unix.Stat_t
		s.must(unix.Stat(s.path("out"), &st))
		if st.Uid != c.uid || st.Gid != c.gid || st.Mode&0o7777 != 0o600 {
			t.Errorf("%+v: uid %d, gid %d, mode %o", c.user, st.Uid, st.Gid, st.Mode)
		}
	}
}

func TestDiscardedFilesLeaveNothing(t *testing.T) {
	s := newStage(t)
	s.file("out", "old", 0)
	p, err := Find(s.path("out"))
	s.must(err)
	defer p.Close()
	f, err := p.Create()
	s.must(err)
	if hidden, _ := filepath.Glob(s.path(".*")); len(hidden) != 1 || len(filepath.Base(hidden[0])) > 20 {
		t.Errorf("temporary: %v", hidden)
	}
	if f.Name() != s.path("out") {
		t.Errorf("errors would tell of %s", f.Name())
	}
	f.Discard()
	f.Discard()
	if hidden, _ := filepath.Glob(s.path(".*")); hidden != nil {
		t.Errorf("left: %v", hidden)
	}
	s.must(p.Remove()) // nothing was kept
	s.holds("out", "old")
}

// A file that appears at the place after it was found is refused or replaced, never followed.
func TestPlaceIsLookedAtAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(s *stage, name string)
		says string
	}{
		{"link", func(s *stage, name string) { s.link("target", name, mallory) }, "belongs to uid 65534"},
		{"own link", func(s *stage, name string) { s.link("target", name, 0) }, "has become a link"},
		{"file", func(s *stage, name string) { s.file(name, "theirs", mallory) }, "belongs to uid 65534"},
		{"FIFO", func(s *stage, name string) { s.must(unix.Mkfifo(s.path(name), 0o600)) }, "is a FIFO"},
	} {
		for _, keep := range []func(*File) error{(*File).Keep, (*File).KeepOld} {
			s := newStage(t)
			s.file("target", "old", 0)
			p, err := Find(s.path("out"))
			s.must(err)
			f, err := p.Create()
			s.must(err)
			c.put(s, "out")
			if err := keep(f); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.name, err)
			}
			f.Discard()
			s.holds("target", "old")
			if left, _ := filepath.Glob(s.path("*")); len(left) != 2 {
				t.Errorf("%s: left %v", c.name, left)
			}
			p.Close()
		}
	}
}

func TestOldFileIsKept(t *testing.T) {
	full := func(s *stage) { s.file("out", "first", 0) }
	empty := func(s *stage) { s.file("out", "", 0) }
	theirs := func(s *stage) { s.file("out.old", "theirs", mallory) }
	for _, c := range []struct {
		name string
		put  []func(s *stage)
		old  string // what out.old holds then; "" for nothing
		says string // "" where the output takes its place
	}{
		{"nothing there", nil, "", ""},
		{"empty", []func(*stage){empty}, "", ""},
		{"empty, and nobody minds the other", []func(*stage){empty, theirs}, "theirs", ""},
		{"full", []func(*stage){full}, "first", ""},
		{"full, twice", []func(*stage){full, func(s *stage) { s.file("out.old", "before", 0) }}, "first", ""},
		{"own link", []func(*stage){full, func(s *stage) { s.link("target", "out.old", 0) }}, "first", ""},
		{"foreign link", []func(*stage){full, func(s *stage) { s.link("target", "out.old", mallory) }}, "",
			"out.old is a link that belongs to uid 65534"},
		{"foreign file", []func(*stage){full, theirs}, "", "out.old belongs to uid 65534"},
		{"directory", []func(*stage){full, func(s *stage) { s.folder("out.old", 0o700, 0) }}, "",
			"out.old: is a directory"},
		{"socket", []func(*stage){full, func(s *stage) {
			s.must(unix.Mknod(s.path("out.old"), unix.S_IFSOCK|0o600, 0))
		}}, "", "out.old is a socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			s.file("target", "target", 0)
			for _, put := range c.put {
				put(s)
			}
			before := s.all()
			p, err := Find(s.path("out"))
			s.must(err)
			defer p.Close()
			asked := p.CheckOld("")
			f, err := p.Create()
			s.must(err)
			for _, err := range []error{asked, f.KeepOld()} {
				if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %q", err, c.says)
				}
			}
			if f.Discard(); c.says != "" {
				if after := s.all(); after != before {
					t.Errorf("there was\n%sand is\n%s", before, after)
				}
				return
			}
			if b, _ := os.ReadFile(s.path("out.old")); string(b) != c.old {
				t.Errorf("out.old holds %q", b)
			}
			s.holds("out", "")
			s.holds("target", "target")
			s.must(p.Remove())
			if _, err := os.Lstat(s.path("out")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("removed: %v", err)
			}
		})
	}
}

// The file is written into the directory that was found, even if that was moved.
func TestPlaceFollowsItsDirectory(t *testing.T) {
	s := newStage(t)
	s.folder("dir", 0o755, 0)
	s.folder("trap", 0o755, 0)
	p, err := Find(s.path("dir/out"))
	s.must(err)
	defer p.Close()
	beside, err := p.Beside(".perf.data")
	s.must(err)
	defer beside.Close()
	s.must(os.Rename(s.path("dir"), s.path("moved")))
	s.link("trap", "dir", 0)
	for _, p := range []*Place{p, beside} {
		f, err := p.Create()
		s.must(err)
		_, err = f.WriteString(p.Path())
		s.must(err)
		s.must(f.Keep())
		if b, err := os.ReadFile(p.Input()); string(b) != p.Path() {
			t.Errorf("%s: %q, %v", p.Input(), b, err)
		}
	}
	s.must(beside.Remove())
	if left, _ := filepath.Glob(s.path("*/*")); len(left) != 1 || left[0] != s.path("moved/out") {
		t.Errorf("%v", left)
	}
}

func TestPlaceBesideFollowsTheRules(t *testing.T) {
	s := newStage(t)
	s.file("out.theirs", "theirs", mallory)
	s.link("target", "out.link", mallory)
	s.link("target", "out.ours", 0)
	p, err := Find(s.path("out"))
	s.must(err)
	defer p.Close()
	for suffix, says := range map[string]string{
		".theirs": "out.theirs belongs to uid 65534", ".link": "out.link is a link that belongs to uid 65534",
		strings.Repeat("x", 253): "name too long",
	} {
		if _, err := p.Beside(suffix); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.10s: %v", suffix, err)
		}
	}
	beside, err := p.Beside(".ours")
	s.must(err)
	defer beside.Close()
	f, err := beside.Create()
	s.must(err)
	s.must(f.Keep())
	s.holds("target", "")
}

func TestInputIsNoOutput(t *testing.T) {
	s := newStage(t)
	s.file("in", "in", 0)
	s.file("other", "other", 0)
	s.link("in", "link", 0)
	s.must(os.Link(s.path("in"), s.path("hard link")))
	s.must(os.Link(s.path("in"), s.path("other.old")))
	for _, c := range []struct {
		name      string
		same, old bool
	}{
		{"in", true, false},
		{"link", true, false},
		{"hard link", true, false},
		{"new", false, false},
		{"other", false, true},
	} {
		p, err := Find(s.path(c.name))
		s.must(err)
		if err := p.CheckInput(s.path("in")); (err != nil) != c.same {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := p.CheckOld(s.path("in")); (err != nil) != c.old {
			t.Errorf("%s as .old: %v", c.name, err)
		}
		if err := p.CheckInput(filepath.Dir(s.path("in"))); err == nil { // a recording that is a directory
			t.Errorf("%s is written into the directory that is the input", c.name)
		}
		p.Close()
	}
	f, err := os.OpenFile(s.path("in"), os.O_WRONLY|os.O_APPEND, 0)
	s.must(err)
	defer f.Close()
	p, err := Find(fmt.Sprintf("/dev/fd/%d", f.Fd()))
	s.must(err)
	defer p.Close()
	if p.CheckInput(s.path("in")) == nil || p.CheckInput(s.path("other")) != nil {
		t.Error("a descriptor for the input is not told from others")
	}
}

// An attacker who exchanges a link that may be followed for one that may not, as fast as possible, does not
// get the wrong one followed.
func TestExchangedDirectory(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(s *stage)
	}{
		{"directory", func(s *stage) { s.folder("dir", 0o755, 0) }},
		{"link", func(s *stage) { s.folder("ours", 0o755, 0); s.link("ours", "dir", 0) }},
	} {
		t.Run(c.name, func(t *testing.T) { exchange(t, c.put) })
	}
}

// exchange writes below dir, which put puts there, while it is exchanged with another user's link.
func exchange(t *testing.T, put func(s *stage)) {
	s := newStage(t)
	put(s)
	s.folder("victim", 0o755, 0)
	s.file("victim/out", "old", 0)
	s.link("victim", "trap", mallory)
	done := make(chan bool)
	go func() {
		defer close(done)
		for range 20000 {
			unix.Renameat2(unix.AT_FDCWD, s.path("dir"), unix.AT_FDCWD, s.path("trap"), unix.RENAME_EXCHANGE)
		}
	}()
	written, refused := 0, 0
	for racing := true; racing; {
		select {
		case <-done:
			racing = false
		default:
		}
		var r *refusal
		switch err := s.write(current(), "dir/out", "new"); {
		case err == nil:
			written++
		case errors.As(err, &r):
			refused++
		default:
			// Directory for the first look, no link for the second.
			if !errors.Is(err, unix.ENOTDIR) {
				t.Fatal(err)
			}
		}
	}
	s.holds("victim/out", "old")
	if left, _ := filepath.Glob(s.path("victim/.*")); left != nil {
		t.Errorf("left: %v", left)
	}
	if written == 0 || refused == 0 {
		t.Skipf("%d written, %d refused: the exchange was not met", written, refused)
	}
}

func TestLinksOfProcfsAreFollowed(t *testing.T) {
	s := newStage(t)
	dir, err := os.Open(s.dir)
	s.must(err)
	defer dir.Close()
	for i, path := range []string{
		"/proc/self/root" + s.dir,
		fmt.Sprintf("/proc/%d/cwd/../%s", os.Getpid(), relative(t, s.dir)),
		fmt.Sprintf("/proc/self/fd/%d", dir.Fd()),
		fmt.Sprintf("/dev/fd/%d/.", dir.Fd()),
	} {
		name := fmt.Sprint("out", i)
		p, err := Find(path + "/" + name)
		s.must(err)
		f, err := p.Create()
		s.must(err)
		s.must(f.Keep())
		s.holds(name, "")
		p.Close()
	}
}

// relative is the path from the parent of the working directory.
func relative(t *testing.T, path string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	rel, err := filepath.Rel(filepath.Dir(here), path)
	if err != nil {
		t.Fatal(err)
	}
	return rel
}

func TestManyLinks(t *testing.T) {
	s := newStage(t)
	s.folder("0", 0o755, 0)
	for i := range 41 {
		s.link(fmt.Sprint(i), fmt.Sprint(i+1), 0)
	}
	s.must(s.write(current(), "40/out", "new"))
	if err := s.write(current(), "41/out", "new"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("41 links: %v", err)
	}
}

func TestDescriptorsStayOpen(t *testing.T) {
	open := func() int {
		entries, _ := os.ReadDir("/proc/self/fd")
		return len(entries)
	}
	s := set(t)
	use := func() {
		for _, name := range []string{
			"hers/new", "hers/file", "hers/link", "hers/chain", "hers/foreign", "hers/fifo", "hers/away",
			"hers/folder", "hers/loop/x", "none/x", "sticky/directory/new", "open/link",
		} {
			s.write(user{uid: alice, gid: -1, etc: "/etc"}, name, "new")
			s.write(current(), name, "new")
		}
		p, err := Find("/dev/null")
		s.must(err)
		p.Close()
	}
	use()
	before := open()
	for range 5 {
		use()
	}
	if !lane.Soon(func() bool { return open() <= before }) { // some are being closed
		t.Errorf("%d descriptors are open, %d before", open(), before)
	}
}
