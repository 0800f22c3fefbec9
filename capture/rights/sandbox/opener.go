package sandbox

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// An Opening says what an opener still needs.
type Opening struct {
	Dirs    []int // open directories in which it makes, renames and removes files
	Parents []int // open directories in which it removes empty directories
	// Names means that it opens what names of generated code are in, and looks at nothing else of processes.
	Names bool
	// Files means that it only opens files of this machine, with the rights of who reads a recording; Confined
	// says that this is a process that [ConfineReader] confines.
	Files, Confined bool
}

// ConfineOpener leaves an opener what it needs. The error is that of the filter: the other restrictions are
// additional, and their errors are ignored.
func ConfineOpener(o Opening) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = noNewPrivileges()
	kept := openerCapabilities
	switch {
	case !o.Names && !o.Files:
		kept |= recordingCapabilities
	case os.Geteuid() != 0:
		kept = 0 // capabilities of the program's file are for recording
	case o.Files:
		kept = readerCapabilities
	}
	if o.Confined {
		_ = landlock([]beneath{{"/", toRead}}, false)
	}
	_ = keep(kept)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	return install(assemble(o.rules(os.Getpid()), absent))
}

// openerCapabilities are those that any opener keeps if it has them: to open files of processes, and to
// create an output that belongs to the user of sudo.
var openerCapabilities = mask(unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_CHOWN,
	unix.CAP_DAC_OVERRIDE)

// recordingCapabilities are the others of a recording's opener: to open events, and to raise
// priorities.
var recordingCapabilities = mask(unix.CAP_CHECKPOINT_RESTORE, unix.CAP_PERFMON,
	unix.CAP_SYS_NICE)

// openerCalls are the calls of an opener besides those of the runtime.
var openerCalls = []uintptr{
	unix.SYS_READLINKAT, unix.SYS_GETDENTS64, unix.SYS_FACCESSAT, unix.SYS_GETXATTR, unix.SYS_FCHOWN,
}

// recordingCalls are the others of a recording's opener.
var recordingCalls = []uintptr{
	unix.SYS_PERF_EVENT_OPEN, unix.SYS_SCHED_GETATTR, unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETAFFINITY, unix.SYS_GETCPU,
	unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_WAIT4, unix.SYS_WAITID,
}

// rules are the rules for the opener.
func (o *Opening) rules(pid int) []rule {
	const writing = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC | unix.O_APPEND |
		unix.O_TMPFILE&^unix.O_DIRECTORY
	reading := check{argument: 2, mask: writing, values: []uint32{0}}
	noSignal := check{argument: 1, values: []uint32{0}} // asks whether there is a process
	ours := check{argument: 0, values: []uint32{unix.AF_UNIX}}
	rules := append(ruleset(pid, openerCalls), rule{unix.SYS_KILL, []check{noSignal}},
		rule{unix.SYS_SOCKETPAIR, []check{ours}})
	if !o.Names && !o.Files {
		for _, call := range recordingCalls {
			rules = append(rules, rule{call: call})
		}
	}
	in := func(dirs []int, argument int) *check {
		c := &check{argument: argument}
		for _, dir := range dirs {
			c.values = append(c.values, uint32(dir))
		}
		return c
	}
	if len(o.Parents) > 0 || len(o.Dirs) > 0 {
		file := check{argument: 2, values: []uint32{unix.AT_REMOVEDIR}, unless: in(o.Dirs, 0)}
		folder := check{argument: 2, values: []uint32{0}, unless: in(o.Parents, 0)}
		rules = append(rules, rule{unix.SYS_UNLINKAT, []check{file, folder}})
	}
	if len(o.Dirs) > 0 {
		reading.unless = in(o.Dirs, 0)
		both := []check{*in(o.Dirs, 0), *in(o.Dirs, 2)}
		rules = append(rules, rule{unix.SYS_RENAMEAT, both}, rule{unix.SYS_RENAMEAT2, both})
	}
	return append(rules, rule{unix.SYS_OPENAT, []check{reading}})
}
