package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/testdata/programs"
)

// What testdata/breakpoint.c does for each "main", "child", and thread of "threads".
const (
	breakpointCalls  = 50
	breakpointWrites = 20
	touchedPages     = 100 // of "faults"
)

// needBreakpoints skips the test where there are no hardware breakpoints, or others have taken all.
func needBreakpoints(t testing.TB) {
	t.Helper()
	needRoot(t)
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_BREAKPOINT, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Sample: 1,
		Bp_type: 2, Ext1: 0x404010, Ext2: 4,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	for _, none := range []error{unix.ENOSPC, unix.ENODEV, unix.EOPNOTSUPP, unix.ENOENT} {
		if errors.Is(err, none) {
			t.Skipf("no hardware breakpoint is to be had: %v", err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
}

// buildBreakpoint builds the program for breakpoints, whose addresses are those in its file.
func buildBreakpoint(t testing.TB) string {
	t.Helper()
	return buildCase(t, "breakpoint.c", "-fno-pie", "-no-pie")
}

// A hit is a sample of an event: where it was taken, and by whom.
type hit struct {
	event    int // in the order of the recording's events
	ip       uint64
	pid, tid int
}

// hitsOf returns the samples of a recording as they are in the file.
func hitsOf(t testing.TB, path string) (hits []hit) {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var s perfring.Sample
	if err := r.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
		if rec.Type() != perfring.RecordSample {
			return nil
		}
		if err := f.Sample(rec, &s); err != nil {
			return err
		}
		event := slices.IndexFunc(r.Events(), func(a perfring.Attr) bool { return slices.Contains(a.IDs, s.ID) })
		hits = append(hits, hit{event, s.IP, int(s.PID), int(s.TID)})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return hits
}

// TestBreakpointsSampleEachHit counts the calls of a function and the writes to a variable: of one thread,
// several, and a child.
func TestBreakpointsSampleEachHit(t *testing.T) {
	t.Parallel()
	needBreakpoints(t)
	program := buildBreakpoint(t)
	called, watched := programs.AddressOf(t, program, "called"), programs.AddressOf(t, program, "watched")
	code, data := fmt.Sprintf("mem:%#x:x:u", called), fmt.Sprintf("mem:%#x/4:w", watched)
	for _, c := range []struct {
		name, how string
		times     int      // that the calls and writes are made
		tasks     int      // that make them
		chain     []string // callers of the function, without those outside of the program
	}{
		{"one thread", "main", 1, 1, []string{"called", "caller", "main"}},
		{"two threads", "threads", 2, 2, []string{"called", "caller", "thread"}},
		{"a child", "child", 1, 1, []string{"called", "caller", "main"}},
		{"all of these", "main threads child", 4, 4, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			// In smaller copies, as the kernel wants room for a full one in the ring for each sample.
			args := []string{"--stack-size", "8192", "-e", code + "," + data, "--", program}
			r := record(t, append(args, strings.Fields(c.how)...)...)
			calls, writes := c.times*breakpointCalls, c.times*breakpointWrites
			if r.stats.Samples.Lost > 0 {
				t.Fatalf("%d samples are lost", r.stats.Samples.Lost)
			}

			var count [2]int
			var tasks []int
			for _, h := range hitsOf(t, r.path) {
				count[h.event]++
				if h.event == 0 && h.ip != called {
					t.Fatalf("a call is at %#x, not at %#x", h.ip, called)
				}
				if !slices.Contains(tasks, h.tid) {
					tasks = append(tasks, h.tid)
				}
			}
			if count != [2]int{calls, writes} || len(tasks) != c.tasks {
				t.Errorf("%d calls and %d writes of %d tasks, not %d and %d of %d", count[0], count[1], len(tasks), calls,
					writes, c.tasks)
			}

			own := ownProfile(t, r.path)
			if own.Events[0].Name != code || own.Events[1].Name != data {
				t.Errorf("the events are called %q and %q", own.Events[0].Name, own.Events[1].Name)
			}
			for _, s := range own.Samples {
				stack := userStack(own, s.Node)
				chain := c.chain
				if s.Event == 1 && chain != nil {
					chain = chain[1:] // the caller writes
				}
				if len(stack) < len(chain) || !slices.Equal(stack[:len(chain)], chain) {
					t.Errorf("%s: %d samples of %s", own.Events[s.Event].Name, s.Count, strings.Join(stack, " < "))
				}
			}
			if r.stats.Unwind.Complete != r.stats.Samples.User {
				t.Errorf("of %d stacks ended: %v", r.stats.Samples.User, r.stats.Unwind.Ended)
			}
			t.Run("perf script", func(t *testing.T) {
				samples := perfScript(t, r.path)
				for event, want := range map[string]int{code: calls, data: writes} {
					if n := share(samples, func(s *sample) bool { return s.event == event }); n != want {
						t.Errorf("%d samples of %s, not %d", n, event, want)
					}
				}
			})
		})
	}
}

// TestBreakpointsBesideASampledEvent has the clock keep its frequency while each hit of a breakpoint is
// sampled, and a breakpoint have the period that is asked for.
func TestBreakpointsBesideASampledEvent(t *testing.T) {
	t.Parallel()
	needBreakpoints(t)
	program := buildBreakpoint(t)
	code := fmt.Sprintf("mem:%#x:x:u", programs.AddressOf(t, program, "called"))
	count := func(r recording) (n int) {
		for _, h := range hitsOf(t, r.path) {
			if h.event == 0 {
				n++
			}
		}
		return n
	}
	r := record(t, "--stack-size", "8192", "-e", code+",cpu-clock", "--", program, "main")
	if n := count(r); n != breakpointCalls {
		t.Errorf("%d samples of %d calls", n, breakpointCalls)
	}
	events := ownProfile(t, r.path).Events
	if events[0].Frequency != 0 || events[1].Frequency != 999 {
		t.Errorf("frequencies %d and %d, not 0 and 999", events[0].Frequency, events[1].Frequency)
	}
	// On one CPU, as each counts by itself; and of the command alone, as others have code at this address, too.
	need(t, "taskset")
	r = record(t, "-c", "10", "-e", code, "--", "taskset", "-c", "0", program, "main")
	if n := count(r); n != breakpointCalls/10 {
		t.Errorf("-c 10: %d samples of %d calls", n, breakpointCalls)
	}
}

// TestConvertOfPerfsBreakpoint converts what perf recorded of a breakpoint.
func TestConvertOfPerfsBreakpoint(t *testing.T) {
	t.Parallel()
	needBreakpoints(t)
	program := buildBreakpoint(t)
	called := programs.AddressOf(t, program, "called")
	code := fmt.Sprintf("mem:%#x:x:u", called)
	r := convert(t, perfRecord(t, []string{"-m", "8M", "-e", code}, program, "main"))
	hits := hitsOf(t, r.path)
	if i := slices.IndexFunc(hits, func(h hit) bool { return h.ip != called }); len(hits) != breakpointCalls ||
		i >= 0 {
		t.Errorf("%d samples, %d wanted; the first one elsewhere is number %d", len(hits), breakpointCalls, i)
	}
	if e := unspool(t, "", "report", r.path); !strings.Contains(e.stdout, "events    "+code+"\n") {
		t.Errorf("report does not name the event:\n%s%s", e.stdout, e.stderr)
	}
	if r.stats.Unwind.Complete != breakpointCalls {
		t.Errorf("ended: %v", r.stats.Unwind.Ended)
	}
}

// TestUnprivilegedBreakpoint has a user without privileges set a breakpoint in a program of their own.
func TestUnprivilegedBreakpoint(t *testing.T) {
	needBreakpoints(t)
	dir := nobodysDirectory(t)
	needParanoid(t)
	program := filepath.Join(dir, "breakpoint")
	copyFile(t, buildBreakpoint(t), program)
	code := fmt.Sprintf("mem:%#x:x", programs.AddressOf(t, program, "called"))
	e := asNobody(t, dir, "record", "--stack-size", "8192", "-e", code, "--", program, "main")
	if e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	path := filepath.Join(dir, "perf.data")
	if hits := hitsOf(t, path); len(hits) != breakpointCalls {
		t.Errorf("%d samples, %d wanted\n%s", len(hits), breakpointCalls, e.stderr)
	}
	if name := ownProfile(t, path).Events[0].Name; name != code+":u" {
		t.Errorf("the event is called %q, not %q", name, code+":u")
	}
}

func TestBreakpointsRunOut(t *testing.T) {
	t.Parallel()
	needBreakpoints(t)
	var names []string
	for i := range 9 { // of which no x86 has as many
		names = append(names, fmt.Sprintf("mem:%#x/1:w", 0x404010+i))
	}
	unspool(t, t.TempDir(), "record", "-q", "-e", strings.Join(names, ","), "true").fails(t, statusFailure,
		"no hardware breakpoint is free: .*record fewer")
}

// TestPageFaultsAreSampledOneByOne has a sample for each page that a function touches.
func TestPageFaultsAreSampledOneByOne(t *testing.T) {
	t.Parallel()
	needRoot(t)
	program := buildCase(t, "breakpoint.c")
	r := record(t, "--stack-size", "8192", "-e", "page-faults:u", "-c", "1", "--", program, "faults")
	if r.stats.Samples.Lost > 0 {
		t.Fatalf("%d samples are lost", r.stats.Samples.Lost)
	}
	own := ownProfile(t, r.path)
	var touched int
	for _, s := range own.Samples {
		if stack := userStack(own, s.Node); stack[0] == "touch" && slices.Contains(stack, "main") {
			touched += int(s.Count)
		}
	}
	if touched != touchedPages {
		t.Errorf("%d samples of %d pages", touched, touchedPages)
	}
}
