package perfring

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCPUThatComesBackIsRecordedAgain removes the events of a CPU as the kernel does when a CPU goes offline.
// The test writes the list of the CPUs that are online.
func TestCPUThatComesBackIsRecordedAgain(t *testing.T) {
	sys, online := withOnlineCPUs(t, "0-1\n")
	s, err := sys.open(Target{AllCPUs: true}, rarely(t))
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

	onBoth(20)
	if err := s.Disable(); err != nil {
		t.Fatal(err)
	}
	ofCPU1(t, s, 20)
	online("0-2\n")
	follow("CPU 2 came online, and is not recorded")
	follow("")
}

// TestCPUThatComesOnlineIsRecorded opens a Source while the list of CPUs lacks one.
func TestCPUThatComesOnlineIsRecorded(t *testing.T) {
	sys, online := withOnlineCPUs(t, "0\n")
	s, err := sys.open(Target{AllCPUs: true}, rarely(t))
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
	onBoth(20)
	early := 0
	if err := s.Drain(func(r Record) error {
		var sm Sample
		if r.Type() == RecordSample && s.Format().Sample(r, &sm) == nil && sm.CPU == 1 {
			early++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	onBoth(20)
	if err := s.Disable(); err != nil {
		t.Fatal(err)
	}
	samples := samplesOn(t, s, 1)
	for _, n := range samples {
		early += n
	}
	if early != 2*2*20 || len(samples) != 2 {
		t.Errorf("%d samples of CPU 1, want %d; of the second half %v", early, 2*2*20, samples)
	}
}

// TestCPUThatComesOnlineFits: the rings of a CPU that comes later are smaller if all others take what there may be.
func TestCPUThatComesOnlineFits(t *testing.T) {
	sys, online := withOnlineCPUs(t, "0\n")
	s, err := sys.open(Target{AllCPUs: true}, Options{Events: rare(t), Freq: 64, StackSize: 1024})
	if err != nil {
		t.Skip(err)
	}
	defer s.Close()
	total := s.RingUse().Total
	// Of what all may take, so much is left.
	s.hotplug.op.needs.Memory = uint64(total+512<<10) * ofMemory
	online("0-1\n")
	if notes := s.FollowCPUs(); !slices.Equal(notes, []string{"CPU 1 came online, and is recorded"}) {
		t.Fatalf("%q", notes)
	}
	if more := s.RingUse().Total - total; more > 512<<10 || more < 64<<10 {
		t.Errorf("it has %d bytes, and 524,288 are left", more)
	}
	if s.leastRing() >= s.RingSize() || s.QuarterFull() != lasts(s.leastRing()/4, s.rate, 1024) {
		t.Errorf("the smallest ring has %d bytes, a quarter lasts %v", s.leastRing(), s.QuarterFull())
	}
}

// rarely samples the two events that onBoth causes.
func rarely(t *testing.T) Options {
	return Options{Events: rare(t), NoStack: true}
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

// ofCPU1 expects so many samples of each event on CPU 1.
func ofCPU1(t *testing.T, s *Source, want int) {
	t.Helper()
	samples := samplesOn(t, s, 1)
	for name, n := range samples {
		if n != want {
			t.Errorf("%d samples of %s on CPU 1, want %d", n, name, want)
		}
	}
	if len(samples) != 2 {
		t.Errorf("samples of CPU 1: %v", samples)
	}
}

// onBoth causes the rare events on the first two CPUs so many times.
func onBoth(times int) {
	for cpu := range 2 {
		onCPU(cpu, func() { touch(times) })
	}
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
