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

	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// kernel: the first versions that have what recording uses.
func (m *Machine) kernel() Check {
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
	case before(major, minor, 5, 12):
		c.State = Warning
		c.Detail += ": older than 5.12, so mappings come without build IDs; files that change while recording " +
			"may be missed"
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

// stackAttr is the kind of event that a recording opens, without the side-band. The registers are
// perf's: all that can be sampled on x86-64 (arch/x86/include/uapi/asm/perf_regs.h).
func stackAttr(typ uint32, config uint64, userOnly bool) *unix.PerfEventAttr {
	a := &unix.PerfEventAttr{
		Type:   typ,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config: config,
		Sample: 10_000_000,
		Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME |
			unix.PERF_SAMPLE_CALLCHAIN | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user:  0xff0fff,
		Sample_stack_user: 32 << 10,
		// Never enabled: only whether it can be opened counts.
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeHv,
	}
	if userOnly {
		a.Bits |= unix.PerfBitExcludeKernel
	}
	return a
}

func clockAttr(userOnly bool) *unix.PerfEventAttr {
	return stackAttr(unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK, userOnly)
}

// events opens events: on this process, on a CPU, and on the hardware counters.
func (m *Machine) events(caps capSet) []Check {
	own := Check{Name: "stack samples", Detail: "kernel and user stacks can be sampled"}
	userOnly := false
	if err := m.Open(clockAttr(false), 0, -1); err != nil {
		if errUser := m.Open(clockAttr(true), 0, -1); errUser != nil {
			own.State = Fail
			own.Detail, own.Fix, _ = m.Explain(errUser)
			if own.Detail == "" {
				own.Detail = errUser.Error()
			}
		} else {
			userOnly = true
			own.State = Warning
			own.Detail = "user stacks can be sampled, kernel stacks cannot: events are opened with :u"
			own.Fix = setSysctl("perf_event_paranoid", 1)
		}
	}
	checks := []Check{own}
	if own.State == Fail {
		return checks
	}

	wide := Check{Name: "whole machine"}
	if err := m.Open(clockAttr(userOnly), -1, 0); err == nil {
		wide = m.wholeMachine()
	} else {
		wide.State = Warning
		wide.Detail = "-a is not permitted; your own programs can be recorded with -p PID or -- COMMAND"
		wide.Fix = setSysctl("perf_event_paranoid", 0)
		if !isPermission(err) || caps.mayPerf() {
			wide.Detail = "-a does not work: " + err.Error()
			wide.Fix = ""
		}
	}

	pmu := Check{Name: "hardware counters", Detail: "CPU cycles can be sampled"}
	if err := m.Open(stackAttr(unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES, userOnly), 0,
		-1); err != nil {
		pmu.State = Warning
		pmu.Detail = "no cycle counter (usual in a virtual machine): the timer event cpu-clock is used instead, " +
			"which does not see code that runs with interrupts off"
		if !isNoDevice(err) {
			pmu.Detail = "cycles cannot be sampled: " + err.Error() + "; cpu-clock is used instead"
		}
	}
	return append(checks, wide, pmu)
}

func isPermission(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}

func isNoDevice(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) ||
		errors.Is(err, unix.ENXIO)
}

// paranoid: what perf_event_paranoid leaves to a user without capabilities. Debian and Android add
// levels above 2 that leave nothing; to other kernels they are the same as 2. works says whether an
// event could be opened, which settles it.
func (m *Machine) paranoid(caps capSet, works bool) Check {
	c := Check{Name: "perf_event_paranoid"}
	n, err := m.sysctl("perf_event_paranoid")
	switch {
	case errors.Is(err, fs.ErrNotExist) && !works:
		c.State = Fail
		c.Detail = "the setting is missing: this kernel was built without perf events (CONFIG_PERF_EVENTS)"
	case err != nil:
		c.State = Warning
		c.Detail = err.Error()
	case caps.mayPerf():
		c.Detail = fmt.Sprintf("%d, which does not bind this process: it has the capability", n)
	case n >= 3 && !works:
		c.State = Fail
		c.Detail = fmt.Sprintf("%d: only privileged users may record", n)
		c.Fix = setSysctl("perf_event_paranoid", 1)
	case n >= 2:
		c.State = Warning
		c.Detail = strconv.Itoa(n) + ": your own programs only, without the kernel's part of the stacks"
		c.Fix = setSysctl("perf_event_paranoid", 1)
	case n == 1:
		c.State = Warning
		c.Detail = "1: your own programs, with kernel stacks; -a is not permitted"
		c.Fix = setSysctl("perf_event_paranoid", 0)
	default:
		c.Detail = fmt.Sprintf("%d: everything may be sampled", n)
	}
	return c
}

