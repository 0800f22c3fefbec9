package perfring

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

// fakeSystem is a sysfs and tracefs made of the given files.
func fakeSystem(t *testing.T, files map[string]string) system {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return system{sys: filepath.Join(root, "sys"), proc: filepath.Join(root, "proc"),
		tracefs: []string{filepath.Join(root, "tracing")}}
}

const devices = "sys/bus/event_source/devices/"

var plainMachine = map[string]string{
	devices + "cpu/type":                        "4\n",
	devices + "cpu/format/event":                "config:0-7\n",
	devices + "cpu/format/umask":                "config:8-15\n",
	devices + "cpu/format/split":                "config:0-1,32\n",
	devices + "cpu/format/ldlat":                "config1:0-15\n",
	devices + "cpu/events/mem-loads":            "event=0xcd,umask=0x1,ldlat=3\n",
	devices + "software/type":                   "1\n",
	"tracing/events/sched/sched_switch/id":      "316\n",
	"tracing/events/sched/sched_wakeup/id":      "319\n",
	"tracing/events/syscalls/sys_enter_open/id": "600\n",
}

var hybridMachine = map[string]string{
	devices + "cpu_core/type": "4\n", devices + "cpu_core/cpus": "0-3\n",
	devices + "cpu_atom/type": "10\n", devices + "cpu_atom/cpus": "4-7,9\n",
	devices + "cpu_atom/format/event": "config:0-7\n",
}

