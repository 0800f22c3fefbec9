package doctor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/perfring"
)

func TestExplain(t *testing.T) {
	open := func(errno unix.Errno) error {
		return fmt.Errorf("open event cycles: %w", os.NewSyscallError("perf_event_open", errno))
	}
	breakpoint := func(address uint64, errno unix.Errno) error {
		return &perfring.OpenError{What: "perf_event_open", Event: "mem:ADDR:x", Errno: errno, Address: address}
	}
	const own, kernels = 0x401136, 0xffffffff81000000
	mmap := func(errno unix.Errno) error { return fmt.Errorf("ring: %w", os.NewSyscallError("mmap", errno)) }
	path := func(p string, errno unix.Errno) error { return &fs.PathError{Op: "open", Path: p, Err: errno} }
	user := map[string]string{status: noCaps}
	paranoid := func(n string) map[string]string {
		return map[string]string{status: noCaps, kernel + "perf_event_paranoid": n}
	}
	tests := []struct {
		name    string
		err     error
		files   map[string]string
		message string // "" if there is nothing to say
		fix     string
	}{
		{"paranoid 3", open(unix.EACCES), paranoid("3"), "perf_event_paranoid is 3",
			"sudo sysctl kernel.perf_event_paranoid=2"},
		{"paranoid 2", open(unix.EACCES), user, "perf_event_paranoid is 2",
			"sudo sysctl kernel.perf_event_paranoid=1"},
		{"paranoid 1", open(unix.EPERM), paranoid("1"), "every process",
			"sudo unspool record …"},
		{"no new privileges", open(unix.EPERM), map[string]string{status: noCaps + "NoNewPrivs:\t1\n",
			kernel + "perf_event_paranoid": "1"}, "every process", noNewPrivileges},
		{"Debian's paranoid", open(unix.EACCES), map[string]string{status: "CapPrm:\t0000004000000000\nCapEff:\t0\n",
			kernel + "perf_event_paranoid": "3"}, "leaves perf events to CAP_SYS_ADMIN",
			"sudo sysctl kernel.perf_event_paranoid=2"},
		{"a user namespace", open(unix.EACCES), map[string]string{status: allCaps,
			"proc/self/uid_map": "         0       1000          1\n"}, "its user namespace only", ""},
		{"no other user namespace", open(unix.EACCES), map[string]string{status: allCaps,
			"proc/self/uid_map": "         0          0 4294967295\n"}, "seccomp", ""},
		{"another's process", open(unix.EACCES), paranoid("0"), "another user's", "sudo unspool record …"},
		{"paranoid unknown", open(unix.EACCES), paranoid("-"), "not permitted", "sudo unspool record …"},
		{"refused in spite of all", open(unix.EPERM), map[string]string{status: allCaps}, "seccomp", ""},
		{"refused in a container", open(unix.EPERM),
			map[string]string{status: "CapPrm:\t000001ffffffffff\nSeccomp:\t2\n"}, "seccomp", "docker run"},
		{"bare errno", unix.EACCES, user, "perf_event_paranoid is 2", "sudo sysctl kernel.perf_event_paranoid=1"},
		{"descriptors", open(unix.EMFILE), nil, "too many open files: -p takes", "ulimit -n"},
		{"descriptors, on opening a file", path("/lib/x.so", unix.EMFILE), nil, "too many open files", "ulimit -n"},
		{"descriptors of an event", &perfring.OpenError{What: "perf_event_open", Errno: unix.EMFILE}, nil,
			"files: -p takes", "ulimit -n"},
		{"descriptors of the machine", open(unix.ENFILE), nil, "machine", "sudo sysctl fs.file-max"},
		{"no PMU", open(unix.ENOENT), nil, "-e cpu-clock", ""},
		{"no device", open(unix.ENODEV), nil, "-e cpu-clock", ""},
		{"not supported", open(unix.EOPNOTSUPP), nil, "-e cpu-clock", ""},
		{"old kernel", open(unix.EINVAL), nil, "Linux 6.12.3-amd64 may be too old", ""},
		{"old kernel, short attr", open(unix.E2BIG), nil, "too old", ""},
		{"ended", open(unix.ESRCH), nil, "has ended", ""},
		{"watchdog", open(unix.EBUSY), nil, "another profiler", "sudo sysctl kernel.nmi_watchdog=0"},
		{"no perf", open(unix.ENOSYS), nil, "CONFIG_PERF_EVENTS", ""},
		{"no memory for events", open(unix.ENOMEM), nil, "memory", ""},
		{"no breakpoint is free", breakpoint(own, unix.ENOSPC), nil, "x86 has 4", ""},
		{"no breakpoint at an address", breakpoint(kernels, unix.EINVAL), nil, "at this address", ""},
		{"old kernel, breakpoint", breakpoint(own, unix.EINVAL), nil, "Linux 6.12.3-amd64 may be too old", ""},
		{"no breakpoints", breakpoint(own, unix.EOPNOTSUPP), nil, "no hardware breakpoints", ""},
		{"a breakpoint in the kernel", breakpoint(kernels, unix.EPERM),
			map[string]string{status: "CapPrm:\t0000004000000000\n"}, "takes root", ""}, // CAP_PERFMON alone
		{"a user's in the kernel", breakpoint(kernels, unix.EACCES), user, "takes root", ""},
		{"a breakpoint is not permitted", breakpoint(own, unix.EACCES), user, "perf_event_paranoid is 2",
			"sudo sysctl kernel.perf_event_paranoid=1"},
		{"a breakpoint, refused in spite of all", breakpoint(own, unix.EPERM), map[string]string{status: allCaps},
			"seccomp", ""},
		{"one in the kernel, likewise", breakpoint(kernels, unix.EPERM), map[string]string{status: allCaps},
			"seccomp", ""},
		{"a breakpoint, no perf", breakpoint(own, unix.ENOSYS), nil, "CONFIG_PERF_EVENTS", ""},
		{"ring over the limit", mmap(unix.EPERM), user,
			"perf_event_mlock_kb is 516 for each CPU, and ulimit -l is 1024 in all", roomForRings()},
		{"no memory for rings", mmap(unix.ENOMEM), nil, "-m 256", ""},
		{"odd ring", mmap(unix.EINVAL), nil, "power of two", ""},
		{"tracefs unreadable", path("/sys/kernel/tracing/events/x/y/id", unix.EACCES), nil, "tracefs",
			"sudo mount -o remount"},
		{"no tracefs", path("/sys/kernel/tracing/events/x/y/id", unix.ENOENT), nil, "tracefs",
			"sudo mount -t tracefs"},
		{"tracefs is odd", path("/sys/kernel/tracing/events/x/y/id", unix.EIO), nil, "", ""},
		{"unwritable output", path("/out/perf.data", unix.EACCES), nil, "", ""},
		{"rename", &os.LinkError{Op: "rename", Old: "a", New: "b", Err: unix.EPERM}, nil, "", ""},
		{"no more processes", &fs.PathError{Op: "fork/exec", Path: "/proc/self/exe", Err: unix.EAGAIN}, nil,
			"no more processes can be started", ""},
		{"no other process", &fs.PathError{Op: "fork/exec", Path: "/bin/true", Err: unix.ENOENT}, nil, "", ""},
		{"no command", &exec.Error{Name: "x", Err: unix.ENOENT}, nil, "", ""},
		{"an error nobody expects", open(unix.EXDEV), nil, "", ""},
		{"ring, an error nobody expects", mmap(unix.EXDEV), nil, "", ""},
		{"another system call", os.NewSyscallError("epoll_wait", unix.EINVAL), nil, "", ""},
		{"not from the kernel", io.ErrUnexpectedEOF, nil, "", ""},
		{"none", nil, nil, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, root := healthy(t)
			for name, text := range tt.files {
				put(t, root, name, text)
			}
			message, fix, ok := m.Explain(tt.err)
			if isPath := new(fs.PathError); errors.As(tt.err, &isPath) && strings.Contains(message, "-p") {
				t.Errorf("%q of %v", message, tt.err)
			}
			if ok != (tt.message != "") || !strings.Contains(message, tt.message) || !strings.Contains(fix, tt.fix) ||
				(fix == "") != (tt.fix == "") {
				t.Errorf("%q, %q, %v", message, fix, ok)
			}
		})
	}
	if _, _, ok := Explain(errors.New("x"), nil); ok {
		t.Error("an error without a number is explained")
	}
}

