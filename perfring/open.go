package perfring

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Options say how to record. The zero value of each field is its default.
type Options struct {
	Events []Event // at least one

	// Freq is in samples per second, Period in events per sample; at most one is set. If neither is set,
	// tracepoints and breakpoints have a period of 1, and all other events are sampled 999 times a second.
	Freq, Period uint64

	// StackSize is how many bytes of user stack to copy at most, up to MaxStackSize; 0: MaxStackSize, or less as
	// LeastStack says. More of a stack takes time only where there is more of it, and room in the ring always.
	StackSize int
	// LeastStack is how small copies may become if no StackSize is asked for and rings do not hold what comes in a
	// quarter of a second: for who reads the rest of a stack when it is sampled. 0: they do not become smaller.
	LeastStack int
	// Pages are memory pages of ring for each CPU, rounded down to a power of two; 0: for a quarter of a second, within
	// 256 MiB for all CPUs and a sixteenth of the memory. Where less memory may be locked, rings are smaller, and Notes
	// says so.
	Pages int

	// UserChain makes the kernel follow the frame pointers of the user stack as well: the result is the
	// user part of a sample's callchain.
	UserChain bool

	// Delayed leaves out samples, but no other records, until [Source.Sample] is called.
	Delayed bool

	// NoStack leaves out user registers and stack: samples have callchains only.
	NoStack bool
}

// MaxStackSize is how many bytes of a stack the kernel copies at most: sample_stack_user must be less
// than USHRT_MAX and a multiple of 8.
const MaxStackSize = 65528

const (
	defaultFreq = 999

	// regsUser is the mask of all user registers that the kernel samples on x86-64: AX to SS and R8 to R15
	// (enum perf_event_x86_regs). It refuses DS to GS.
	regsUser = 0xff0fff
)

// Bits of perf_event_attr for which x/sys has no names.
const (
	bitKsymbol  = 1 << 29
	bitBPFEvent = 1 << 30
	bitBuildID  = 1 << 34
)

// The records that are asked for besides samples. Build IDs are not asked for: as long as one profiler asks
// for them, the kernel marks the MMAP2 records of every other profiler on the machine as if they held one
// (see [SampleFormat.Correct]), and perf 6.1 aborts on such records.
const (
	bitsSideBand = unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitCommExec |
		unix.PerfBitTask | bitKsymbol | bitBPFEvent
)

// OpenError is why a recording could not start, so that the caller can explain it to the user. errors.Is
// finds Errno in it.
type OpenError struct {
	What  string // what failed: "perf_event_open", "mmap", "process" (it does not exist), "ioctl", …
	Event string // "" if the error is not about one event
	PID   int    // -1: every task
	CPU   int    // -1: every CPU
	Errno syscall.Errno

	Address uint64 // of a hardware breakpoint; 0 for other events
}

func (e *OpenError) Error() string {
	var b strings.Builder
	b.WriteString(e.What)
	if e.Event != "" {
		fmt.Fprintf(&b, " of %s", e.Event)
	}
	if e.PID >= 0 {
		fmt.Fprintf(&b, " %d", e.PID)
	}
	if e.CPU >= 0 {
		fmt.Fprintf(&b, " on CPU %d", e.CPU)
	}
	return b.String() + ": " + e.Errno.Error()
}

func (e *OpenError) Unwrap() error { return e.Errno }

// descriptor is one event on one task and CPU.
type descriptor struct {
	fd, event int
	pid, cpu  int
	polled    bool // the first one of its ring on its task and CPU, which alone is in the poller
	reopened  bool // opened again when its CPU came back online
	sideBand  bool // of the side-band event, whose IDs are listed with those of event
}

// opener has the state of Open. If the kernel refuses an attribute, all descriptors are closed and opened
// again without it, so that all descriptors of an event have the same attributes.
type opener struct {
	sys    system
	target Target
	opts   Options
	needs  RingNeeds
	sizes  RingSizes // 0 until it is known which CPUs there are
	wanted RingSizes // before it was known how much memory may be locked
	rate   uint64    // of samples on a CPU, 0 where it is not known
	// fallbackLevel is how many of the fallbacks have been applied
	fallbackLevel int
	userOnly      bool
	lowered       []uint8 // by event: how much PreciseIP was lowered
	raised        bool    // RLIMIT_NOFILE
	raw           bool    // an event is a tracepoint, so all get RAW, as all have the same layout
	notes         []string

	defaultRate bool // neither a frequency nor a period was asked for: see Event.sampledEach

	events EventOpener // nil: this process opens them

	fds   []descriptor
	attrs []unix.PerfEventAttr // by event, as opened
	rings []mapping
}

// errAgain means that the opener has changed the attributes, and everything has to be opened again.
var errAgain = errors.New("open again")

