package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/limits"
	"unspool/perfring"
)

// Explain says in the doctor's words why recording failed, and the command that mends it (empty
// when none does). ok is false for an error that does not come from the kernel's side of
// recording: a file that cannot be written, a command that cannot be run. The arguments are those that
// the user called this program with.
func Explain(err error, args []string) (message, fix string, ok bool) {
	m := Local()
	m.Args = args
	return m.Explain(err)
}

// Explain is Explain for a given machine.
func (m *Environment) Explain(err error) (message, fix string, ok bool) {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return "", "", false
	}
	var open *perfring.OpenError
	var call *os.SyscallError
	if errno == syscall.EMFILE {
		message = "too many open files"
		if errors.As(err, &open) || errors.As(err, &call) && call.Syscall == "perf_event_open" {
			message += ": -p takes one for each thread and CPU"
		}
		return message, raiseFiles, true
	}
	if errno == syscall.ENFILE {
		return "the machine has too many open files", "sudo sysctl fs.file-max=1000000", true
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return explainPath(path, errno)
	}
	var link *os.LinkError
	var run *exec.Error
	if errors.As(err, &link) || errors.As(err, &run) {
		return "", "", false
	}
	if errors.As(err, &open) {
		if open.What == "mmap" {
			return m.explainRing(errno)
		}
		if open.Address != 0 {
			if message, ok := m.explainBreakpoint(errno, open.Address); ok {
				return message, "", true
			}
		}
		return m.explainOpen(errno, open.PID)
	}
	if errors.As(err, &call) {
		switch call.Syscall {
		case "mmap":
			return m.explainRing(errno)
		case "perf_event_open":
		default:
			return "", "", false
		}
	}
	return m.explainOpen(errno, 0)
}

// explainPath knows one file, the id of a tracepoint, and that no process can be started.
func explainPath(path *fs.PathError, errno syscall.Errno) (message, fix string, ok bool) {
	if path.Op == "fork/exec" && errno == syscall.EAGAIN {
		if message = "no more processes can be started"; limits.Tasks() != "" {
			message += ": " + limits.Tasks()
		}
		return message, "", true
	}
	if !strings.Contains(path.Path, "/tracing/") {
		return "", "", false
	}
	switch errno {
	case syscall.EACCES, syscall.EPERM:
		return "tracefs is not readable for you: tracepoints cannot be recorded", remountTracefs, true
	case syscall.ENOENT:
		return "no such tracepoint, or tracefs is not mounted", mountTracefs, true
	}
	return "", "", false
}

func (m *Environment) explainRing(errno syscall.Errno) (message, fix string, ok bool) {
	switch errno {
	case syscall.EPERM, syscall.EAGAIN:
		message = "the ring buffers are larger than the memory that you may lock"
		if kb, err := m.sysctl("perf_event_mlock_kb"); err == nil {
			message += fmt.Sprintf(" (perf_event_mlock_kb is %d for each CPU%s): ask for less with -m", kb, m.lockedInAll())
		}
		return message, setSysctl("perf_event_mlock_kb", ringMemory()), true
	case syscall.ENOMEM:
		return "not enough memory for the ring buffers: ask for less with -m, for example -m 256", "", true
	case syscall.EINVAL:
		return "the kernel refuses this size of ring buffer: -m takes a power of two", "", true
	}
	return "", "", false
}

// lockedInAll adds what may be locked beyond that, if that is limited.
func (m *Environment) lockedInAll() string {
	limit, err := m.Limit(unix.RLIMIT_MEMLOCK)
	if err != nil || limit.Cur == unix.RLIM_INFINITY {
		return ""
	}
	return fmt.Sprintf(", and ulimit -l is %d in all", limit.Cur>>10)
}

