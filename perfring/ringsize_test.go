package perfring

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	kb = 1 << 10
	mb = 1 << 20
	gb = 1 << 30
)

// TestRingsFit: rings hold what comes in a quarter of a second, within what all of them may take. Beyond that copies
// become smaller, but only where somebody reads the rest.
func TestRingsFit(t *testing.T) {
	for _, c := range []struct {
		name   string
		rate   uint64
		stack  int
		least  int
		cpus   int
		memory uint64
		asked  int

		samples, others, copied, total int // without the pages of positions
	}{
		{"2 CPUs", 999, MaxStackSize, 0, 2, 24 * gb, 0, 16 * mb, 2 * mb, MaxStackSize, 36 * mb},
		{"the memory is not known", 999, MaxStackSize, 0, 2, 0, 0, 16 * mb, 2 * mb, MaxStackSize, 36 * mb},
		{"1 CPU", 999, MaxStackSize, 8 * kb, 1, gb, 0, 16 * mb, 2 * mb, MaxStackSize, 18 * mb},
		{"14 CPUs", 999, MaxStackSize, 8 * kb, 14, 64 * gb, 0, 16 * mb, 2 * mb, MaxStackSize, 252 * mb},
		{"16 CPUs, nobody reads", 999, MaxStackSize, 0, 16, 64 * gb, 0, 8 * mb, 2 * mb, MaxStackSize, 160 * mb},
		{"16 CPUs, read", 999, MaxStackSize, 8 * kb, 16, 64 * gb, 0, 8 * mb, 2 * mb, 31 * kb, 160 * mb},
		{"16 CPUs, read without real-time priority", 999, MaxStackSize, 32 * kb, 16, 64 * gb, 0, 8 * mb, 2 * mb, 32 * kb,
			160 * mb},
		{"32 CPUs, read", 999, MaxStackSize, 8 * kb, 32, 64 * gb, 0, 4 * mb, 2 * mb, 15 * kb, 192 * mb},
		{"64 CPUs, nobody reads", 999, MaxStackSize, 0, 64, 512 * gb, 0, 2 * mb, mb, MaxStackSize, 192 * mb},
		{"64 CPUs, read", 999, MaxStackSize, 7 * kb, 64, 512 * gb, 0, 2 * mb, mb, 7 * kb, 192 * mb},
		{"256 CPUs, nobody reads", 999, MaxStackSize, 0, 256, 512 * gb, 0, 512 * kb, 256 * kb, MaxStackSize, 192 * mb},
		{"256 CPUs, read", 999, MaxStackSize, 7 * kb, 256, 512 * gb, 0, 512 * kb, 256 * kb, 7 * kb, 192 * mb},
		{"4,096 CPUs: two samples have to fit", 999, MaxStackSize, 0, 4096, 0, 0, 256 * kb, 32 * kb, MaxStackSize, 1152 * mb},
		{"4,096 CPUs, read", 999, MaxStackSize, 7 * kb, 4096, 0, 0, 32 * kb, 32 * kb, 7 * kb, 256 * mb},

		{"20 Hz", 20, MaxStackSize, 0, 2, 24 * gb, 0, mb, 2 * mb, MaxStackSize, 6 * mb},
		{"20 Hz, 64 CPUs", 20, MaxStackSize, 7 * kb, 64, 512 * gb, 0, mb, 2 * mb, MaxStackSize, 192 * mb},
		{"20 Hz, 256 CPUs", 20, MaxStackSize, 7 * kb, 256, 512 * gb, 0, 512 * kb, 256 * kb, MaxStackSize, 192 * mb},
		{"64 Hz", 64, MaxStackSize, 0, 2, 24 * gb, 0, mb, 2 * mb, MaxStackSize, 6 * mb},
		{"65 Hz", 65, MaxStackSize, 0, 2, 24 * gb, 0, 2 * mb, 2 * mb, MaxStackSize, 8 * mb},
		{"two events", 2 * 999, MaxStackSize, 0, 2, 24 * gb, 0, 32 * mb, 2 * mb, MaxStackSize, 68 * mb},
		{"4,999 Hz", 4999, MaxStackSize, 0, 2, 24 * gb, 0, 64 * mb, 2 * mb, MaxStackSize, 132 * mb},
		{"4,999 Hz, read", 4999, MaxStackSize, 32 * kb, 2, 24 * gb, 0, 64 * mb, 2 * mb, 51 * kb, 132 * mb},
		{"the most", 1 << 62, MaxStackSize, 32 * kb, 1, 24 * gb, 0, 128 * mb, 2 * mb, 32 * kb, 130 * mb},
		{"no rate", 0, MaxStackSize, 0, 1, 24 * gb, 0, mb, 2 * mb, MaxStackSize, 3 * mb},

		{"small copies", 999, 8192, 0, 2, 24 * gb, 0, 4 * mb, 2 * mb, 8192, 12 * mb},
		{"no copies", 999, 0, 0, 2, 24 * gb, 0, mb, 2 * mb, 0, 6 * mb},
		{"a copy below the least", 999, 4096, 7 * kb, 256, 0, 0, 512 * kb, 256 * kb, 4096, 192 * mb},

		{"a sixteenth of the memory", 999, MaxStackSize, 7 * kb, 2, gb, 0, 16 * mb, 2 * mb, MaxStackSize, 36 * mb},
		{"little memory", 999, MaxStackSize, 7 * kb, 2, gb / 2, 0, 8 * mb, 2 * mb, 31 * kb, 20 * mb},
		{"little memory, nobody reads", 999, MaxStackSize, 0, 2, gb / 2, 0, 8 * mb, 2 * mb, MaxStackSize, 20 * mb},
		{"hardly any", 999, MaxStackSize, 7 * kb, 1, 16 * mb, 0, 512 * kb, 256 * kb, 7 * kb, 768 * kb},

		{"as asked", 20, MaxStackSize, 7 * kb, 64, gb, 16 * mb, 16 * mb, 2 * mb, MaxStackSize, 1152 * mb},
		{"not a power of two", 999, MaxStackSize, 0, 2, 24 * gb, 24*mb - 1, 16 * mb, 2 * mb, MaxStackSize, 36 * mb},
		{"little is asked for, read", 999, MaxStackSize, 7 * kb, 2, 24 * gb, 4 * mb, 4 * mb, 512 * kb, 15 * kb, 9 * mb},
		{"little is asked for", 999, MaxStackSize, 0, 2, 24 * gb, 4 * mb, 4 * mb, 512 * kb, MaxStackSize, 9 * mb},
		{"a page", 999, MaxStackSize, 0, 2, 24 * gb, 4096, 256 * kb, 32 * kb, MaxStackSize, 576 * kb},
		{"a page, read", 999, MaxStackSize, 7 * kb, 2, 24 * gb, 4096, 32 * kb, 32 * kb, 7 * kb, 128 * kb},
		{"more than there can be", 999, MaxStackSize, 0, 1, 24 * gb, 8 * gb, gb, 2 * mb, MaxStackSize, gb + 2*mb},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := RingNeeds{Rate: c.rate, Stack: c.stack, Least: c.least, Sampled: c.cpus, CPUs: c.cpus, Memory: c.memory,
				Asked: c.asked}
			s := n.Sizes()
			if want := (RingSizes{c.samples, c.others, c.copied}); s != want {
				t.Errorf("%+v, want %+v", s, want)
			}
			if total := n.Total(s) - 2*c.cpus*os.Getpagesize(); total != c.total {
				t.Errorf("%d bytes in all, want %d", total, c.total)
			}
			if total := n.Total(s); c.asked == 0 && c.cpus <= 256 && total > mostForRings {
				t.Errorf("%d bytes in all", total)
			}
		})
	}
}

