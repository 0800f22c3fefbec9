package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// A Report says which restrictions are in force.
type Report struct {
	InForce []string // restrictions, a few words each
	Missing []string // those that could not be applied, and why
}

func (r *Report) try(what string, err error) {
	if err == nil {
		r.InForce = append(r.InForce, what)
	} else {
		r.Missing = append(r.Missing, fmt.Sprintf("%s (%v)", what, explain(err)))
	}
}

// explain replaces an error whose errno says little.
func explain(err error) error {
	if err == unix.ENOTSUP {
		return errors.New("built with cgo: build it with CGO_ENABLED=0")
	}
	return err
}

func (r *Report) String() string {
	if r == nil {
		return "not confined"
	}
	var parts []string
	if len(r.InForce) > 0 {
		parts = append(parts, "confined: "+strings.Join(r.InForce, ", "))
	}
	if len(r.Missing) > 0 {
		parts = append(parts, "not in force: "+strings.Join(r.Missing, ", "))
	}
	return strings.Join(parts, "; ")
}

// Confine leaves this process only its memory, its clock, and what it has open: it cannot open, start, signal
// or connect to anything any more. Root becomes the user that called sudo, or one that nobody is.
func Confine() *Report {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &Report{}
	uid := caller(os.Getenv) // before /proc cannot be read any more
	r.try("no new privileges", noNewPrivileges())
	r.try("Landlock", landlock(nil, false))
	if os.Geteuid() == 0 {
		r.try("uid "+strconv.Itoa(uid), identity{uid: uid, gid: nobody}.become())
	}
	r.try("no capabilities", keep(0))
	r.try("not traceable", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	r.try("memory limit", limitMemory())
	r.try("seccomp", install(assemble(ruleset(os.Getpid(), recorderCalls), absent)))
	return r
}

// noNewPrivileges sets no_new_privs for all threads. In a program with cgo it sets it for this one, and a
// filter passes it on to the others, here one that allows everything (seccomp(2),
// SECCOMP_FILTER_FLAG_TSYNC).
func noNewPrivileges() error {
	err := eachThread(func() error { return sys.PrctlAllThreads(unix.PR_SET_NO_NEW_PRIVS, 1) })
	if err != unix.ENOTSUP {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return install([]unix.SockFilter{allowed})
}

// caller is the user who called sudo, or one that nobody is.
func caller(getenv func(string) string) int {
	uid, err := strconv.ParseUint(getenv("SUDO_UID"), 10, 31)
	if err != nil || uid == 0 {
		return noUser()
	}
	return int(uid)
}

// leastMemory is how much memory a recording may have in any case.
const leastMemory = 2 << 30

// limitMemory bounds the memory that is this process's own: half of the machine's.
func limitMemory() error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return err
	}
	most := max(leastMemory, info.Totalram*uint64(info.Unit)/2)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_DATA, &old); err != nil {
		return err
	}
	most = min(most, old.Cur, old.Max)
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: most, Max: most})
}