// Open opens the events on the target and maps a ring for each CPU. Nothing is recorded before
// Enable, or before the exec of a Command. The error is an [*OpenError] when the kernel refuses.
func Open(t Target, o Options) (*Source, error) {
	if err := CheckArch(runtime.GOARCH); err != nil {
		return nil, err
	}
	return hostSystem.open(t, o)
}

// CheckArch returns an error for a machine (runtime.GOARCH) to whose registers regsUser does not apply.
func CheckArch(goarch string) error {
	if goarch != "amd64" {
		return fmt.Errorf("recording is possible on x86-64 only, and this is a program for %s", goarch)
	}
	return nil
}

func (sys system) open(t Target, o Options) (*Source, error) {
	op := &opener{sys: sys, target: t, opts: o}
	if err := op.check(); err != nil {
		return nil, err
	}
	// This ends: every attempt but the last makes one of a few changes, or halves the ring.
	for {
		err := op.attempt()
		if err == nil {
			break
		}
		op.close()
		if !errors.Is(err, errAgain) {
			return nil, err
		}
	}
	op.noteSizes()
	s, err := op.source()
	if err != nil {
		op.close()
		return nil, err
	}
	return s, nil
}

// check checks the options and fills in their defaults.
func (op *opener) check() error {
	o, t := &op.opts, &op.target
	if err := t.check(); err != nil {
		return err
	}
	switch {
	case len(o.Events) == 0:
		return errors.New("no events to record")
	case o.Freq > 0 && o.Period > 0:
		return errors.New("a frequency and a period cannot be combined")
	case o.StackSize < 0 || o.StackSize > MaxStackSize:
		return fmt.Errorf("invalid stack size of %d bytes: at most %d are copied", o.StackSize, MaxStackSize)
	case o.Pages < 0:
		return fmt.Errorf("invalid ring size of %d pages", o.Pages)
	}
	for i := range o.Events {
		op.raw = op.raw || o.Events[i].Tracepoint()
	}
	op.lowered = make([]uint8, len(o.Events))
	if o.StackSize > 0 {
		o.StackSize, o.LeastStack = (o.StackSize+7)&^7, 0
	}
	_, isKnown := o.Rate()
	if o.Freq == 0 && o.Period == 0 {
		o.Freq, op.defaultRate = defaultFreq, true
	}
	rate, err := op.sys.maxFreq()
	if err == nil && rate > 0 && o.Freq > rate {
		op.note("%d samples a second instead of %d: the limit is kernel.perf_event_max_sample_rate", rate, o.Freq)
		o.Freq = rate
	}
	page := os.Getpagesize()
	op.needs = RingNeeds{Stack: o.StackSize, Least: o.LeastStack, Memory: memory(),
		Asked: min(o.Pages, largestRing/page) * page}
	if o.StackSize == 0 && !o.NoStack {
		op.needs.Stack = MaxStackSize
	}
	op.needs.Rate, _ = o.Rate()
	if op.needs.Counted = !isKnown; isKnown {
		op.rate = op.needs.Rate
	}
	return nil
}

// MaxFreq returns how many samples a second the kernel takes at most. It lowers that itself when they take long.
func MaxFreq() (uint64, error) { return hostSystem.maxFreq() }

func (sys system) maxFreq() (uint64, error) {
	return readUint(filepath.Join(sys.proc, "sys/kernel/perf_event_max_sample_rate"), 63)
}

func (op *opener) note(format string, args ...any) {
	n := fmt.Sprintf(format, args...)
	if !slices.Contains(op.notes, n) {
		op.notes = append(op.notes, n)
	}
}

// fallbacks clear bits that older kernels and simpler PMUs refuse with EINVAL, the newest first: a kernel
// that does not know a bit does not know the newer ones either.
var fallbacks = []func(a *unix.PerfEventAttr){
	// Linux 6.0
	func(a *unix.PerfEventAttr) { a.Read_format &^= unix.PERF_FORMAT_LOST },
	// 5.1
	func(a *unix.PerfEventAttr) { a.Bits &^= bitKsymbol | bitBPFEvent },
	// a PMU with PERF_PMU_CAP_NO_EXCLUDE
	func(a *unix.PerfEventAttr) { a.Bits &^= unix.PerfBitExcludeIdle },
	// a machine without virtualization
	func(a *unix.PerfEventAttr) { a.Bits &^= unix.PerfBitExcludeGuest },
	// the last exclusion
	func(a *unix.PerfEventAttr) { a.Bits &^= unix.PerfBitExcludeHv },
	// 3.16
	func(a *unix.PerfEventAttr) { a.Bits &^= unix.PerfBitCommExec | unix.PerfBitMmap2 },
}