// TestRingsOnSomeCPUs: what is not sampled has a ring for other records only.
func TestRingsOnSomeCPUs(t *testing.T) {
	n := RingNeeds{Rate: 999, Stack: MaxStackSize, Sampled: 1, CPUs: 64}
	if s := n.Sizes(); s != (RingSizes{16 * mb, 2 * mb, MaxStackSize}) || n.Total(s) != 144*mb+65*os.Getpagesize() {
		t.Errorf("%+v, %d bytes in all", s, n.Total(s))
	}
}

// TestRingsShrink is what follows where no more memory may be locked.
func TestRingsShrink(t *testing.T) {
	for _, c := range []struct {
		n    RingNeeds
		want []RingSizes
	}{
		{RingNeeds{Rate: 999, Stack: MaxStackSize, Least: 32 * kb, Sampled: 2, CPUs: 2}, []RingSizes{
			{16 * mb, 2 * mb, MaxStackSize}, {8 * mb, mb, 32 * kb}, {4 * mb, 512 * kb, 32 * kb}, {2 * mb, 256 * kb, 32 * kb},
			{mb, 128 * kb, 32 * kb}, {512 * kb, 64 * kb, 32 * kb}, {256 * kb, 32 * kb, 32 * kb}, {128 * kb, 32 * kb, 32 * kb},
		}},
		{RingNeeds{Rate: 20, Stack: MaxStackSize, Least: 32 * kb, Sampled: 2, CPUs: 2}, []RingSizes{
			{mb, 2 * mb, MaxStackSize}, {mb, 128 * kb, MaxStackSize}, {512 * kb, 64 * kb, MaxStackSize},
			{256 * kb, 32 * kb, 50 * kb}, {128 * kb, 32 * kb, 32 * kb},
		}},
		{RingNeeds{Rate: 999, Stack: MaxStackSize, Sampled: 2, CPUs: 2, Asked: mb}, []RingSizes{
			{mb, 128 * kb, MaxStackSize}, {512 * kb, 64 * kb, MaxStackSize}, {256 * kb, 32 * kb, MaxStackSize},
		}},
	} {
		s := c.n.Sizes()
		all := []RingSizes{s}
		for c.n.shrink(&s) {
			all = append(all, s)
		}
		if !slices.Equal(all, c.want) {
			t.Errorf("%+v:\n%+v, want\n%+v", c.n, all, c.want)
		}
	}
}

