package explore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nobody is the user ID and group ID without any rights (the "overflow" IDs, proc(5)).
const nobody = 65534

// identity is the user as which the process goes on.
type identity struct {
	uid, gid int
	groups   []int // supplementary ones, sorted
}

// DropRoot gives up root's privileges, if the process has them, permanently and for every thread; it is
// made for Options.Drop. The process goes on as the user that called sudo, or as nobody. After an error it
// may have given up some of them, and must not go on.
func DropRoot() error {
	if os.Geteuid() != 0 {
		return nil
	}
	who, err := caller(os.Getenv)
	if err == nil {
		err = become(who)
	}
	if err != nil {
		// The text only, without the errno: callers would explain an errno as one of perf events.
		const failed = "nothing is served, as root's privileges cannot be given up"
		return fmt.Errorf("%s: %s (run unspool as another user)", failed, err.Error())
	}
	return nil
}

// caller returns the user that called sudo, from sudo's environment variables.
func caller(getenv func(string) string) (identity, error) {
	text := getenv("SUDO_UID")
	if text == "" || text == "0" {
		return identity{uid: nobody, gid: nobody}, nil
	}
	uid, err := number("SUDO_UID", text)
	if err != nil {
		return identity{}, err
	}
	gid, err := number("SUDO_GID", getenv("SUDO_GID"))
	if err != nil {
		return identity{}, err
	}
	who := identity{uid: uid, gid: gid}
	if account, err := user.LookupId(text); err == nil {
		all, _ := account.GroupIds()
		for _, group := range all {
			if g, err := strconv.Atoi(group); err == nil {
				who.groups = append(who.groups, g)
			}
		}
	}
	slices.Sort(who.groups) // the kernel lists them sorted
	who.groups = slices.Compact(who.groups)
	return who, nil
}

// number reads an ID from the environment; -1 would mean "leave it" to the kernel.
func number(name, text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || uint32(n) == ^uint32(0) {
		return 0, fmt.Errorf("%s=%q is not an ID", name, text)
	}
	return int(n), nil
}

func become(who identity) error {
	if err := noNewPrivileges(); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	// These three are for all threads, with and without cgo.
	if err := syscall.Setgroups(who.groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setresgid(who.gid, who.gid, who.gid); err != nil {
		return fmt.Errorf("setresgid %d: %w", who.gid, err)
	}
	if err := syscall.Setresuid(who.uid, who.uid, who.uid); err != nil {
		return fmt.Errorf("setresuid %d: %w", who.uid, err)
	}
	// Other processes of that user (the user "nobody" may have some) can neither trace this one nor read its
	// memory.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_DUMPABLE: %w", err)
	}
	if syscall.Setresuid(0, 0, 0) == nil {
		return errors.New("the process could take them back")
	}
	return eachThread(who)
}

// noNewPrivileges sets no_new_privs for all threads. prctl sets it for one thread only. But it is copied to
// all threads together with a seccomp filter, here one that allows everything (seccomp(2),
// SECCOMP_FILTER_FLAG_TSYNC).
func noNewPrivileges() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	program := unix.SockFprog{Len: 1, Filter: &allow}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(&allow)
	switch {
	case errno != 0:
		return errno
	case thread != 0:
		return fmt.Errorf("thread %d has a seccomp filter of its own", thread)
	}
	return nil
}

// eachThread makes sure that every thread has the identity.
func eachThread(who identity) error {
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(files) == 0 {
		return errors.New("/proc does not show the threads")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return err
		}
		if err := who.check(string(text)); err != nil {
			return fmt.Errorf("%s: %w", filepath.Dir(file), err)
		}
	}
	return nil
}

// check compares a thread's status (proc_pid_status(5)) with the identity.
func (who identity) check(status string) error {
	uid, gid := strconv.Itoa(who.uid), strconv.Itoa(who.gid)
	var groups []string
	for _, g := range who.groups {
		groups = append(groups, strconv.Itoa(g))
	}
	want := map[string]string{
		// Real, effective, saved, and of the file system.
		"Uid":        strings.Join([]string{uid, uid, uid, uid}, " "),
		"Gid":        strings.Join([]string{gid, gid, gid, gid}, " "),
		"Groups":     strings.Join(groups, " "),
		"CapPrm":     "0000000000000000",
		"CapEff":     "0000000000000000",
		"CapAmb":     "0000000000000000",
		"NoNewPrivs": "1",
	}
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.Join(strings.Fields(value), " ")
		if wanted, ok := want[name]; ok && value != wanted {
			return fmt.Errorf("%s is %q, not %q", name, value, wanted)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		return errors.New("the thread's status is incomplete")
	}
	return nil
}