// attr returns what the event is to be opened with.
func (op *opener) attr(event int) unix.PerfEventAttr {
	if event == sideBand {
		return op.sideBandAttr()
	}
	e := &op.opts.Events[event]
	a := unix.PerfEventAttr{
		Type: e.Type, Size: attrSize, Config: e.Config, Ext1: e.Config1, Ext2: e.Config2,
		Bp_type: e.BreakpointType,
		Sample_type: unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID |
			unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_PERIOD |
			unix.PERF_SAMPLE_CALLCHAIN | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
		Read_format: unix.PERF_FORMAT_ID | unix.PERF_FORMAT_LOST,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeIdle | unix.PerfBitSampleIDAll | unix.PerfBitUseClockID |
			unix.PerfBitWatermark,
		Wakeup:            uint32(op.sizes.Samples / 4),
		Sample_regs_user:  regsUser,
		Sample_stack_user: uint32(op.opts.StackSize),
		Clockid:           unix.CLOCK_MONOTONIC,
	}
	if op.raw {
		a.Sample_type |= unix.PERF_SAMPLE_RAW
	}
	if op.opts.NoStack {
		a.Sample_type &^= unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER
		a.Sample_regs_user, a.Sample_stack_user = 0, 0
	}
	switch {
	case op.opts.Period > 0:
		// The kernel samples each event of software, tracepoints and breakpoints, whatever the period, if
		// samples have one (perf_swevent_event).
		a.Sample = op.opts.Period
		a.Sample_type &^= unix.PERF_SAMPLE_PERIOD
	case e.sampledEach() && op.defaultRate:
		a.Sample = 1
	default:
		a.Sample = op.opts.Freq
		a.Bits |= unix.PerfBitFreq
	}
	for _, b := range []struct {
		set bool
		bit uint64
	}{
		{!op.opts.UserChain, unix.PerfBitExcludeCallchainUser},
		{!op.target.AllCPUs && len(op.target.TIDs) == 0, unix.PerfBitInherit},
		{op.target.Command > 0 && !op.opts.Delayed, unix.PerfBitEnableOnExec},
		{e.ExcludeUser, unix.PerfBitExcludeUser},
		{e.ExcludeKernel || op.userOnly, unix.PerfBitExcludeKernel},
		{e.ExcludeHV || op.userOnly, unix.PerfBitExcludeHv},
		{op.userOnly, unix.PerfBitExcludeCallchainKernel},
		{e.ExcludeHost, unix.PerfBitExcludeHost},
		{e.ExcludeGuest, unix.PerfBitExcludeGuest},
	} {
		if b.set {
			a.Bits |= b.bit
		}
	}
	a.Bits |= uint64(e.PreciseIP-op.lowered[event]) * unix.PerfBitPreciseIPBit1
	for _, less := range fallbacks[:op.fallbackLevel] {
		less(&a)
	}
	return a
}

// openOne opens one event on one task and CPU. It returns errAgain if it has changed the attributes that
// attr returns.
func (op *opener) openOne(event, pid, cpu int) (fd int, err error) {
	e := op.event(event)
	a := op.attr(event)
	for {
		fd, err = op.perfEvent(&a, event, pid, cpu)
		if err != unix.EINTR {
			break
		}
	}
	if err == nil {
		if event != sideBand {
			op.attrs[event] = a
		}
		return fd, nil
	}
	errno, _ := err.(syscall.Errno)
	refused := &OpenError{What: "perf_event_open", Event: e.Name, PID: pid, CPU: cpu, Errno: errno}
	if e.Breakpoint() {
		refused.Address = e.Config1
	}
	switch errno {
	case unix.EMFILE:
		if !op.raised && raiseFileLimit() {
			op.raised = true
			return -1, errAgain
		}
	case unix.EBADF, unix.ENOENT: // the directory is of a hierarchy of version 1, without perf_event
		if op.target.Cgroup != nil && op.opens(a, sideBand, pid, cpu) {
			return -1, fmt.Errorf("%s: perf_event is in another hierarchy of cgroups", op.target.Cgroup.Name())
		}
	case unix.EACCES, unix.EPERM:
		if !op.userOnly && !e.ExcludeUser && !e.Tracepoint() && op.opens(a, event, pid, cpu) {
			op.userOnly = true
			if slices.ContainsFunc(op.opts.Events, func(e Event) bool { return !e.ExcludeKernel }) {
				op.note("recording user code only (:u): recording kernel code takes CAP_PERFMON or " +
					"kernel.perf_event_paranoid below 2")
			}
			return -1, errAgain
		}
	case unix.EINVAL, unix.EOPNOTSUPP:
		if e.PreciseMax && op.lowered[event] < e.PreciseIP {
			op.lowered[event]++
			return -1, errAgain
		}
		for op.fallbackLevel < len(fallbacks) {
			op.fallbackLevel++
			if op.attr(event) != a {
				return -1, errAgain
			}
		}
	}
	return -1, refused
}