// TestRatesAddUp: the rates of events add up, but for those of the cores of a hybrid machine, each of which has one.
func TestRatesAddUp(t *testing.T) {
	clock, point := Event{Name: "cpu-clock"}, Event{Name: "sched:sched_switch", Type: unix.PERF_TYPE_TRACEPOINT}
	core, atom := Event{Name: "cpu_core/cycles/", CPUs: []int{0, 1}}, Event{Name: "cpu_atom/cycles/", CPUs: []int{2, 3}}
	for _, c := range []struct {
		o       Options
		rate    uint64
		isKnown bool
	}{
		{Options{Events: []Event{clock}}, 999, true},
		{Options{Events: []Event{clock}, Freq: 20}, 20, true},
		{Options{Events: []Event{clock, clock}, Freq: 4999}, 9998, true},
		{Options{Events: []Event{clock}, Freq: 1 << 63}, highestRate, true},
		{Options{Events: []Event{clock}, Period: 1}, 999, false},
		{Options{Events: []Event{point}}, 999, false},
		{Options{Events: []Event{point}, Freq: 999}, 999, true},
		{Options{Events: []Event{clock, point}}, 2 * 999, false},
		{Options{Events: []Event{core, atom}}, 999, true},
		{Options{Events: []Event{core, core, atom, clock}}, 3 * 999, true},
	} {
		if rate, isKnown := c.o.Rate(); rate != c.rate || isKnown != c.isKnown {
			t.Errorf("%+v: %d, %t, want %d, %t", c.o, rate, isKnown, c.rate, c.isKnown)
		}
	}
}

// sized is an opener that has chosen the rings of CPUs.
func sized(t *testing.T, target Target, o Options, cpus int) *opener {
	t.Helper()
	op := &opener{sys: hostSystem, target: target, opts: o}
	if err := op.check(); err != nil {
		t.Fatal(err)
	}
	op.needs.Memory = 24 * gb
	var online []int
	for cpu := range cpus {
		online = append(online, cpu)
	}
	op.size(online)
	return op
}

