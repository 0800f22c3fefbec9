package output

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUser(t *testing.T) {
	for _, c := range []struct {
		name     string
		euid     int
		uid, gid string // of sudo
		want     user
	}{
		{"plain user", 1000, "", "", user{uid: 1000, gid: -1}},
		{"plain user with a variable", 1000, "0", "0", user{uid: 1000, gid: -1}},
		{"root", 0, "", "", user{root: true, gid: -1}},
		{"sudo", 0, "1000", "1001", user{root: true, uid: 1000, gid: 1001, sudo: true}},
		{"sudo without a group", 0, "1000", "", user{root: true, uid: 1000, gid: -1, sudo: true}},
		{"sudo of root", 0, "0", "0", user{root: true, sudo: true}},
		{"no number", 0, "-1", "0", user{root: true, gid: -1}},
		{"too large", 0, "4294967296", "0", user{root: true, gid: -1}},
	} {
		c.want.etc = "/etc"
		env := map[string]string{"SUDO_UID": c.uid, "SUDO_GID": c.gid}
		if got := newUser(c.euid, func(name string) string { return env[name] }); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestPrivateGroups(t *testing.T) {
	etc := t.TempDir()
	for name, text := range map[string]string{
		"passwd": `root:x:0:0::/root:/bin/sh
toor:x:0:0::/root:/bin/sh
alice:x:1000:1000::/home/alice:/bin/sh
bob:x:1001:1001::/home/bob:/bin/sh
carol:x:1002:1006::/home/carol:/bin/sh
+::::::
`,
		"group": `root:x:0:
alice:x:1000:
bob:x:1001:alice
alice:x:1002:alice,root
alice:x:1003:alice,bob
staff:x:1004:alice
alice:x:1005:
shared:x:1005:
alice:x:1006:
toor:x:1007:toor
broken
alice:x:1008`,
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	alice := user{uid: 1000, etc: etc}
	for _, c := range []struct {
		name string
		user user
		gid  uint32
		want bool
	}{
		{"her own", alice, 1000, true},
		{"root's", alice, 0, true},
		{"root's, for root", user{root: true, etc: etc}, 0, true},
		{"hers, for root without sudo", user{root: true, etc: etc}, 1000, false},
		{"another's that she is in", alice, 1001, false},
		{"with herself and root as members", alice, 1002, true},
		{"with another member", alice, 1003, false},
		{"of another name", alice, 1004, false},
		{"of two names", alice, 1005, false},
		{"another's primary group", alice, 1006, false},
		{"of root's other name", alice, 1007, true},
		{"short line", alice, 1008, true},
		{"unknown", alice, 2000, false},
		{"no files", user{uid: 1000, etc: filepath.Join(etc, "none")}, 1000, false},
	} {
		if got := c.user.private(c.gid); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestWhoMayWriteADirectory(t *testing.T) {
	needRoot(t)
	u := user{root: true, etc: "/etc"}
	if !u.private(0) {
		t.Skip("the group root has members here")
	}
	for _, c := range []struct {
		name string
		mode uint32
		gid  int
		acl  bool
		want string
	}{
		{"the owner", 0o755, 65534, false, ""},
		{"everybody", 0o757, 0, false, "everybody"},
		{"everybody, sticky", 0o1777, 0, false, "everybody"},
		{"another group", 0o775, 65534, false, "group 65534"},
		{"a private group", 0o775, 0, false, ""},
		{"a private group and a list", 0o775, 0, true, "others (see getfacl)"},
		{"a list that the mode masks", 0o755, 0, true, ""},
	} {
		dir := t.TempDir()
		if c.acl {
			grant(t, dir, 65534)
		}
		if err := os.Chown(dir, 0, c.gid); err != nil {
			t.Fatal(err)
		}
		if err := unix.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		if got := u.others(fd, &st); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		unix.Close(fd)
	}
}

// grant lets a user write a directory by an access control list: see include/uapi/linux/posix_acl_xattr.h.
func grant(t *testing.T, dir string, uid uint32) {
	t.Helper()
	list := binary.LittleEndian.AppendUint32(nil, 2) // version
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{
		{0x01, 7, ^uint32(0)}, {0x02, 7, uid},
		{0x04, 7, ^uint32(0)}, {0x10, 7, ^uint32(0)}, {0x20, 5, ^uint32(0)},
	} {
		list = binary.LittleEndian.AppendUint16(list, e.tag)
		list = binary.LittleEndian.AppendUint16(list, e.perm)
		list = binary.LittleEndian.AppendUint32(list, e.id)
	}
	if err := unix.Setxattr(dir, "system.posix_acl_access", list, 0); err != nil {
		t.Skipf("access control lists: %v", err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
}
