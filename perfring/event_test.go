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

// Each modifier changes the event, alone, or behind G where it says what is the default.
func TestEveryModifierHasAnEffect(t *testing.T) {
	of := func(mods string) Event {
		e := Event{}
		if err := e.modify(mods); err != nil {
			t.Fatal(err)
		}
		return e
	}
	for _, m := range Modifiers() {
		letter := string(m.Letter)
		if reflect.DeepEqual(of(letter), of("")) && reflect.DeepEqual(of("G"+letter), of("G")) {
			t.Errorf("%s has no effect", letter)
		}
	}
}

// What an event excludes, the kernel is asked to exclude.
func TestEveryExclusionReachesTheKernel(t *testing.T) {
	asked := func(e Event) uint64 {
		op := opener{target: Target{AllCPUs: true}, opts: Options{Events: []Event{e}, Period: 1}}
		if err := op.check(); err != nil {
			t.Fatal(err)
		}
		return op.attr(0).Bits
	}
	fields := reflect.TypeFor[Event]()
	for i := range fields.NumField() {
		f := fields.Field(i)
		if !strings.HasPrefix(f.Name, "Exclude") {
			continue
		}
		var e Event
		reflect.ValueOf(&e).Elem().Field(i).SetBool(true)
		if asked(e) == asked(Event{}) {
			t.Errorf("%s does not reach it", f.Name)
		}
	}
}

func TestParseEvents(t *testing.T) {
	core, atom := []int{0, 1, 2, 3}, []int{4, 5, 6, 7, 9}
	bp := uint32(unix.PERF_TYPE_BREAKPOINT)
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
		{plainMachine, "mem:0x401136:x:u", []Event{{Name: "mem:0x401136:x:u", Type: bp, Config1: 0x401136,
			Config2: 8, BreakpointType: 4, ExcludeGuest: true, ExcludeKernel: true, ExcludeHV: true}}},
		{plainMachine, "mem:4210704", []Event{
			{Name: "mem:4210704", Type: bp, Config1: 0x404010, Config2: 4, BreakpointType: 3, ExcludeGuest: true}}},
		{plainMachine, "mem:0x404010:u", []Event{{Name: "mem:0x404010:u", Type: bp, Config1: 0x404010, Config2: 4,
			BreakpointType: 3, ExcludeGuest: true, ExcludeKernel: true, ExcludeHV: true}}},
		{plainMachine, "mem:0x404011/1:wr:k", []Event{{Name: "mem:0x404011/1:wr:k", Type: bp, Config1: 0x404011,
			Config2: 1, BreakpointType: 3, ExcludeGuest: true, ExcludeUser: true, ExcludeHV: true}}},
		{plainMachine, "mem:0x404010/4:w, mem:0xffffffff81000001/8:x,cpu/event=1,umask=2/", []Event{
			{Name: "mem:0x404010/4:w", Type: bp, Config1: 0x404010, Config2: 4, BreakpointType: 2, ExcludeGuest: true},
			{Name: "mem:0xffffffff81000001/8:x", Type: bp, Config1: 0xffffffff81000001, Config2: 8, BreakpointType: 4,
				ExcludeGuest: true},
			{Name: "cpu/event=1,umask=2/", Type: 4, Config: 0x201, ExcludeGuest: true}}},
		{hybridMachine, "mem:0x404010/2:w", []Event{
			{Name: "mem:0x404010/2:w", Type: bp, Config1: 0x404010, Config2: 2, BreakpointType: 2,
				ExcludeGuest: true}}},
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
		{plainMachine, "mem:", "the address is missing"},
		{plainMachine, "mem:/4:w", "the address is missing"},
		{plainMachine, "mem:0:x", "address 0"},
		{plainMachine, "mem:main:x", "not a number"},
		{plainMachine, "mem:0x:x", "not a number"},
		{plainMachine, "mem:-8:w", "not a number"},
		{plainMachine, "mem:40113a:x", "as in mem:0x40113a"},
		{plainMachine, "mem:0000000000401136:x", "as in mem:0x401136"},
		{plainMachine, "mem:0x10000000000000000:x", "more than 64 bits"},
		{plainMachine, "mem:0x404011:w", "not a multiple of the length 4: try mem:0x404011/1"},
		{plainMachine, "mem:0x404014/8:w", "not a multiple of the length 8: try mem:0x404014/4"},
		{plainMachine, "mem:0x404010/3:w", "must be 1, 2, 4 or 8"},
		{plainMachine, "mem:0x404010/16:w", "must be 1, 2, 4 or 8"},
		{plainMachine, "mem:0x404010/:w", "must be 1, 2, 4 or 8"},
		{plainMachine, "mem:0x404010/4/:w", "must be 1, 2, 4 or 8"},
		{plainMachine, "mem:0x401136/4:x", "leave it out"},
		{plainMachine, "mem:0x404010:r", "use rw"},
		{plainMachine, "mem:0x404010:rwx", "x cannot be combined"},
		{plainMachine, "mem:0x404010:ww", "twice"},
		{plainMachine, "mem:0x404010:rwu", "another colon"},
		{plainMachine, "mem:0x404010:q", "unknown modifier 'q' (known: u, k, h, H, G, p, P), and no access"},
		{plainMachine, "mem:0x404010:w:q", "unknown modifier 'q'"},
		{plainMachine, "mem:0xffffffff81000000:x:u", "is in the kernel"},
		{map[string]string{}, "sched:sched_switch", "mount -t tracefs nodev"},
	} {
		ev, err := fakeSystem(t, c.machine).parseEvents(c.spec)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, %v; want %q", c.spec, ev, err, c.want)
		}
	}
}