// opens reports whether an event can be opened without anything of the kernel. Kernels of 2026, and those that their
// changes were carried to (6.12.117), refuse the kernel's part of callchains to whoever may not record its code, as of
// an event with :u.
func (op *opener) opens(a unix.PerfEventAttr, event, pid, cpu int) bool {
	a.Bits |= unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv | unix.PerfBitExcludeCallchainKernel
	fd, err := op.perfEvent(&a, event, pid, cpu)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}

// perfEvent is perf_event_open on one task and CPU. Of a cgroup, only the sampled events are: a process
// that is moved into it later may have got its mappings before.
func (op *opener) perfEvent(a *unix.PerfEventAttr, event, pid, cpu int) (fd int, err error) {
	cgroup := op.target.Cgroup != nil && event != sideBand
	switch {
	case cgroup && op.events != nil:
		return -1, unix.EPERM // whoever opens events for this process opens them on all tasks
	case op.events != nil:
		return op.events.OpenEvent(a, cpu)
	case cgroup:
		return unix.PerfEventOpen(a, int(op.target.Cgroup.Fd()), cpu, -1,
			unix.PERF_FLAG_FD_CLOEXEC|unix.PERF_FLAG_PID_CGROUP)
	}
	return unix.PerfEventOpen(a, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
}

// attempt opens all, maps the rings and connects every descriptor to its CPU's ring.
func (op *opener) attempt() error {
	op.attrs = make([]unix.PerfEventAttr, len(op.opts.Events))
	cpus, err := op.sys.onlineCPUs()
	if err == nil {
		err = op.target.checkCPUs(cpus)
	}
	if err != nil {
		return err
	}
	if op.sizes.Samples == 0 {
		op.size(cpus)
	}
	switch {
	case op.target.AllCPUs:
		err = op.openTask(-1, cpus)
	case op.target.Command > 0:
		err = op.openTask(op.target.Command, cpus)
	default:
		err = op.openProcesses(cpus)
	}
	if err != nil {
		return err
	}
	return op.mapRings()
}

// openTask opens all events on a task, on all the CPUs.
func (op *opener) openTask(pid int, cpus []int) error {
	for _, cpu := range cpus {
		first := true
		for _, event := range op.eventsOn(pid, cpu) {
			fd, err := op.openOne(event, pid, cpu)
			if errors.Is(err, unix.ENODEV) && !op.online(cpu) {
				break // it went offline just now
			}
			if err != nil {
				return err
			}
			d := descriptor{fd: fd, event: event, pid: pid, cpu: cpu, polled: first}
			if event == sideBand {
				d.event, d.polled, d.sideBand = 0, true, true
			}
			op.fds = append(op.fds, d)
			first = false
		}
	}
	if len(op.fds) == 0 {
		return &OpenError{What: "perf_event_open", Event: op.opts.Events[0].Name, PID: pid, CPU: -1,
			Errno: unix.ENODEV}
	}
	return nil
}

// eventsOn returns the events that are sampled of a task on a CPU and, if there could be any, the side-band
// event as the last one: what is not sampled, too, maps files for what is.
func (op *opener) eventsOn(pid, cpu int) (events []int) {
	for i := range op.opts.Events {
		if op.opts.Events[i].isOn(cpu) {
			events = append(events, i)
		}
	}
	if len(events) == 0 {
		return nil
	}
	if !op.target.samples(pid, cpu) {
		events = nil
	}
	return append(events, sideBand)
}

// hasEvents reports whether there are events on a CPU.
func (op *opener) hasEvents(cpu int) bool {
	return slices.ContainsFunc(op.opts.Events, func(e Event) bool { return e.isOn(cpu) })
}

func (op *opener) online(cpu int) bool {
	cpus, err := op.sys.onlineCPUs()
	return err != nil || slices.Contains(cpus, cpu)
}

func (op *opener) close() {
	for _, m := range op.rings {
		_ = unix.Munmap(m.memory)
	}
	for _, d := range op.fds {
		_ = unix.Close(d.fd)
	}
	op.fds, op.rings = nil, nil
}

// name returns the event's name, with the u that userOnly adds.
func (op *opener) name(event int) string {
	e := &op.opts.Events[event]
	colons := strings.Count(e.Name, ":")
	switch {
	case !op.userOnly || e.ExcludeKernel:
		return e.Name
	case e.Breakpoint():
		if _, _, mods := cutBreakpoint(e.Name); mods != "" {
			return e.Name + "u"
		}
		return e.Name + ":u"
	case strings.Contains(e.Name, "/"), colons == 1 && !e.Tracepoint(), colons == 2:
		return e.Name + "u" // behind a PMU's slash, or further modifiers
	}
	return e.Name + ":u"
}