// TestOpenerSizesRings: what is asked for counts, and copies have the size that is asked for.
func TestOpenerSizesRings(t *testing.T) {
	clock, point := Event{Name: "cpu-clock"}, Event{Name: "x:y", Type: unix.PERF_TYPE_TRACEPOINT}
	core, atom := Event{Name: "cpu_core/cycles/", CPUs: []int{0, 1}}, Event{Name: "cpu_atom/cycles/", CPUs: []int{2, 3}}
	page := os.Getpagesize()
	for _, c := range []struct {
		name   string
		target Target
		o      Options
		cpus   int
		want   RingSizes
		total  int // less the pages of positions
		rate   uint64
	}{
		{"default", Target{AllCPUs: true}, Options{}, 2, RingSizes{16 * mb, 2 * mb, MaxStackSize}, 36 * mb, 999},
		{"default, 64 CPUs", Target{AllCPUs: true}, Options{LeastStack: 7 * kb}, 64, RingSizes{2 * mb, mb, 7 * kb}, 192 * mb,
			999},
		{"a command", Target{Command: 1}, Options{LeastStack: 7 * kb}, 64, RingSizes{2 * mb, mb, 7 * kb}, 192 * mb, 999},
		{"one CPU of 64", Target{AllCPUs: true, CPUs: []int{3}}, Options{}, 64, RingSizes{16 * mb, 2 * mb, MaxStackSize},
			144 * mb, 999},
		{"copies as asked", Target{AllCPUs: true}, Options{StackSize: 65525, LeastStack: 7 * kb}, 64,
			RingSizes{2 * mb, mb, MaxStackSize}, 192 * mb, 999},
		{"ring as asked", Target{AllCPUs: true}, Options{Pages: 16 * mb / page, LeastStack: 7 * kb}, 64,
			RingSizes{16 * mb, 2 * mb, MaxStackSize}, 1152 * mb, 999},
		{"counted", Target{AllCPUs: true}, Options{Events: []Event{point}}, 2, RingSizes{16 * mb, 2 * mb, MaxStackSize},
			36 * mb, 0},
		{"counted, small copies", Target{AllCPUs: true}, Options{Period: 1, StackSize: 1024}, 2,
			RingSizes{16 * mb, 2 * mb, 1024}, 36 * mb, 0},
		{"counted, by an ordinary user", Target{AllCPUs: true}, Options{Period: 1, LeastStack: 32 * kb}, 64,
			RingSizes{2 * mb, mb, 32 * kb}, 192 * mb, 0},
		{"no stacks", Target{AllCPUs: true}, Options{NoStack: true}, 2, RingSizes{mb, 2 * mb, 0}, 6 * mb, 999},
		{"hybrid", Target{AllCPUs: true}, Options{Events: []Event{core, atom}, Freq: 20}, 8,
			RingSizes{mb, 2 * mb, MaxStackSize}, 4 * 3 * mb, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.o.Events == nil {
				c.o.Events = []Event{clock}
			}
			op := sized(t, c.target, c.o, c.cpus)
			total := op.needs.Total(op.sizes) - (op.needs.CPUs+op.needs.Sampled)*page
			if op.sizes != c.want || total != c.total || op.rate != c.rate || op.opts.StackSize != c.want.Stack {
				t.Errorf("%+v, %d bytes in all, at %d Hz, copies of %d, want %+v, %d, %d", op.sizes, total, op.rate,
					op.opts.StackSize, c.want, c.total, c.rate)
			}
			if a := op.attr(0); int(a.Wakeup) != c.want.Samples/4 || int(a.Sample_stack_user) != c.want.Stack {
				t.Errorf("wakes at %d bytes, copies %d", a.Wakeup, a.Sample_stack_user)
			}
		})
	}
}