func TestParseEvents(t *testing.T) {
	core, atom := []int{0, 1, 2, 3}, []int{4, 5, 6, 7, 9}
	hw, sw, cache, raw := uint32(unix.PERF_TYPE_HARDWARE), uint32(unix.PERF_TYPE_SOFTWARE),
		uint32(unix.PERF_TYPE_HW_CACHE), uint32(unix.PERF_TYPE_RAW)
	for _, c := range []struct {
		machine map[string]string
		spec    string
		want    []Event
	}{
		{plainMachine, "cycles", []Event{{Name: "cycles", Type: hw, ExcludeGuest: true}}},
		{plainMachine, "cpu-cycles:u",
			[]Event{{Name: "cpu-cycles:u", Type: hw, ExcludeGuest: true, ExcludeKernel: true, ExcludeHV: true}}},
		{plainMachine, "instructions:k",
			[]Event{{Name: "instructions:k", Type: hw, Config: 1, ExcludeGuest: true, ExcludeUser: true,
				ExcludeHV: true}}},
		{plainMachine, "cycles:ukpp", []Event{
			{Name: "cycles:ukpp", Type: hw, ExcludeGuest: true, ExcludeHV: true, PreciseIP: 2}}},
		{plainMachine, "cycles:PG", []Event{
			{Name: "cycles:PG", Type: hw, ExcludeHost: true, PreciseIP: 3, PreciseMax: true}}},
		{plainMachine, "cycles:HG", []Event{{Name: "cycles:HG", Type: hw}}},
		{plainMachine, " cs , migrations", []Event{
			{Name: "cs", Type: sw, Config: 3, ExcludeGuest: true},
			{Name: "migrations", Type: sw, Config: 4, ExcludeGuest: true}}},
		{plainMachine, "L1-dcache-load-misses",
			[]Event{{Name: "L1-dcache-load-misses", Type: cache, Config: 0x10000, ExcludeGuest: true}}},
		{plainMachine, "LLC-stores:u",
			[]Event{{Name: "LLC-stores:u", Type: cache, Config: 0x102, ExcludeGuest: true, ExcludeKernel: true,
				ExcludeHV: true}}},
		{plainMachine, "iTLB-misses", []Event{
			{Name: "iTLB-misses", Type: cache, Config: 0x10004, ExcludeGuest: true}}},
		{plainMachine, "branch-load-misses",
			[]Event{{Name: "branch-load-misses", Type: cache, Config: 0x10005, ExcludeGuest: true}}},
		{plainMachine, "node-prefetches",
			[]Event{{Name: "node-prefetches", Type: cache, Config: 0x206, ExcludeGuest: true}}},
		{plainMachine, "r1a8", []Event{{Name: "r1a8", Type: raw, Config: 0x1a8, ExcludeGuest: true}}},
		{plainMachine, "sched:sched_switch",
			[]Event{{Name: "sched:sched_switch", Type: unix.PERF_TYPE_TRACEPOINT, Config: 316, ExcludeGuest: true}}},
		{plainMachine, "sched:sched_switch:k",
			[]Event{{Name: "sched:sched_switch:k", Type: unix.PERF_TYPE_TRACEPOINT, Config: 316,
				ExcludeGuest: true, ExcludeUser: true, ExcludeHV: true}}},
		{plainMachine, "cpu/event=0x3c,umask=1/u,faults", []Event{
			{Name: "cpu/event=0x3c,umask=1/u", Type: 4, Config: 0x13c, ExcludeGuest: true, ExcludeKernel: true,
				ExcludeHV: true},
			{Name: "faults", Type: sw, Config: 2, ExcludeGuest: true}}},
		{plainMachine, "cpu/split=7/",
			[]Event{{Name: "cpu/split=7/", Type: 4, Config: 1<<32 | 3, ExcludeGuest: true}}},
		{plainMachine, "cpu/mem-loads/P",
			[]Event{{Name: "cpu/mem-loads/P", Type: 4, Config: 0x1cd, Config1: 3, ExcludeGuest: true, PreciseIP: 3,
				PreciseMax: true}}},
		{plainMachine, "cpu/config=0x3c,config1=5/",
			[]Event{{Name: "cpu/config=0x3c,config1=5/", Type: 4, Config: 0x3c, Config1: 5, ExcludeGuest: true}}},
		{hybridMachine, "cycles:u", []Event{
			{Name: "cpu_core/cycles/u", Type: hw, Config: 4 << 32, CPUs: core, ExcludeGuest: true, ExcludeKernel: true,
				ExcludeHV: true},
			{Name: "cpu_atom/cycles/u", Type: hw, Config: 10 << 32, CPUs: atom, ExcludeGuest: true,
				ExcludeKernel: true, ExcludeHV: true}}},
		{hybridMachine, "r3c", []Event{
			{Name: "cpu_core/r3c/", Type: 4, Config: 0x3c, CPUs: core, ExcludeGuest: true},
			{Name: "cpu_atom/r3c/", Type: 10, Config: 0x3c, CPUs: atom, ExcludeGuest: true}}},
		{hybridMachine, "cpu-clock", []Event{{Name: "cpu-clock", Type: sw, ExcludeGuest: true}}},
		{hybridMachine, "cpu_atom/instructions/",
			[]Event{{Name: "cpu_atom/instructions/", Type: hw, Config: 10<<32 | 1, CPUs: atom, ExcludeGuest: true}}},
		{hybridMachine, "cpu_atom/event=0x3c/",
			[]Event{{Name: "cpu_atom/event=0x3c/", Type: 10, Config: 0x3c, CPUs: atom, ExcludeGuest: true}}},
	} {
		got, err := fakeSystem(t, c.machine).parseEvents(c.spec)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
		} else if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.spec, got, c.want)
		}
	}
}

func TestParseEventsErrorsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		machine    map[string]string
		spec, want string
	}{
		{plainMachine, "", "a name is missing"},
		{plainMachine, "cycles,,faults", "a name is missing"},
		{plainMachine, "{cycles,faults}", "groups"},
		{plainMachine, "cycels", "did you mean cycles"},
		{plainMachine, "task-clok", "did you mean task-clock"},
		{plainMachine, "cycles:x", "unknown modifier 'x'"},
		{plainMachine, "cycles:pppp", "three p"},
		{plainMachine, "cycels:u", "did you mean cycles"},
		{plainMachine, "sched:sched_swich", "did you mean sched_switch"},
		{plainMachine, "shed:sched_switch", "did you mean sched"},
		{plainMachine, "sched:*", "wildcards"},
		{plainMachine, "sched:../../x", "no PMU"},
		{plainMachine, "..:id", "unknown event"},
		{plainMachine, "cpu/event=0x3c", "closing /"},
		{plainMachine, "cpu/event=256/", "8 bits"},
		{plainMachine, "cpu/nosuch=1/", `no term "nosuch"`},
		{plainMachine, "cpu/event=x/", "not a number"},
		{plainMachine, "gpu/event=1/", "there are: cpu, software"},
		{map[string]string{}, "sched:sched_switch", "mount -t tracefs nodev"},
	} {
		ev, err := fakeSystem(t, c.machine).parseEvents(c.spec)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, %v; want %q", c.spec, ev, err, c.want)
		}
	}
}

func TestDefaultEventsFallBackToTheClock(t *testing.T) {
	sys := fakeSystem(t, hybridMachine)
	for _, c := range []struct {
		err  error
		want []string
		note bool
	}{
		{nil, []string{"cpu_core/cycles/", "cpu_atom/cycles/"}, false},
		{unix.EACCES, []string{"cpu_core/cycles/", "cpu_atom/cycles/"}, false},
		{unix.ENOENT, []string{"cpu-clock"}, true},
		{unix.EOPNOTSUPP, []string{"cpu-clock"}, true},
	} {
		ev, note, err := sys.defaultEvents(func(Event) error { return c.err })
		var names []string
		for _, e := range ev {
			names = append(names, e.Name)
		}
		if err != nil || !slices.Equal(names, c.want) || (note != "") != c.note {
			t.Errorf("probe %v: %v, %q, %v", c.err, names, note, err)
		}
	}
}

func TestParseEventsOnThisMachine(t *testing.T) {
	ev, err := ParseEvents("cpu-clock:u,page-faults")
	if err != nil || len(ev) != 2 {
		t.Fatal(ev, err)
	}
	if err := probe(ev[0]); err != nil {
		t.Skipf("perf_event_open: %v", err)
	}
	ev, note, err := DefaultEvents()
	if err != nil || len(ev) == 0 {
		t.Fatal(ev, err)
	}
	t.Logf("default: %s %s", ev[0].Name, note)
}

func TestParseCPUList(t *testing.T) {
	for s, want := range map[string][]int{"": nil, "0": {0}, "0-2,5": {0, 1, 2, 5},
		"0-1,4,6-7": {0, 1, 4, 6, 7}} {
		if got, err := parseCPUList(s); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"x", "3-1", "0-4294967295", "0-99999999", "0-,1", ","} {
		if got, err := parseCPUList(s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	for s, want := range map[string][]int{"0": {0}, "2,0-1": {0, 1, 2}, "1,1": {1}} {
		if got, err := ParseCPUs(s); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "all", "1-0", "-1"} {
		if got, err := ParseCPUs(s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func TestReadCPUList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "online")
	if cpus, err := ReadCPUList(path); err == nil {
		t.Errorf("without a file: %v", cpus)
	}
	if err := os.WriteFile(path, []byte("0-3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if cpus, err := ReadCPUList(path); err != nil || !slices.Equal(cpus, []int{0, 1, 2, 3}) {
		t.Errorf("%v, %v", cpus, err)
	}
}

func FuzzParseEvents(f *testing.F) {
	for _, s := range []string{"cycles:u", "L1-dcache-load-misses", "sched:sched_switch:k",
		"cpu/event=0x3c,umask=1/u", "r1a8", "a,b", "cpu/split=7/"} {
		f.Add(s)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, spec string) {
		defer costs.For(len(spec)).Check(t)()
		ev, err := hostSystem.parseEvents(spec)
		if err == nil && len(ev) == 0 {
			t.Fatal("neither events nor an error")
		}
	}))
}
