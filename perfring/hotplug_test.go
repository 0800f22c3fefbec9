package perfring

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCPUThatComesBackIsRecordedAgain removes the events of a CPU as the kernel does when a CPU goes offline.
// The test writes the list of the CPUs that are online.
func TestCPUThatComesBackIsRecordedAgain(t *testing.T) {
	sys, online := withOnlineCPUs(t, "0-1\n")
	s, err := sys.open(Target{AllCPUs: true}, twoClocks(t))
	if err != nil {
		t.Skip(err)
	}
	defer s.Close()
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	follow := func(want string) {
		t.Helper()
		notes := strings.Join(s.FollowCPUs(), "; ")
		if !strings.Contains(notes, want) || want == "" && notes != "" {
			t.Errorf("%q, want %q", notes, want)
		}
	}
	follow("")
	online("0\n")
	follow("CPU 1 went offline")
	if were := s.OfflineCPUs(); !slices.Equal(were, []int{1}) {
		t.Errorf("offline were %v", were)
	}
	for _, d := range s.fds {
		if d.cpu == 1 {
			if err := unix.IoctlSetInt(d.fd, unix.PERF_EVENT_IOC_DISABLE, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Drain(func(Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	online("0-1\n")
	follow("CPU 1 is online again, and is recorded")
	follow("")

	onBoth(t, 200*time.Millisecond)
	if err := s.Disable(); err != nil {
		t.Fatal(err)
	}
	if samples := samplesOn(t, s, 1); samples["cpu-clock"] < 20 || samples["task-clock"] < 20 {
		t.Errorf("samples of CPU 1: %v", samples)
	}
	online("0-2\n")
	follow("CPU 2 came online, and is not recorded")
	follow("")
}

// TestCPUThatComesOnlineIsRecorded opens a Source while the list of CPUs lacks one.
func TestCPUThatComesOnlineIsRecorded(t *testing.T) {
	sys, online := withOnlineCPUs(t, "0\n")
	s, err := sys.open(Target{AllCPUs: true}, twoClocks(t))
	if err != nil {
		t.Skip(err)
	}
	defer s.Close()
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	online("0-1\n")
	if notes := s.FollowCPUs(); !slices.Equal(notes, []string{"CPU 1 came online, and is recorded"}) {
		t.Errorf("%q", notes)
	}
	if notes := s.FollowCPUs(); notes != nil || !slices.Equal(s.OfflineCPUs(), []int{1}) {
		t.Errorf("%q; offline were %v", notes, s.OfflineCPUs())
	}
	onBoth(t, 200*time.Millisecond)
	if err := s.Drain(func(Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	onBoth(t, 200*time.Millisecond)
	if err := s.Disable(); err != nil {
		t.Fatal(err)
	}
	if samples := samplesOn(t, s, 1); samples["cpu-clock"] < 20 || samples["task-clock"] < 20 {
		t.Errorf("samples of CPU 1: %v", samples)
	}
}

// twoClocks samples two events without stacks: so the rings hold all samples of the seconds that onBoth may
// take beside other programs.
func twoClocks(t *testing.T) Options {
	return Options{Events: mustEvents(t, "cpu-clock,task-clock"), NoStack: true}
}

// withOnlineCPUs is the host with a list of CPUs that are online that the test writes.
func withOnlineCPUs(t *testing.T, cpus string) (sys system, online func(cpus string)) {
	t.Helper()
	if cpus, err := hostSystem.onlineCPUs(); err != nil || len(cpus) < 2 || cpus[1] != 1 {
		t.Skipf("skipped for want of two CPUs: %v", cpus)
	}
	sys = hostSystem
	sys.sys = t.TempDir()
	list := filepath.Join(sys.sys, "devices/system/cpu/online")
	if err := os.MkdirAll(filepath.Dir(list), 0o755); err != nil {
		t.Fatal(err)
	}
	online = func(cpus string) {
		t.Helper()
		if err := os.WriteFile(list, []byte(cpus), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	online(cpus)
	return sys, online
}

// samplesOn flushes a Source, and counts the samples of a CPU by event. Every record has to be of an event
// that is listed.
func samplesOn(t *testing.T, s *Source, cpu uint32) map[string]int {
	t.Helper()
	format, attrs := s.Format(), s.Attrs()
	samples := make(map[string]int)
	if err := s.Flush(func(r Record) error {
		id, ok := format.ID(r)
		i := slices.IndexFunc(attrs, func(a Attr) bool { return slices.Contains(a.IDs, id) })
		if ok && i < 0 {
			t.Errorf("%v of an event that nobody knows", r.Type())
		}
		var sm Sample
		if r.Type() == RecordSample && i >= 0 && format.Sample(r, &sm) == nil && sm.CPU == cpu {
			samples[attrs[i].Name]++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return samples
}

// onBoth keeps the first two CPUs busy, each until it has had so much of it.
func onBoth(t *testing.T, d time.Duration) {
	t.Helper()
	done := make(chan bool)
	for cpu := range 2 {
		go func() {
			defer func() { done <- true }()
			onCPU(cpu, func() {
				began, end := threadTime(), time.Now().Add(20*d)
				for threadTime()-began < d && time.Now().Before(end) {
				}
			})
		}()
	}
	<-done
	<-done
}

// threadTime is the CPU time that the calling thread has had.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// onCPU calls fn in a thread that is bound to a CPU, and ends then.
func onCPU(cpu int, fn func()) {
	done := make(chan bool)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var set unix.CPUSet
		set.Set(cpu)
		_ = unix.SchedSetaffinity(0, &set)
		fn()
		done <- true
	}()
	<-done
}
