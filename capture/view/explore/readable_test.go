package explore

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"

	"unspool/unwind/image/debugfile"
)

// stranger is a user who runs no tests.
const stranger = 65531

func TestModes(t *testing.T) {
	account, err := user.LookupId("0") // an account that every system has, for its group
	if err != nil {
		t.Skip(err)
	}
	gid, _ := strconv.ParseUint(account.Gid, 10, 32)
	root, other := owner{uid: 0, known: true}, owner{uid: stranger, known: true}
	for _, c := range []struct {
		name string
		inode
		owner
		right uint32
		want  bool
	}{
		{"own", inode{stranger, 1, 0o400}, other, mayRead, true},
		{"own, closed to its owner", inode{stranger, 1, 0o044}, other, mayRead, false},
		{"own directory", inode{stranger, 1, 0o100}, other, maySearch, true},
		{"own directory, listing only", inode{stranger, 1, 0o600}, other, maySearch, false},
		{"everybody's", inode{0, 1, 0o004}, other, mayRead, true},
		{"everybody's directory", inode{0, 1, 0o001}, other, maySearch, true},
		{"root's", inode{0, 1, 0o640}, other, mayRead, false},
		{"root's directory", inode{0, 1, 0o750}, other, maySearch, false},
		{"of a group that is not the owner's", inode{0, 12345, 0o440}, other, mayRead, false},
		{"root reads all", inode{stranger, 1, 0}, root, mayRead, true},
		{"unknown owner, everybody's", inode{0, 0, 0o004}, owner{}, mayRead, true},
		{"unknown owner is not root", inode{0, 0, 0o440}, owner{}, mayRead, false},
	} {
		if got := c.allows(c.owner, c.right); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if !member(0, uint32(gid)) || member(stranger-7, uint32(gid)) {
		t.Errorf("who is in group %d", gid)
	}
	groups.Store(uint32(4711), []string{"12345"})
	in := owner{uid: 4711, known: true}
	if !(inode{0, 12345, 0o040}).allows(in, mayRead) || (inode{0, 12345, 0o004}).allows(in, mayRead) {
		t.Error("who is in the group has what the group has, and no more")
	}
}

// public returns a directory that everybody may search, as t.TempDir is not.
func public(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "unspool-explore")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for at := dir; at != "/"; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err != nil || info.Mode()&1 == 0 {
			t.Skipf("%s is not for everybody", at)
		}
	}
	return dir
}

// put writes a file, with a mode that no umask changes.
func put(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600),
		os.Chmod(path, mode))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRoute(t *testing.T) {
	dir := public(t)
	open := put(t, filepath.Join(dir, "a/b/open.c"), "", 0o644)
	shut := put(t, filepath.Join(dir, "a/b/shut.c"), "", 0o640)
	below := put(t, filepath.Join(dir, "a/shut/open.c"), "", 0o644)
	if err := os.Chmod(filepath.Dir(below), 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("a/shut", link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{open: true, shut: false, below: false, link + "/open.c": false} {
		f, err := debugfile.Open("/", path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err := routeTo(f)
		if err != nil || len(r) < 4 {
			t.Fatalf("%s: %v, %v", path, r, err)
		}
		if got := r.readable(owner{uid: stranger, known: true}); got != want {
			t.Errorf("%s: %v", path, got)
		}
		if !r.readable(owner{uid: 0, known: true}) {
			t.Errorf("%s: not for root", path)
		}
	}
}

// TestRouteOfWhatIsGone opens a file and replaces it by another one, which everybody may read.
func TestRouteOfWhatIsGone(t *testing.T) {
	dir := public(t)
	path := put(t, filepath.Join(dir, "d/a.c"), "", 0o600)
	f, err := debugfile.Open("/", path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if r, err := routeTo(f); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v, %v", r, err)
	}
	// This is the kernel's name for a file that was removed.
	put(t, path+" (deleted)", "", 0o644)
	if r, err := routeTo(f); !errors.Is(err, errMoved) {
		t.Errorf("replaced: %v, %v", r, err)
	}
}

func TestOwnerAt(t *testing.T) {
	dir := public(t)
	path := put(t, filepath.Join(dir, "d/tool"), "", 0o644)
	for _, link := range [][2]string{{"tool", "d/link"}, {"d", "e"}} {
		if err := os.Symlink(link[0], filepath.Join(dir, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	if uid, err := ownerAt(path); err != nil || uid != uint32(os.Geteuid()) {
		t.Errorf("%d, %v", uid, err)
	}
	for _, linked := range []string{"d/link", "e/tool"} {
		if uid, err := ownerAt(filepath.Join(dir, linked)); err == nil {
			t.Errorf("%s: %d", linked, uid)
		}
	}
	if _, err := ownerAt(filepath.Join(dir, "none")); !missing(err) {
		t.Error(err)
	}
}
