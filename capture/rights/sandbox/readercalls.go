package sandbox

import (
	"slices"

	"golang.org/x/sys/unix"
)

// readerCalls are the calls of a process that reads recordings, besides those of the runtime. No call changes
// the mode, owner, times or attributes of files, which Landlock does not cover.
var readerCalls = []uintptr{
	unix.SYS_READLINKAT, unix.SYS_GETDENTS64, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_GETXATTR,
	unix.SYS_GETCWD, unix.SYS_DUP, unix.SYS_DUP3,
	unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
	unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2,
	unix.SYS_COPY_FILE_RANGE, unix.SYS_SENDFILE, unix.SYS_SPLICE,
	unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_SETTIME, unix.SYS_WAIT4, unix.SYS_WAITID, unix.SYS_SHUTDOWN,
}

// fetchCalls are those for asking servers, and for the name service.
var fetchCalls = []uintptr{
	unix.SYS_CONNECT, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT,
	unix.SYS_SENDTO, unix.SYS_RECVFROM,
}

// refusedCalls are those that not even the programs may make that such a process runs: on other processes, on
// what the whole system shares, on the attributes of files, and what gives no rights but has many faults.
var refusedCalls = []uintptr{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP,
	unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO,
	unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_SETPRIORITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM,
	unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETAFFINITY, unix.SYS_IOPRIO_SET,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT,
	unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS, unix.SYS_UNSHARE, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD,
	unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT,
	unix.SYS_SYSLOG, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
	unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_VHANGUP, unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SEMGET, unix.SYS_MSGGET, unix.SYS_MQ_OPEN,
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR,
	unix.SYS_UTIMENSAT, unix.SYS_TRUNCATE,
	unix.SYS_SOCKETPAIR, unix.SYS_BIND, unix.SYS_LISTEN,
	unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID, unix.SYS_SETREGID, unix.SYS_SETFSUID,
	unix.SYS_SETFSGID,
	463, 466, 467, 468, 469, // setxattrat, removexattrat, open_tree_attr, file_getattr and file_setattr
}

// filter is the filter of a process that reads.
func (r *Reading) filter(pid int) []unix.SockFilter {
	if len(r.Programs) > 0 {
		return assembleExcept(r.refused(), r.rules(pid), absent)
	}
	var rules []rule
	if r.Terminal { // the first rule for a call decides
		values := append([]uint32{unix.TCSETS}, ioctls...)
		rules = append(rules, rule{unix.SYS_IOCTL, []check{{argument: 1, values: values}}})
	}
	rules = append(rules, ruleset(pid, readerCalls)...)
	rules = append(rules, r.rules(pid)...)
	if r.Links {
		rules = append(rules, rule{call: unix.SYS_SYMLINKAT})
	}
	if r.Fetches {
		for _, call := range fetchCalls {
			rules = append(rules, rule{call: call})
		}
	}
	return assemble(rules, absent)
}

// refused are the calls that a process may not make that runs programs.
func (r *Reading) refused() []uintptr {
	refused := slices.Concat(refusedCalls, oldRefusedCalls)
	if r.Fetches {
		return refused
	}
	return append(refused, unix.SYS_SOCKET, unix.SYS_CONNECT)
}

// rules are about the arguments of calls.
func (r *Reading) rules(pid int) []rule {
	// A file that is opened for reading is not truncated, which Landlock sees from Linux 6.2 on.
	const how = unix.O_TRUNC | unix.O_ACCMODE
	opening := []uint32{unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR, unix.O_TRUNC | unix.O_WRONLY,
		unix.O_TRUNC | unix.O_RDWR}
	itself := check{argument: 0, values: []uint32{uint32(pid)}}
	rules := []rule{
		{unix.SYS_OPENAT, []check{{argument: 2, mask: how, values: opening}}},
		{unix.SYS_KILL, []check{itself}},
	}
	if r.Fetches {
		internet := check{argument: 0, values: []uint32{unix.AF_INET, unix.AF_INET6}}
		rules = append(rules, rule{unix.SYS_SOCKET, []check{internet}})
	}
	if len(r.Programs) == 0 {
		return rules
	}
	const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
		unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP
	no := func(argument int, bits uint32) []check {
		return []check{{argument: argument, mask: bits, values: []uint32{0}}}
	}
	toNobody := func(n int) (all []check) {
		for i := range n {
			all = append(all, check{argument: i, values: []uint32{nobody}})
		}
		return all
	}
	return append(append(rules, openRules(how, opening)...),
		rule{unix.SYS_TGKILL, []check{itself}},
		rule{unix.SYS_CLONE, no(0, namespaces)},
		rule{unix.SYS_IOCTL, []check{{argument: 1, values: append([]uint32{unix.TIOCINQ}, ioctls...)}}},
		rule{unix.SYS_FCNTL, []check{{argument: 1, values: fcntls}}},
		rule{unix.SYS_PRLIMIT64, []check{{argument: 0, values: []uint32{0, uint32(pid)}}}},
		// See DropRoot.
		rule{unix.SYS_SETGROUPS, no(0, ^uint32(0))},
		rule{unix.SYS_SETRESGID, toNobody(3)},
		rule{unix.SYS_SETRESUID, toNobody(3)},
	)
}