// TestSudo is about what a user is told who may not record another one's process.
func TestSudo(t *testing.T) {
	const general = "sudo unspool record …   (without sudo: 'man unspool-record', WITHOUT ROOT)"
	for _, tt := range []struct {
		name, program, args, status, fix string
	}{
		{"as typed", "/usr/bin/unspool", "record -p 1,2 -d 5", noCaps, "sudo unspool record -p 1,2 -d 5"},
		{"where sudo does not look", "/home/u/bin/unspool", "top -p 1", noCaps,
			"sudo /home/u/bin/unspool top -p 1"},
		{"a path with a blank", "/my dir/it's", "top -p 1", noCaps, `sudo '/my dir/it'\''s' top -p 1`},
		{"a command, which root should not run", "/usr/bin/unspool", "record -p 1 -- ./x", noCaps, general},
		{"what a shell would read", "/usr/bin/unspool", "record -p 1 -o $x", noCaps, general},
		{"long", "/usr/bin/unspool", "record -p " + strings.Repeat("1", 100), noCaps, general},
		{"nothing", "/usr/bin/unspool", "", noCaps, general},
		{"no new privileges", "/usr/bin/unspool", "top -p 1", noCaps + "NoNewPrivs:\t1\n", noNewPrivileges},
		{"root", "/usr/bin/unspool", "record -p 1", "Uid:\t0\t0\t0\t0\n" + noCaps, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, root := healthy(t)
			put(t, root, status, tt.status)
			m.Program, m.Args = tt.program, strings.Fields(tt.args)
			if fix := m.sudo(true); fix != tt.fix {
				t.Errorf("%q, want %q", fix, tt.fix)
			}
		})
	}
}

// roomForRings is the command that makes room for the rings of this machine, which depend on its CPUs and memory, with
// a page before each.
func roomForRings() string {
	s, _ := perfring.DefaultRings()
	return fmt.Sprintf("sudo sysctl kernel.perf_event_mlock_kb=%d", (s.Samples+s.Others+2*os.Getpagesize())>>10)
}
