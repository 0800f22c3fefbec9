package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"unspool/capture/perfdata/kallsyms"
	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// kernel: the first versions that have what recording uses.
func (m *Environment) kernel() Check {
	c := Check{Name: "kernel", Detail: fmt.Sprintf("Linux %s, %s", m.Release, m.Arch)}
	if m.Arch != "x86_64" {
		c.State = Fail
		c.Detail += ": stacks can be unwound on x86_64 only"
		return c
	}
	if err := perfring.CheckArch(m.Built); err != nil {
		c.State = Fail
		c.Detail += ": " + err.Error()
		return c
	}
	major, minor, ok := version(m.Release)
	switch {
	case !ok:
	case before(major, minor, 4, 1):
		c.State = Warning
		c.Detail += ": older than 4.1, so time stamps cannot be those of CLOCK_MONOTONIC; a newer kernel is " +
			"the cure"
	}
	return c
}

func version(release string) (major, minor int, ok bool) {
	a, rest, _ := strings.Cut(release, ".")
	i := 0
	for i < len(rest) && rest[i] >= '0' && rest[i] <= '9' {
		i++
	}
	major, err1 := strconv.Atoi(a)
	minor, err2 := strconv.Atoi(rest[:i])
	return major, minor, err1 == nil && err2 == nil
}

func before(major, minor, m, n int) bool { return major < m || major == m && minor < n }

// hardwareCounters tries to open an event that counts cycles, in user code if it may not be in the kernel.
func (m *Environment) hardwareCounters() Check {
	c := Check{Name: "hardware counters", Detail: "CPU cycles can be sampled"}
	err := m.Open(cyclesAttr(false), 0, -1)
	if isPermission(err) {
		err = m.Open(cyclesAttr(true), 0, -1)
	}
	switch {
	case err == nil:
		return c
	case isNoDevice(err):
		c.Detail = "no cycle counter (usual in a virtual machine): the timer event cpu-clock is used, which " +
			"misses code that runs with interrupts off"
	default:
		c.Detail = "cycles cannot be sampled: " + err.Error()
	}
	c.State = Warning
	return c
}

func cyclesAttr(userOnly bool) *unix.PerfEventAttr {
	a := &unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_HARDWARE,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config: unix.PERF_COUNT_HW_CPU_CYCLES,
		Sample: 10_000_000,
		// Never enabled: only whether it can be opened counts.
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeHv,
	}
	if userOnly {
		a.Bits |= unix.PerfBitExcludeKernel
	}
	return a
}

func isPermission(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}

func isNoDevice(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) ||
		errors.Is(err, unix.ENXIO)
}

// settings puts those that are as they should be into one check, and leaves the others as they are.
func settings(all ...Check) []Check {
	fine := Check{Name: "settings"}
	var rest []Check
	for _, c := range all {
		switch {
		case c.State != OK:
			rest = append(rest, c)
		case fine.Detail == "":
			fine.Detail = c.Detail
		default:
			fine.Detail += "; " + c.Detail
		}
	}
	if fine.Detail == "" {
		return rest
	}
	return append([]Check{fine}, rest...)
}

// paranoid is only shown: what it leaves to this user is tried.
func (m *Environment) paranoid() Check {
	c := Check{Name: "perf_event_paranoid"}
	n, err := m.sysctl("perf_event_paranoid")
	if err != nil {
		c.State, c.Detail = Warning, err.Error()
		return c
	}
	c.Detail = fmt.Sprintf("perf_event_paranoid %d", n)
	return c
}

// defaultFreq is the sampling frequency that record uses when none is given, in Hz.
const defaultFreq = 999

func (m *Environment) sampleRate() Check {
	c := Check{Name: "sample rate"}
	n, err := m.sysctl("perf_event_max_sample_rate")
	switch {
	case err != nil:
		c.State, c.Detail = Warning, err.Error()
	case n < defaultFreq:
		c.State = Warning
		c.Detail = fmt.Sprintf("at most %d samples a second and CPU, less than the usual %d: "+
			"the kernel lowers the limit when sampling takes too long", n, defaultFreq)
		c.Fix = setSysctl("perf_event_max_sample_rate", 100_000)
	default:
		c.Detail = fmt.Sprintf("%d samples a second and CPU", n)
	}
	return c
}

