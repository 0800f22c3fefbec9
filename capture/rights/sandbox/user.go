package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// nobody is the overflow user and group ID (proc(5)), which own nothing.
const nobody = 65534

// firstUnused is the first of the user IDs that nobody is to have: systemd, which lists who uses which, leaves out
// those with the highest bit (https://systemd.io/UIDS-GIDS).
const firstUnused = 1 << 31

// noUser is a user ID that no other process has, so that none may stop, trace, pin or end this one but root: services
// may be nobody, too. In another PID namespace, another unspool may have it. In a user namespace that lacks such IDs,
// it is nobody's.
func noUser() int {
	uid := firstUnused + os.Getpid()
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return nobody
	}
	for line := range strings.Lines(string(text)) {
		var inside, outside, n int
		if got, _ := fmt.Sscan(line, &inside, &outside, &n); got == 3 && uid >= inside && uid-inside < n {
			return uid
		}
	}
	return nobody
}

// identity is the user as which the process goes on.
type identity struct {
	uid, gid int
	groups   []int  // supplementary ones, sorted
	home     string // "" if there is no such account
	sudo     bool   // it is who called sudo
}

// DropRoot gives up root's privileges, if the process has them, permanently and for every thread. The process
// goes on as the user that called sudo, or as nobody. After an error it may have given up some of them, and
// must not go on.
func DropRoot() error {
	if os.Geteuid() != 0 {
		return nil
	}
	who, err := invoker(os.Getenv)
	if err == nil {
		err = who.takeOver()
	}
	if err != nil {
		// The text only, without the errno: callers would explain an errno as one of perf events.
		const failed = "nothing is served, as root's privileges cannot be given up"
		return fmt.Errorf("%s: %s (run unspool as another user)", failed, err.Error())
	}
	return nil
}

// invoker returns the user that called sudo, from sudo's environment variables, and nobody for root itself.
func invoker(getenv func(string) string) (identity, error) {
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
	who := identity{uid: uid, gid: gid, sudo: true}
	if account, err := user.LookupId(text); err == nil {
		who.home = account.HomeDir
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

// become makes every thread of this process one of the user, with and without cgo.
func (who identity) become() error {
	if err := roomForSignals(); err != nil {
		return err
	}
	if err := syscall.Setgroups(who.groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setresgid(who.gid, who.gid, who.gid); err != nil {
		return fmt.Errorf("setresgid %d: %w", who.gid, err)
	}
	if err := syscall.Setresuid(who.uid, who.uid, who.uid); err != nil {
		return fmt.Errorf("setresuid %d: %w", who.uid, err)
	}
	return nil
}

// takeOver makes this process one of the user for good, and makes sure of that.
func (who identity) takeOver() error {
	if err := noNewPrivileges(); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := who.become(); err != nil {
		return err
	}
	// Other processes of that user (the user "nobody" may have some) can neither trace this one nor read its
	// memory.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_DUMPABLE: %w", err)
	}
	if syscall.Setresuid(0, 0, 0) == nil {
		return errors.New("the process could take them back")
	}
	return who.checkThreads()
}

// checkThreads makes sure that every thread has the identity.
func (who identity) checkThreads() error {
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
