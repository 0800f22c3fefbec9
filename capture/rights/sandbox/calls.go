package sandbox

import (
	"slices"

	"golang.org/x/sys/unix"
)

// absent are the system calls that fail as on a kernel without them: their arguments are in memory, which a
// filter cannot read. Callers fall back to older calls.
var absent = []uintptr{unix.SYS_CLONE3, unix.SYS_OPENAT2}

// runtimeCalls are the calls of Go's runtime, and those that affect only the process and what it has open.
var runtimeCalls = []uintptr{
	unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_PREADV2, unix.SYS_READV, unix.SYS_WRITE, unix.SYS_PWRITE64,
	unix.SYS_WRITEV, unix.SYS_LSEEK, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_FSTATFS,
	unix.SYS_STATX, unix.SYS_NEWFSTATAT,
	unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK,
	unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES,
	unix.SYS_GETTIMEOFDAY, unix.SYS_RESTART_SYSCALL,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER,
	unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID,
	unix.SYS_GETEGID, unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_CAPGET, unix.SYS_GETRANDOM, unix.SYS_GETRUSAGE,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2,
	unix.SYS_EVENTFD2, unix.SYS_PIPE2, unix.SYS_PPOLL, unix.SYS_PSELECT6,
	unix.SYS_SENDMSG, unix.SYS_RECVMSG,
}

// recorderCalls are the other calls of the confined process.
var recorderCalls = []uintptr{
	unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
	unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_SETTIME, unix.SYS_WAIT4, unix.SYS_WAITID, unix.SYS_SHUTDOWN,
	unix.SYS_SCHED_GETATTR,
}

const (
	getVersion = 0x80087601 // FS_IOC_GETVERSION where long has 64 bits (include/uapi/linux/fs.h)
	// PROCMAP_QUERY where long has 64 bits (likewise): one mapping of a maps file
	queryMapping = 0xc0686611
	setVMA       = 0x53564d41 // PR_SET_VMA: names of the runtime's memory
)

// ioctls are those on events, files and terminals that change nothing of others.
var ioctls = []uint32{
	unix.PERF_EVENT_IOC_ENABLE, unix.PERF_EVENT_IOC_DISABLE, unix.PERF_EVENT_IOC_SET_OUTPUT,
	unix.PERF_EVENT_IOC_ID & 0xffffffff, unix.PERF_EVENT_IOC_PAUSE_OUTPUT, unix.PERF_EVENT_IOC_RESET,
	getVersion, queryMapping, unix.TCGETS, unix.TIOCGWINSZ, unix.SIOCOUTQ,
}

// fcntls are those on what is open. Others have a process sent a signal of one's choice, as with kill(2).
var fcntls = []uint32{
	unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_GETPIPE_SZ,
	unix.F_SETPIPE_SZ, unix.F_GETLK, unix.F_SETLK, unix.F_SETLKW, // locks are for programs that are run
}

// ruleset allows the calls that both processes need, and more calls.
func ruleset(pid int, more []uintptr) (rules []rule) {
	for _, call := range slices.Concat(runtimeCalls, oldRuntimeCalls, more) {
		rules = append(rules, rule{call: call})
	}
	thread := check{argument: 0, mask: unix.CLONE_THREAD, values: []uint32{unix.CLONE_THREAD}}
	noCode := check{argument: 2, mask: unix.PROT_EXEC, values: []uint32{0}}
	itself := check{argument: 0, values: []uint32{uint32(pid)}}
	return append(rules,
		rule{unix.SYS_CLONE, []check{thread}},
		rule{unix.SYS_MMAP, []check{noCode}},
		rule{unix.SYS_MPROTECT, []check{noCode}},
		rule{unix.SYS_TGKILL, []check{itself}},
		rule{unix.SYS_PRLIMIT64, []check{{argument: 0, values: []uint32{0, uint32(pid)}}}},
		rule{unix.SYS_PRCTL, []check{{argument: 0, values: []uint32{setVMA, unix.PR_SET_NAME}}}},
		rule{unix.SYS_IOCTL, []check{{argument: 1, values: ioctls}}},
		rule{unix.SYS_FCNTL, []check{{argument: 1, values: fcntls}}},
	)
}