func (m *Environment) samplingTime() Check {
	c := Check{Name: "sampling time"}
	n, err := m.sysctl("perf_cpu_time_max_percent")
	switch {
	case err != nil:
		c.State, c.Detail = Warning, err.Error()
	case n == 0 || n >= 100:
		c.Detail = "the kernel does not limit the CPU time that sampling takes"
	case n < 5:
		c.State = Warning
		c.Detail = fmt.Sprintf("the kernel slows sampling down when it takes more than %d %% of a CPU", n)
		c.Fix = setSysctl("perf_cpu_time_max_percent", 25)
	default:
		c.Detail = fmt.Sprintf("%d %% of a CPU for sampling", n)
	}
	return c
}

func (m *Environment) kernelDepth() Check {
	c := Check{Name: "kernel stack depth"}
	n, err := m.sysctl("perf_event_max_stack")
	switch {
	case err != nil:
		c.State, c.Detail = Warning, err.Error()
	case n < 64:
		c.State = Warning
		c.Detail = fmt.Sprintf("%d frames: the kernel's part of stacks may be cut off (user stacks are not "+
			"concerned)", n)
		c.Fix = setSysctl("perf_event_max_stack", 127)
	default:
		c.Detail = fmt.Sprintf("%d kernel frames", n)
	}
	return c
}

// kernelSymbols looks whether the kernel shows zeros for addresses. Some symbols of a kernel are at zero, and come
// first.
func (m *Environment) kernelSymbols() Check {
	c := Check{Name: "kernel symbols"}
	file, err := os.Open(filepath.Join(m.Proc, "kallsyms"))
	if errors.Is(err, fs.ErrNotExist) {
		c.State = Warning
		c.Detail = "no kallsyms: kernel functions will have no names"
		return c
	}
	if err == nil {
		defer file.Close()
		for list := kallsyms.NewReader(file); list.Next(); {
			if at, err := list.Address(); err == nil && at != 0 {
				c.Detail = "kernel functions have names"
				return c
			}
		}
	}
	why, fromAll := kallsyms.Hidden(m.Proc)
	c.State, c.Fix = Warning, m.sudo(false)
	if fromAll {
		c.Fix = setSysctl("kptr_restrict", 1)
	}
	c.Detail = "no names of kernel functions: " + why
	return c
}

// tracepoints are found through tracefs, at its own mount point or the old one below debugfs.
func (m *Environment) tracepoints() Check {
	c := Check{Name: "tracepoints"}
	for _, dir := range []string{"kernel/tracing", "kernel/debug/tracing"} {
		err := readable(filepath.Join(m.Sys, dir, "events"))
		if err == nil {
			c.Detail = "events such as sched:sched_switch can be recorded"
			return c
		}
		if isPermission(err) {
			c.State = Warning
			c.Detail = "tracefs is not readable for you: events such as sched:sched_switch cannot be recorded"
			c.Fix = remountTracefs
			return c
		}
	}
	c.State = Warning
	if text, err := readText(filepath.Join(m.Proc, "filesystems")); err == nil &&
		!strings.Contains(text, "tracefs") {
		c.Detail = "this kernel has no tracefs: no events such as sched:sched_switch"
		return c
	}
	c.Detail = "tracefs is not mounted: events such as sched:sched_switch cannot be recorded"
	c.Fix = mountTracefs
	return c
}

const (
	mountTracefs = "sudo mount -t tracefs nodev /sys/kernel/tracing"
	// The files belong to root's group with mode 0440: the mount option gives them to another
	// group.
	remountTracefs = "sudo mount -o remount,mode=750,gid=$(id -g) /sys/kernel/tracing"
)

// readable reports why a directory cannot be listed, or is empty.
func readable(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err := d.Readdirnames(1); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}