// wantedRing is the size of one CPU's ring buffer in KiB when nothing limits it.
const wantedRing = 8 << 10

// ringMemory: what perf_mmap in kernel/events/core.c lets a user lock, over all CPUs: perf_event_mlock_kb
// for each, and RLIMIT_MEMLOCK once. A ring has a header page and 2^n more, and beside that for samples
// there is a small one.
func (m *Machine) ringMemory(caps capSet) Check {
	c := Check{Name: "ring buffers"}
	if caps.has(capIPCLock) {
		c.Detail = "8 MiB for each CPU: the locked-memory limit does not bind this process"
		return c
	}
	if n, err := m.sysctl("perf_event_paranoid"); err == nil && n < 0 {
		c.Detail = "8 MiB for each CPU: perf_event_paranoid is below 0, so locked memory is not limited"
		return c
	}
	kb, err := m.sysctl("perf_event_mlock_kb")
	if err != nil {
		c.State = Warning
		c.Detail = err.Error()
		return c
	}
	cpus := uint64(max(m.CPUs, 1))
	perCPU := uint64(max(kb, 0))
	if limit, err := m.Limit(unix.RLIMIT_MEMLOCK); err == nil {
		if limit.Cur == unix.RLIM_INFINITY {
			c.Detail = "8 MiB for each CPU: locked memory is not limited"
			return c
		}
		perCPU += limit.Cur >> 10 / cpus
	}
	const page = 4 // KiB
	ring := uint64(0)
	for size := uint64(page); lockedMemory(size) <= perCPU && size <= wantedRing; size *= 2 {
		ring = size
	}
	c.Detail = fmt.Sprintf("up to %s for each of %d CPUs", kib(ring), cpus)
	if ring >= wantedRing {
		return c
	}
	c.Fix = setSysctl("perf_event_mlock_kb", int(lockedMemory(wantedRing)))
	c.State = Warning
	if ring == 0 {
		c.State = Fail
		c.Detail = "perf_event_mlock_kb leaves no memory for a ring buffer"
		return c
	}
	c.Detail += " instead of 8 MiB: samples may be lost when the machine is busy"
	return c
}

// lockedMemory is what the rings of a CPU take, in KiB.
func lockedMemory(ring uint64) uint64 { return uint64(perfring.LockedMemory(int(ring)<<10)) >> 10 }

func kib(n uint64) string {
	if n >= 1024 && n%1024 == 0 {
		return fmt.Sprintf("%d MiB", n/1024)
	}
	return fmt.Sprintf("%d KiB", n)
}

// defaultFreq is the sampling frequency that record uses when none is given, in Hz.
const defaultFreq = 999

func (m *Machine) sampleRate() Check {
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
		c.Detail = fmt.Sprintf("up to %d samples a second and CPU", n)
	}
	return c
}

func (m *Machine) samplingTime() Check {
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
		c.Detail = fmt.Sprintf("sampling may take up to %d %% of a CPU", n)
	}
	return c
}

func (m *Machine) kernelDepth() Check {
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
		c.Detail = fmt.Sprintf("%d frames for the kernel's part of a stack", n)
	}
	return c
}

// kernelSymbols looks at what kptr_restrict leads to: zeros for addresses.
func (m *Machine) kernelSymbols() Check {
	c := Check{Name: "kernel symbols"}
	text, err := readText(filepath.Join(m.Proc, "kallsyms"))
	if errors.Is(err, fs.ErrNotExist) {
		c.State = Warning
		c.Detail = "no kallsyms: kernel functions will have no names"
		return c
	}
	addr, _, _ := strings.Cut(text, " ")
	if err == nil && strings.Trim(addr, "0") != "" {
		c.Detail = "kernel functions have names"
		return c
	}
	c.State = Warning
	c.Detail = "kernel addresses are hidden"
	c.Fix = setSysctl("kptr_restrict", 0)
	if n, err := m.sysctl("kptr_restrict"); err == nil {
		c.Detail += fmt.Sprintf(" (kptr_restrict is %d)", n)
		if n == 0 {
			// Then kallsyms_show_value asks for CAP_SYSLOG or perf_event_paranoid <= 1.
			c.Fix = setSysctl("perf_event_paranoid", 1)
		}
	}
	c.Detail += ": kernel functions will have no names"
	return c
}

// tracepoints are found through tracefs, at its own mount point or the old one below debugfs.
func (m *Machine) tracepoints() Check {
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
