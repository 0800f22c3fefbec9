package oldkernel

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Feature is something that unspool asks of the kernel and that Linux 4.18 does not have.
type Feature struct {
	Name    string
	Since   string // the version of Linux
	Without string // what unspool does without it
	Kernel  Kernel // one without it
	Says    string // a part of what record says then, if it says something
}

// Newer are all of them, the oldest first. What is asked of a file by its path (of cgroups, say, or in /proc) is not
// among them: a file that is not there is one that is not there.
var Newer = []Feature{
	{"PERF_RECORD_KSYMBOL and PERF_RECORD_BPF_EVENT", "5.1", "perf has no names for code that BPF compiles",
		Attribute(func(a *unix.PerfEventAttr) bool { return a.Bits&(bitKsymbol|bitBPFEvent) != 0 }, unix.EINVAL), ""},
	{"pidfd_send_signal", "5.1", "Go sends signals by PID", lacks(unix.SYS_PIDFD_SEND_SIGNAL), ""},
	{"pidfd_open", "5.3", "a goroutine waits for the command in a thread of its own", lacks(unix.SYS_PIDFD_OPEN), ""},
	{"waitid(P_PIDFD)", "5.4", "as without pidfd_open", Kernel{unix.SYS_WAITID: func(c *Call) unix.Errno {
		return invalid(c.Args[0] == unix.P_PIDFD)
	}}, ""},
	{"openat2", "5.6", "paths within a root are followed name by name", lacks(unix.SYS_OPENAT2), ""},
	{"SECCOMP_FILTER_FLAG_TSYNC_ESRCH", "5.7", "a thread that cannot have the filter is what seccomp returns",
		Kernel{unix.SYS_SECCOMP: func(c *Call) unix.Errno {
			return invalid(c.Args[1]&unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH != 0)
		}}, ""},
	{"faccessat2", "5.8", "Go asks faccessat", lacks(unix.SYS_FACCESSAT2), ""},
	{"PIDFD_NONBLOCK", "5.10", "as without pidfd_open", Kernel{unix.SYS_PIDFD_OPEN: func(c *Call) unix.Errno {
		return invalid(c.Args[1] != 0)
	}}, ""},
	{"Landlock", "5.13", "seccomp, the user and the capabilities confine, and record says what does not",
		lacks(unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF),
		"not in force: Landlock"},
	{"MADV_POPULATE_WRITE", "5.14", "memory is made by page faults", Kernel{unix.SYS_MADVISE: func(c *Call) unix.Errno {
		return invalid(c.Args[2] == unix.MADV_POPULATE_WRITE)
	}}, ""},
	{"PERF_FORMAT_LOST", "6.0", "what is lost is not known by event",
		Attribute(func(a *unix.PerfEventAttr) bool { return a.Read_format&unix.PERF_FORMAT_LOST != 0 }, unix.EINVAL), ""},
	{"Landlock of truncation, TCP and scopes", "6.2 to 6.12", "Landlock confines what it knows, seccomp the rest",
		Kernel{unix.SYS_LANDLOCK_CREATE_RULESET: func(c *Call) unix.Errno {
			if c.Args[2] == unix.LANDLOCK_CREATE_RULESET_VERSION {
				c.Returns = 1
				return 0
			}
			var rights [8]byte
			c.Read(0, rights[:])
			return invalid(c.Args[1] != 8 || rights[1]>>5 != 0 || [6]byte(rights[2:]) != [6]byte{})
		}}, ""},
	{"MFD_EXEC and MFD_NOEXEC_SEAL", "6.3", "files in memory are made without",
		Kernel{unix.SYS_MEMFD_CREATE: func(c *Call) unix.Errno {
			return invalid(c.Args[1]&(unix.MFD_EXEC|unix.MFD_NOEXEC_SEAL) != 0)
		}}, ""},
	{"PROCMAP_QUERY", "6.11", "a maps file is read, instead of asked about one mapping",
		Kernel{unix.SYS_IOCTL: func(c *Call) unix.Errno {
			if uint8(c.Args[1]>>8) == 'f' && uint8(c.Args[1]) == 17 {
				return unix.ENOTTY
			}
			return 0
		}}, ""},
}

const (
	bitKsymbol  = 1 << 29
	bitBPFEvent = 1 << 30
)

// Counting is the kernel; it counts the calls that it refuses.
func (k Kernel) Counting(refused *atomic.Int64) Kernel {
	counting := make(Kernel)
	for nr, refuse := range k {
		counting[nr] = func(c *Call) unix.Errno {
			errno := refuse(c)
			if errno != 0 || c.Returns != 0 {
				refused.Add(1)
			}
			return errno
		}
	}
	return counting
}

// WithoutAny is a kernel that has none of the features.
func WithoutAny() Kernel {
	k := make(Kernel)
	for _, f := range Newer {
		for nr, refuse := range f.Kernel {
			also := k[nr]
			k[nr] = func(c *Call) unix.Errno {
				if also != nil {
					if errno := also(c); errno != 0 || c.Returns != 0 {
						return errno
					}
				}
				return refuse(c)
			}
		}
	}
	return k
}

// lacks is a kernel that does not know the calls.
func lacks(numbers ...uintptr) Kernel {
	k := make(Kernel)
	for _, nr := range numbers {
		k[nr] = func(*Call) unix.Errno { return unix.ENOSYS }
	}
	return k
}

// Attribute is a kernel that refuses events by their attributes.
func Attribute(refused func(a *unix.PerfEventAttr) bool, errno unix.Errno) Kernel {
	return Kernel{unix.SYS_PERF_EVENT_OPEN: func(c *Call) unix.Errno {
		if a := c.Attr(); refused(&a) {
			return errno
		}
		return 0
	}}
}

func invalid(unknown bool) unix.Errno {
	if unknown {
		return unix.EINVAL
	}
	return 0
}