// TestSmallRingsAreTold: why copies, or rings, are smaller than they would be.
func TestSmallRingsAreTold(t *testing.T) {
	clock := []Event{{Name: "cpu-clock"}}
	for _, c := range []struct {
		name   string
		o      Options
		cpus   int
		shrink int
		want   string
	}{
		{"default", Options{LeastStack: 7 * kb}, 2, 0, ""},
		{"nobody reads", Options{}, 64, 0, ""},
		{"many CPUs", Options{LeastStack: 7 * kb}, 64, 0, "7 KiB of each stack are copied instead of 64, as rings of " +
			"2048 KiB a CPU hold more of these samples; the rest is read when a stack is sampled " +
			"(--stack-size or -m copy more)"},
		{"small rings are asked for", Options{LeastStack: 32 * kb, Pages: 4 * mb / os.Getpagesize()}, 2, 0,
			"32 KiB of each stack are copied instead of 64, as rings of 4096 KiB"},
		{"and copies", Options{LeastStack: 32 * kb, StackSize: 16 * kb, Pages: 1 * mb / os.Getpagesize()}, 2, 0, ""},
		{"locked memory", Options{}, 2, 3, "ring of 2048 KiB a CPU instead of 16384: no more memory may be locked; " +
			"sysctl kernel.perf_event_mlock_kb=18440 makes room"},
		{"locked memory, read", Options{LeastStack: 32 * kb}, 2, 3, "ring of 2048 KiB a CPU instead of 16384, and 32 KiB " +
			"of each stack are copied instead of 64: no more memory may be locked; sysctl " +
			"kernel.perf_event_mlock_kb=18440 makes"},
		{"locked memory at 20 Hz", Options{Freq: 20}, 2, 2, "ring of 512 KiB a CPU instead of 1024: no more memory may be " +
			"locked; sysctl kernel.perf_event_mlock_kb=3080 makes room"},
		{"two samples", Options{Pages: 1}, 2, 0, "ring of 64 pages a CPU instead of 1: two samples with their stacks must"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Events = clock
			op := sized(t, Target{AllCPUs: true}, c.o, c.cpus)
			for range c.shrink {
				if !op.shrink() {
					t.Fatal("rings do not become smaller")
				}
			}
			op.noteSizes()
			if notes := strings.Join(op.notes, "\n"); !strings.HasPrefix(notes, c.want) || c.want == "" && notes != "" {
				t.Errorf("said is\n%s, want\n%s", notes, c.want)
			}
		})
	}
}

// TestRingUse opens rings, and compares what is said of them with what is mapped.
func TestRingUse(t *testing.T) {
	cpus, err := hostSystem.onlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	for _, c := range []struct {
		o         Options
		each, all int // for a CPU, without pages of positions
		lasts     time.Duration
	}{
		{Options{Pages: mb / page, StackSize: 15 * kb, Freq: 64}, mb, mb + 128*kb, time.Second},
		{Options{Freq: 16, StackSize: 15 * kb}, mb, 3 * mb, 4 * time.Second},
		{Options{Pages: mb / page, StackSize: 15 * kb, Period: 1000}, mb, mb + 128*kb, 0},
	} {
		c.o.Events = mustEvents(t, "page-faults:u")
		s, err := Open(Target{PIDs: []int{os.Getpid()}}, c.o)
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
			t.Skipf("needs perf events: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Notes()) > 0 {
			t.Skip(s.Notes())
		}
		want := RingUse{Each: c.each, Total: len(cpus) * (c.all + 2*page), Stack: 15 * kb, Lasts: c.lasts}
		if got := s.RingUse(); got != want || s.QuarterFull() != c.lasts/4 {
			t.Errorf("%+v, a quarter in %v, want %+v", got, s.QuarterFull(), want)
		}
		mapped := 0
		for _, m := range s.rings {
			mapped += len(m.memory)
		}
		if mapped != want.Total {
			t.Errorf("%d bytes are mapped, said are %d", mapped, want.Total)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDefaultRings are those of this machine.
func TestDefaultRings(t *testing.T) {
	s, use := DefaultRings()
	if use.Each != s.Samples || use.Total < s.Samples || use.Total > mostForRings || use.Lasts <= 0 ||
		s.Locked() != s.Samples+s.Others+2*os.Getpagesize() {
		t.Errorf("%+v, %+v", s, use)
	}
}