// explainOpen is about an event on a process: 0 for one that is not known, -1 for all.
func (m *Environment) explainOpen(errno syscall.Errno, pid int) (message, fix string, ok bool) {
	switch errno {
	case syscall.EACCES, syscall.EPERM:
		message, fix = m.explainPermission(pid)
		return message, fix, true
	case syscall.ENOENT, syscall.ENODEV, syscall.EOPNOTSUPP, syscall.ENXIO:
		return "this machine has no counter for the event (usual for hardware events in a virtual machine): " +
			"use the timer event, -e cpu-clock", "", true
	case syscall.EINVAL, syscall.E2BIG:
		return fmt.Sprintf("the kernel does not know something that was asked of it; Linux %s may be too old, "+
			"or the event cannot be sampled", m.Release), "", true
	case syscall.ESRCH:
		if pid > 0 {
			return fmt.Sprintf("there is no process %d, or it has ended", pid), "", true
		}
		return "no such process, or it has ended", "", true
	case syscall.EBUSY:
		return "another profiler or the NMI watchdog holds the hardware counters; stop it, or use -e cpu-clock",
			"sudo sysctl kernel.nmi_watchdog=0", true
	case syscall.ENOSYS:
		return "the kernel has no perf_event_open: built without CONFIG_PERF_EVENTS, or a container's seccomp " +
			"profile hides it", m.containerFix(), true
	case syscall.ENOMEM:
		return "the kernel has not enough memory for the events", "", true
	}
	return "", "", false
}

// explainBreakpoint is about what a breakpoint has errors of its own for.
func (m *Environment) explainBreakpoint(errno syscall.Errno, address uint64) (message string, ok bool) {
	inKernel := address>>63 == 1
	switch errno {
	case syscall.ENOSPC:
		return "no hardware breakpoint is free: x86 has 4 on each CPU; record fewer at a time, or end " +
			"what else uses them (gdb, perf)", true
	case syscall.EINVAL, syscall.EFAULT:
		return "the kernel refuses a breakpoint at this address: its own code can have some only with " +
			"CONFIG_KPROBES, and not everywhere, and :u excludes all that is the kernel's", inKernel
	case syscall.ENOENT, syscall.ENODEV, syscall.EOPNOTSUPP, syscall.ENXIO:
		return "this machine has no hardware breakpoints: its kernel or its hypervisor does not offer them", true
	case syscall.EACCES, syscall.EPERM:
		return "a breakpoint in the kernel takes root (CAP_SYS_ADMIN)",
			inKernel && !m.capabilities().has(capSysAdmin)
	}
	return "", false
}

// explainPermission finds out which of the gates is shut.
func (m *Environment) explainPermission(pid int) (message, fix string) {
	message, fix = m.shutGate(pid)
	if m.status("NoNewPrivs") == "1" && strings.HasPrefix(fix, "sudo ") {
		fix = noNewPrivileges // nor can it change settings
	}
	return message, fix
}

func (m *Environment) shutGate(pid int) (message, fix string) {
	n, err := m.sysctl("perf_event_paranoid")
	caps := m.capabilities()
	switch {
	case caps.mayPerf() && m.inUserNamespace():
		return "the capabilities of this process count in its user namespace only: for perf events they have to be " +
			"those of the machine", ""
	case caps.mayPerf() && !caps.has(capSysAdmin) && err == nil && n >= 3: // Debian's and Ubuntu's
		return fmt.Sprintf("perf_event_paranoid is %d, which leaves perf events to CAP_SYS_ADMIN, whatever other "+
			"capabilities this process has", n), setSysctl("perf_event_paranoid", 2)
	case caps.mayPerf():
		return "this process has the capability, yet perf events are refused: a container's seccomp profile or a " +
			"security module forbids them", m.containerFix()
	case err != nil:
		return "perf events are not permitted", m.sudo(false)
	case pid > 0 && m.anothers(pid):
		return fmt.Sprintf("process %d is another user's: recording it takes a privilege", pid), m.sudo(true)
	case n >= 1 && pid < 0:
		return fmt.Sprintf("recording every process is not permitted to you (perf_event_paranoid is %d)", n),
			m.sudo(true)
	case n >= 2:
		return fmt.Sprintf("perf events are not permitted to you as asked (perf_event_paranoid is %d)", n),
			setSysctl("perf_event_paranoid", min(n-1, 2))
	case n == 1:
		return "sampling every process or another user's is not permitted (perf_event_paranoid is 1)",
			m.sudo(true)
	}
	return "another user's process takes a privilege to record", m.sudo(false)
}

// anothers reports whether a process belongs to another user.
func (m *Environment) anothers(pid int) bool {
	info, err := os.Stat(filepath.Join(m.Proc, strconv.Itoa(pid)))
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) != os.Geteuid()
}

// containerFix is for a process that a seccomp filter binds.
func (m *Environment) containerFix() string {
	if m.status("Seccomp") != "2" {
		return ""
	}
	return "docker run --cap-add PERFMON --cap-add SYS_PTRACE --security-opt seccomp=unconfined IMAGE"
}
