package doctor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"unspool/capture/rights/priority"
	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// CheckState is how a check came out.
type CheckState uint8

const (
	// OK needs no attention.
	OK CheckState = iota
	// Warning means that recording works, but something will be missing from it.
	Warning
	// Fail means that nothing can be recorded.
	Fail
)

func (s CheckState) String() string {
	switch s {
	case OK:
		return "ok"
	case Warning:
		return "warning"
	case Fail:
		return "FAIL"
	}
	return "unknown"
}

// Check is one thing looked at.
type Check struct {
	Name   string // a few words
	State  CheckState
	Detail string // one or two sentences
	Fix    string // the exact command that mends it; empty if it is OK or no command does

	OwnOnly bool // the user may record no others' programs
}

// Able reports whether the machine can record: no check failed.
func Able(checks []Check) bool {
	for _, c := range checks {
		if c.State == Fail {
			return false
		}
	}
	return true
}

// Environment is where the doctor looks. Local fills it in for this machine and process.
type Environment struct {
	Proc, Sys     string   // mount points of procfs and sysfs
	Release, Arch string   // of the kernel, as uname gives them
	Built         string   // the architecture that this program is built for, as Go calls it
	CPUs          int      // number of CPUs online
	Program       string   // path of this executable
	Args          []string // that it was called with; nil if they are not to be repeated

	Etc, Debug string                   // the folder of settings, and the one of debug files
	Environ    func(name string) string // the value of a variable

	// Try records for a short time.
	Try func(what Tried) (Trial, error)
	// Open opens and closes one perf event on a process (0: this one, -1: all) and CPU (-1: any).
	Open func(attr *unix.PerfEventAttr, pid, cpu int) error
	// Priority tries to have precedence over other processes, and says what that is, and whether it is enough.
	Priority func() (what string, enough bool)
	// Limit returns the limits of a resource (unix.RLIMIT_*).
	Limit func(resource int) (unix.Rlimit, error)
	// LookPath finds a program in PATH.
	LookPath func(name string) (string, error)
}

// Local describes the machine and process that this runs on and in.
func Local() *Environment {
	m := &Environment{
		Proc: "/proc", Sys: "/sys", Etc: "/etc", Debug: "/usr/lib/debug", Built: runtime.GOARCH,
		CPUs:     runtime.NumCPU(),
		Open:     openEvent,
		Try:      record,
		Environ:  os.Getenv,
		Priority: priority.Try,
		Limit:    resourceLimit,
		LookPath: exec.LookPath,
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Release = unix.ByteSliceToString(u.Release[:])
		m.Arch = unix.ByteSliceToString(u.Machine[:])
	}
	cpus, err := perfring.ReadCPUList(filepath.Join(m.Sys, "devices/system/cpu/online"))
	if err == nil && len(cpus) > 0 {
		m.CPUs = len(cpus)
	}
	if exe, err := os.Executable(); err == nil {
		m.Program = exe
	}
	return m
}

func openEvent(attr *unix.PerfEventAttr, pid, cpu int) error {
	fd, err := unix.PerfEventOpen(attr, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("perf_event_open", err)
	}
	return unix.Close(fd)
}

func resourceLimit(resource int) (unix.Rlimit, error) {
	var r unix.Rlimit
	err := unix.Getrlimit(resource, &r)
	return r, err
}

// Run looks at everything that recording depends on.
func (m *Environment) Run() []Check {
	caps := m.capabilities()
	checks := []Check{m.kernel()}
	trials, worked := m.trials()
	checks = append(checks, trials...)
	checks = append(checks,
		m.rings(worked),
		m.hardwareCounters(),
		m.otherProcesses(),
		m.precedence(),
		m.privileges(caps),
		m.kernelSymbols(),
		m.debugInformation(),
		m.tracepoints(),
	)
	checks = append(checks, settings(m.paranoid(), m.sampleRate(), m.samplingTime(), m.kernelDepth(),
		m.openFiles())...)
	return append(checks, m.tools())
}

// Run looks at everything that recording on this machine depends on, and at processes that are to be recorded.
func Run(pids []int) []Check {
	m := Local()
	checks := m.Run()
	for _, pid := range pids {
		checks = append(checks, m.Generated(uint32(pid))...)
	}
	return checks
}

// readText reads a small file, or the beginning of a large one.
func readText(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 64<<10)
	n, err := f.Read(b)
	if n == 0 && err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return strings.TrimSpace(string(b[:n])), nil
}

// sysctl reads an integer setting of the kernel.
func (m *Environment) sysctl(name string) (int, error) {
	text, err := readText(filepath.Join(m.Proc, "sys/kernel", name))
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("kernel.%s is no number", name)
	}
	return n, nil
}

func setSysctl(name string, value int) string {
	return fmt.Sprintf("sudo sysctl kernel.%s=%d", name, value)
}