// TestUserOnlyShowsInTheName is about events that are recorded in user code only for want of privileges.
func TestUserOnlyShowsInTheName(t *testing.T) {
	for spec, want := range map[string]string{
		"cycles":                  "cycles:u",
		"cycles:pp":               "cycles:ppu",
		"cpu/event=1/":            "cpu/event=1/u",
		"sched:sched_switch":      "sched:sched_switch:u",
		"mem:0x401136:x":          "mem:0x401136:x:u",
		"mem:0x404010":            "mem:0x404010:u",
		"mem:0x404010/4":          "mem:0x404010/4:u",
		"mem:0x404010/4:rw:p":     "mem:0x404010/4:rw:pu",
		"mem:0x404010:p":          "mem:0x404010:pu",
		"mem:0x404010/4:w:u":      "mem:0x404010/4:w:u",
		"sched:sched_switch:H":    "sched:sched_switch:Hu",
		"mem:0x401136/8:x:uH":     "mem:0x401136/8:x:uH",
		"L1-dcache-load-misses:H": "L1-dcache-load-misses:Hu",
	} {
		events, err := fakeSystem(t, plainMachine).parseEvents(spec)
		if err != nil {
			t.Fatal(err)
		}
		op := opener{opts: Options{Events: events}, userOnly: true}
		if got := op.name(0); got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
}

// TestRates checks what is opened of events for which a rate, a period or neither is asked for.
func TestRates(t *testing.T) {
	const list = "cpu-clock,mem:0x401136:x,sched:sched_switch"
	events, err := fakeSystem(t, plainMachine).parseEvents(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		freq, period uint64
		want         [3]uint64
		byFreq       [3]bool
	}{
		{"neither", 0, 0, [3]uint64{defaultFreq, 1, 1}, [3]bool{true, false, false}},
		{"a rate", 50, 0, [3]uint64{50, 50, 50}, [3]bool{true, true, true}},
		{"a period", 0, 7, [3]uint64{7, 7, 7}, [3]bool{}},
	} {
		op := opener{sys: fakeSystem(t, nil), target: Target{AllCPUs: true},
			opts: Options{Events: events, Freq: c.freq, Period: c.period}}
		if err := op.check(); err != nil {
			t.Fatal(err)
		}
		for i := range events {
			a := op.attr(i)
			if byFreq := a.Bits&unix.PerfBitFreq != 0; a.Sample != c.want[i] || byFreq != c.byFreq[i] {
				t.Errorf("%s: %s: %d, by frequency %v", c.name, events[i].Name, a.Sample, byFreq)
			}
			// With a period of its own, a sample would be taken of each event: see attr.
			if has := a.Sample_type&unix.PERF_SAMPLE_PERIOD != 0; has != (c.period == 0) {
				t.Errorf("%s: %s: samples have a period: %v", c.name, events[i].Name, has)
			}
			if a.Bp_type != events[i].BreakpointType || a.Ext1 != events[i].Config1 || a.Ext2 != events[i].Config2 {
				t.Errorf("%s: type %d, address %#x, length %d", events[i].Name, a.Bp_type, a.Ext1, a.Ext2)
			}
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
		"cpu/event=0x3c,umask=1/u", "r1a8", "a,b", "cpu/split=7/", "mem:0x401136:x:u", "mem:0x404010/4:w,mem:8"} {
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
