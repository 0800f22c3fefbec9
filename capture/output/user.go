package output

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// user is who runs unspool.
type user struct {
	root bool   // the effective user is root
	uid  uint32 // of the user, which is SUDO_UID's under sudo
	gid  int    // the group of new files under sudo; -1 to leave it as it is
	sudo bool
	etc  string // the directory of passwd and group
}

// current is the user who runs this process.
func current() user { return newUser(os.Geteuid(), os.Getenv) }

func newUser(euid int, env func(string) string) user {
	u := user{root: euid == 0, uid: uint32(euid), gid: -1, etc: "/etc"}
	if uid, err := strconv.ParseUint(env("SUDO_UID"), 10, 32); u.root && err == nil {
		u.uid, u.sudo = uint32(uid), true
		if gid, err := strconv.ParseUint(env("SUDO_GID"), 10, 31); err == nil {
			u.gid = int(gid)
		}
	}
	return u
}

// trusts reports whether files of uid are trusted: those of the user and root are.
func (u user) trusts(uid uint32) bool { return uid == 0 || uid == u.uid }

// owns reports whether files of uid are the user's own. Under sudo, those of root are as well.
func (u user) owns(uid uint32) bool { return uid == u.uid || u.root && uid == 0 }

// others returns who besides the user and root may write a directory, "" if nobody may. It does not check the
// owner.
func (u user) others(dir int, st *unix.Stat_t) string {
	switch {
	case st.Mode&unix.S_IWOTH != 0:
		return "everybody"
	case st.Mode&unix.S_IWGRP == 0: // with an access control list, these bits are the most that it can grant
		return ""
	case hasACL(dir):
		return "others (see getfacl)"
	case !u.private(st.Gid):
		return fmt.Sprintf("group %d", st.Gid)
	}
	return ""
}

// hasACL reports whether a directory has an access control list, or may have one.
func hasACL(dir int) bool {
	// A descriptor that is O_PATH gives no attributes by itself.
	_, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", dir), "system.posix_acl_access", nil)
	return !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP)
}

// private reports whether nobody but the user and root is in a group.
func (u user) private(gid uint32) bool {
	var names []string // of the user and root
	for _, account := range u.entries("passwd") {
		if id, ok := number(account, 2); ok && u.trusts(id) {
			names = append(names, account[0])
		} else if primary, ok := number(account, 3); ok && primary == gid {
			return false
		}
	}
	found := false
	for _, group := range u.entries("group") {
		if id, ok := number(group, 2); !ok || id != gid {
			continue
		}
		found = true
		members := []string{group[0]} // the name itself follows the same rule
		if len(group) > 3 && group[3] != "" {
			members = append(members, strings.Split(group[3], ",")...)
		}
		for _, m := range members {
			if !slices.Contains(names, m) {
				return false
			}
		}
	}
	return found
}

// entries are the lines of passwd(5) or group(5), each in its fields.
func (u user) entries(file string) (lines [][]string) {
	text, _ := os.ReadFile(filepath.Join(u.etc, file))
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.Split(strings.TrimSpace(line), ":"))
	}
	return lines
}

// number is the ID in a field of an entry.
func number(entry []string, field int) (uint32, bool) {
	if field >= len(entry) {
		return 0, false
	}
	n, err := strconv.ParseUint(entry[field], 10, 32)
	return uint32(n), err == nil
}
