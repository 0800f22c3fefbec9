package perfring

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// system is where the kernel's file systems are mounted.
type system struct {
	sys     string   // sysfs
	proc    string   // procfs
	tracefs []string // tried in this order
}

var hostSystem = system{
	sys:     "/sys",
	proc:    "/proc",
	tracefs: []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"},
}

// A pmu is one of /sys/bus/event_source/devices.
type pmu struct {
	name string
	typ  uint32
	cpus []int // the CPUs of one kind of core, on a hybrid CPU
}

// maxCPU bounds the numbers in a CPU list; the kernel's own limit, NR_CPUS, is 8192.
const maxCPU = 1 << 16

// corePMUs returns the PMUs of a hybrid CPU, one for each kind of core, and none for other CPUs.
func (sys system) corePMUs() []pmu {
	var cores []pmu
	for _, name := range []string{"cpu_core", "cpu_atom", "cpu_lowpower"} {
		p, err := sys.pmu(name)
		if err != nil {
			continue
		}
		if p.cpus, err = ReadCPUList(filepath.Join(sys.pmuDir(name), "cpus")); err != nil || len(p.cpus) == 0 {
			continue
		}
		cores = append(cores, p)
	}
	return cores
}

func (sys system) pmuDir(name string) string {
	return filepath.Join(sys.sys, "bus/event_source/devices", name)
}

func (sys system) pmu(name string) (pmu, error) {
	if !plainName(name) {
		return pmu{}, fmt.Errorf("bad PMU name %q", name)
	}
	typ, err := readUint(filepath.Join(sys.pmuDir(name), "type"), 32)
	if errors.Is(err, fs.ErrNotExist) {
		var names []string
		entries, _ := os.ReadDir(sys.pmuDir(""))
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return pmu{}, fmt.Errorf("no PMU %q here (there are: %s)", name, strings.Join(names, ", "))
	}
	return pmu{name: name, typ: uint32(typ)}, err
}

// pmuEvent reads the terms between the slashes of pmu/terms/: config, config1, config2 and names in the
// PMU's format directory, each with a number; and names in its events directory, without one.
func (sys system) pmuEvent(name, terms string) (Event, error) {
	p, err := sys.pmu(name)
	if err != nil {
		return Event{}, err
	}
	e := Event{Type: p.typ}
	e.CPUs, _ = ReadCPUList(filepath.Join(sys.pmuDir(name), "cpus")) // hybrid cores only
	if !sys.hybridName(e, name, terms) {
		return e, sys.applyTerms(&e, name, terms, true)
	}
	typ, config, err := lookupEvent(terms)
	e.Type, e.Config = typ, config|uint64(p.typ)<<32 // PERF_PMU_TYPE_SHIFT
	return e, err
}

// hybridName reports whether terms is the name of a generalized hardware event, as in cpu_core/cycles/, and
// not that of an event of the PMU.
func (sys system) hybridName(e Event, name, terms string) bool {
	if e.CPUs == nil || !plainName(terms) {
		return false
	}
	if _, err := os.Stat(filepath.Join(sys.pmuDir(name), "events", terms)); err == nil {
		return false
	}
	typ, _, err := lookupEvent(terms)
	return err == nil && (typ == unix.PERF_TYPE_HARDWARE || typ == unix.PERF_TYPE_HW_CACHE)
}

func (sys system) applyTerms(e *Event, name, terms string, aliases bool) error {
	for _, term := range strings.Split(terms, ",") {
		if term = strings.TrimSpace(term); term == "" {
			continue
		}
		key, text, hasValue := strings.Cut(term, "=")
		if !plainName(key) {
			return fmt.Errorf("bad term %q", term)
		}
		if aliases && !hasValue {
			// The file of an event holds terms, but no names of other events.
			own, err := os.ReadFile(filepath.Join(sys.pmuDir(name), "events", key))
			if err == nil {
				if err := sys.applyTerms(e, name, strings.TrimSpace(string(own)), false); err != nil {
					return err
				}
				continue
			}
		}
		value := uint64(1)
		if hasValue {
			var err error
			if value, err = strconv.ParseUint(text, 0, 64); err != nil {
				return fmt.Errorf("term %q: not a number", term)
			}
		}
		switch key {
		case "config":
			e.Config |= value
		case "config1":
			e.Config1 |= value
		case "config2":
			e.Config2 |= value
		default:
			format, err := os.ReadFile(filepath.Join(sys.pmuDir(name), "format", key))
			if err != nil {
				return fmt.Errorf("PMU %s has no term %q", name, key)
			}
			if err := e.place(strings.TrimSpace(string(format)), value); err != nil {
				return fmt.Errorf("term %q: %w", term, err)
			}
		}
	}
	return nil
}

