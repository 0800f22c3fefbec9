package perfring

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Event is an event to sample: type and config of a perf_event_attr, and the modifiers behind the name.
type Event struct {
	Name    string // as perf prints it, modifiers included: "cycles:u", "cpu_core/cycles/"
	Type    uint32 // PERF_TYPE_*, or a PMU's number from sysfs
	Config  uint64
	Config1 uint64
	Config2 uint64

	BreakpointType uint32 // HW_BREAKPOINT_R, _W, _X: what a breakpoint stops at; 0 for other events

	ExcludeUser, ExcludeKernel, ExcludeHV bool
	ExcludeHost, ExcludeGuest             bool
	PreciseIP                             uint8 // skid: 0 arbitrary to 3 none
	PreciseMax                            bool  // PreciseIP may be lowered to what the PMU can do

	CPUs []int // the only CPUs that the event exists on: one kind of core of a hybrid machine; nil: all
}

// Tracepoint reports whether the event is a tracepoint: its samples have RAW data.
func (e *Event) Tracepoint() bool { return e.Type == unix.PERF_TYPE_TRACEPOINT }

// isOn reports whether the event exists on a CPU.
func (e *Event) isOn(cpu int) bool { return e.CPUs == nil || slices.Contains(e.CPUs, cpu) }

// ParseEvents reads a list of event names separated by commas, as perf record's -e takes it:
//
//	cycles, cpu-clock, …       hardware and software events by perf's names
//	L1-dcache-load-misses, …   cache events: CACHE-OP[-misses]
//	r1a8                       a raw event of the CPU, in hexadecimal
//	sched:sched_switch         a tracepoint, found in tracefs
//	cpu/event=0x3c,umask=1/    an event of a PMU, by the terms that sysfs lists
//	mem:0x404010/4:w           a hardware breakpoint: mem:ADDR[/LEN][:ACCESS]; see below
//	NAME:MODIFIERS             letters that say where to sample and how precisely: see [Modifiers]
//
// A breakpoint is on LEN bytes at ADDR: 1, 2, 4 (the default) or 8. ACCESS is w for writes, rw for reads and
// writes (the default), or x for the execution of the instruction at ADDR, which has no LEN.
//
// On a hybrid CPU, a hardware event becomes one event for each kind of core. The error for an unknown
// name suggests similar names.
func ParseEvents(spec string) ([]Event, error) { return hostSystem.parseEvents(spec) }

func (sys system) parseEvents(spec string) ([]Event, error) {
	names, err := splitEvents(spec)
	if err != nil {
		return nil, err
	}
	var events []Event
	for _, name := range names {
		ev, err := sys.parseEvent(name)
		if err != nil {
			return nil, fmt.Errorf("event %q: %w", name, err)
		}
		events = append(events, ev...)
	}
	return events, nil
}

// splitEvents cuts at commas, but not at those between the slashes of pmu/a=1,b=2/. The slash of a
// breakpoint, mem:0x404010/4, has no second one.
func splitEvents(spec string) ([]string, error) {
	if strings.ContainsAny(spec, "{}") {
		return nil, fmt.Errorf("events %q: groups in braces are not supported, list the events one by one", spec)
	}
	var names []string
	start, inside := 0, false
	for i := 0; i <= len(spec); i++ {
		switch {
		case i == len(spec) || spec[i] == ',' && !inside:
			name := strings.TrimSpace(spec[start:i])
			if name == "" {
				return nil, fmt.Errorf("events %q: a name is missing", spec)
			}
			names, start = append(names, name), i+1
		case spec[i] == '/' && !strings.HasPrefix(strings.TrimSpace(spec[start:i]), breakpointPrefix):
			inside = !inside
		}
	}
	if inside {
		return nil, fmt.Errorf("events %q: the closing / of a PMU's event is missing", spec)
	}
	return names, nil
}

func (sys system) parseEvent(spec string) ([]Event, error) {
	if strings.HasPrefix(spec, breakpointPrefix) {
		ev, err := parseBreakpoint(spec)
		return []Event{ev}, err
	}
	if pmu, rest, ok := strings.Cut(spec, "/"); ok {
		terms, mods, _ := strings.Cut(rest, "/")
		ev, err := sys.pmuEvent(pmu, terms)
		if err != nil {
			return nil, err
		}
		ev.Name = pmu + "/" + terms + "/"
		return modified([]Event{ev}, mods, "")
	}
	name, mods, hasMods := strings.Cut(spec, ":")
	typ, config, err := lookupEvent(name)
	if errors.Is(err, errUnknownEvent) && hasMods {
		point, mods, _ := strings.Cut(mods, ":")
		id, err := sys.tracepoint(name, point)
		if err != nil {
			return nil, err
		}
		return modified([]Event{{Name: name + ":" + point, Type: unix.PERF_TYPE_TRACEPOINT, Config: id}}, mods, ":")
	}
	if err != nil {
		return nil, err
	}
	ev := Event{Name: name, Type: typ, Config: config}
	if typ == unix.PERF_TYPE_SOFTWARE {
		return modified([]Event{ev}, mods, ":")
	}
	cores := sys.corePMUs()
	if len(cores) == 0 {
		return modified([]Event{ev}, mods, ":")
	}
	var events []Event
	for _, pmu := range cores {
		e := ev
		e.Name, e.CPUs = pmu.name+"/"+name+"/", pmu.cpus
		if typ == unix.PERF_TYPE_RAW {
			e.Type = pmu.typ
		} else {
			e.Config |= uint64(pmu.typ) << 32 // PERF_PMU_TYPE_SHIFT
		}
		events = append(events, e)
	}
	return modified(events, mods, "")
}

// modified applies the modifiers to all events and appends them to the names, behind sep.
func modified(events []Event, mods, sep string) ([]Event, error) {
	for i := range events {
		if err := events[i].modify(mods); err != nil {
			return nil, err
		}
		if mods != "" {
			events[i].Name += sep + mods
		}
	}
	return events, nil
}

// A Modifier is a letter that may follow the name of an event, as in "cycles:u".
type Modifier struct {
	Letter rune
	Means  string // in a few words

	group modifierGroup
	apply func(*Event)
}

// modifierGroup is a set of modifiers that each include one thing: the first of them in a name excludes all others.
type modifierGroup uint8

const (
	noGroup modifierGroup = iota
	levels
	machines
	numGroups
)

// modifiers are those of perf's that unspool knows. Errors and the help are made from them.
var modifiers = []Modifier{
	{'u', "user code only", levels, func(e *Event) { e.ExcludeUser = false }},
	{'k', "the kernel only", levels, func(e *Event) { e.ExcludeKernel = false }},
	{'h', "the hypervisor only", levels, func(e *Event) { e.ExcludeHV = false }},
	{'H', "the host only, which is the default", machines, func(e *Event) { e.ExcludeHost = false }},
	{'G', "guests only", machines, func(e *Event) { e.ExcludeGuest = false }},
	{'p', "more precise, also pp and ppp", noGroup, func(e *Event) { e.PreciseIP++ }},
	{'P', "as precise as the CPU can", noGroup, func(e *Event) { e.PreciseIP, e.PreciseMax = 3, true }},
}

// Modifiers returns the modifiers that [ParseEvents] knows. The slice belongs to the caller.
func Modifiers() []Modifier { return slices.Clone(modifiers) }

// modify applies modifiers as perf does. Of those of a group, several include several things: uk is both levels.
// Without H and G, guests are excluded.
func (e *Event) modify(mods string) error {
	var begun [numGroups]bool
	e.ExcludeGuest = true
	for _, letter := range mods {
		i := slices.IndexFunc(modifiers, func(m Modifier) bool { return m.Letter == letter })
		if i < 0 {
			var known []string
			for _, m := range modifiers {
				known = append(known, string(m.Letter))
			}
			return fmt.Errorf("unknown modifier %q (known: %s)", letter, strings.Join(known, ", "))
		}
		m := &modifiers[i]
		if !begun[m.group] {
			begun[m.group] = true
			switch m.group {
			case levels:
				e.ExcludeUser, e.ExcludeKernel, e.ExcludeHV = true, true, true
			case machines:
				e.ExcludeHost, e.ExcludeGuest = true, true
			}
		}
		if m.apply(e); e.PreciseIP > 3 {
			return errors.New("more than three p modifiers")
		}
	}
	return nil
}

// DefaultEvents returns cycles, or cpu-clock if there is no PMU that counts cycles, as in most
// virtual machines. note then tells the user so in one line; else it is empty.
func DefaultEvents() (ev []Event, note string, err error) {
	return hostSystem.defaultEvents(probe)
}

func (sys system) defaultEvents(probe func(Event) error) ([]Event, string, error) {
	cycles, err := sys.parseEvents("cycles")
	if err != nil {
		return nil, "", err
	}
	switch err := probe(cycles[0]); {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP):
		clock, err := sys.parseEvents("cpu-clock")
		return clock, "no hardware PMU here that counts cycles: sampling cpu-clock instead", err
	default:
		return cycles, "", nil // Open explains any other failure
	}
}

// probe opens an event for the user code of this thread, which takes the fewest privileges, and closes it.
func probe(e Event) error {
	attr := unix.PerfEventAttr{
		Type: e.Type, Size: attrSize, Config: e.Config,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// errUnknownEvent is wrapped by the error for a name that lookupEvent does not know.
var errUnknownEvent = errors.New("unknown event")

// lookupEvent finds an event whose numbers do not depend on sysfs.
func lookupEvent(name string) (typ uint32, config uint64, err error) {
	if e, ok := eventNames[name]; ok {
		return e.typ, e.config, nil
	}
	if hex, ok := strings.CutPrefix(name, "r"); ok && hex != "" {
		if v, err := strconv.ParseUint(strings.TrimPrefix(hex, "0x"), 16, 64); err == nil {
			return unix.PERF_TYPE_RAW, v, nil
		}
	}
	if c, ok := cacheEvent(name); ok {
		return unix.PERF_TYPE_HW_CACHE, c, nil
	}
	return 0, 0, fmt.Errorf("%w%s", errUnknownEvent, didYouMean(name, knownEventNames()))
}