// place puts value into the bits that a file in the format directory lists: "config:0-7,32-35", the
// lowest bits first.
func (e *Event) place(format string, value uint64) error {
	field, list, _ := strings.Cut(format, ":")
	var word *uint64
	switch field {
	case "config":
		word = &e.Config
	case "config1":
		word = &e.Config1
	case "config2":
		word = &e.Config2
	default:
		return fmt.Errorf("format %q: unknown field", format)
	}
	bits, err := parseCPUList(list)
	if err != nil || len(bits) == 0 || slices.Max(bits) > 63 {
		return fmt.Errorf("format %q: bad bits", format)
	}
	for i, bit := range bits {
		*word |= value >> i & 1 << bit
	}
	if len(bits) < 64 && value>>len(bits) != 0 {
		return fmt.Errorf("%#x does not fit into %d bits", value, len(bits))
	}
	return nil
}

// tracepoint returns the id of a tracepoint.
func (sys system) tracepoint(group, name string) (uint64, error) {
	if strings.ContainsAny(group+name, "*?[") {
		return 0, errors.New("wildcards are not supported, name one tracepoint")
	}
	if !plainName(group) || !plainName(name) {
		return 0, fmt.Errorf("%w%s", errUnknownEvent, didYouMean(group, knownEventNames()))
	}
	for _, root := range sys.tracefs {
		id, err := readUint(filepath.Join(root, "events", group, name, "id"), 63)
		switch {
		case err == nil:
			return id, nil
		case errors.Is(err, fs.ErrPermission):
			return 0, fmt.Errorf("reading the tracepoint's ID: %w (tracepoints are for root, or remount tracefs "+
				"with: mount -o remount,mode=755 %s)", err, root)
		case !errors.Is(err, fs.ErrNotExist):
			return 0, err
		}
		groups, err := os.ReadDir(filepath.Join(root, "events"))
		if errors.Is(err, fs.ErrPermission) {
			return 0, fmt.Errorf("reading tracefs: %w (tracepoints are for root)", err)
		}
		if err != nil {
			continue // not mounted here
		}
		points, err := os.ReadDir(filepath.Join(root, "events", group))
		if err != nil {
			return 0, fmt.Errorf("no tracepoint group %q%s", group,
				didYouMean(group, append(fileNames(groups), knownEventNames()...)))
		}
		return 0, fmt.Errorf("no tracepoint %q in group %s%s", name, group, didYouMean(name, fileNames(points)))
	}
	return 0, fmt.Errorf("a tracepoint needs tracefs, which is not mounted: mount -t tracefs nodev %s%s",
		sys.tracefs[0], didYouMean(group, knownEventNames()))
}

func fileNames(entries []os.DirEntry) []string {
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// plainName reports whether name is safe as one component of a path.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

func readUint(path string, bits int) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, bits)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// ReadCPUList reads a file of CPU numbers below /sys, such as devices/system/cpu/online.
func ReadCPUList(path string) ([]int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cpus, err := parseCPUList(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cpus, nil
}

// ParseCPUs reads a list of CPUs that a user gives, as "0,2-3": each once, and at least one.
func ParseCPUs(s string) ([]int, error) {
	cpus, err := parseCPUList(s)
	if err != nil || len(cpus) == 0 {
		return nil, fmt.Errorf("bad CPU list %q: must be as in 0,2-3", s)
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

// parseCPUList reads the kernel's list format, "0-3,8".
func parseCPUList(s string) ([]int, error) {
	var cpus []int
	if s == "" {
		return nil, nil
	}
	for _, part := range strings.Split(s, ",") {
		lo, hi, ok := strings.Cut(part, "-")
		if !ok {
			hi = lo
		}
		first, err1 := strconv.ParseUint(lo, 10, 31)
		last, err2 := strconv.ParseUint(hi, 10, 31)
		if err1 != nil || err2 != nil || first > last || last > maxCPU || len(cpus) > maxCPU {
			return nil, fmt.Errorf("bad CPU list %q", s)
		}
		for c := first; c <= last; c++ {
			cpus = append(cpus, int(c))
		}
	}
	return cpus, nil
}

func (sys system) onlineFile() string { return filepath.Join(sys.sys, "devices/system/cpu/online") }

// onlineCPUs returns the CPUs that events can be opened on.
func (sys system) onlineCPUs() ([]int, error) {
	cpus, err := ReadCPUList(sys.onlineFile())
	if err == nil && len(cpus) == 0 {
		err = errors.New("no CPU is online")
	}
	return cpus, err
}
