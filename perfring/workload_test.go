package perfring

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain lets the test binary be its own workload: $PERFRING_WORK says what to do.
func TestMain(m *testing.M) {
	switch os.Getenv("PERFRING_WORK") {
	case "":
		os.Exit(m.Run())
	case "fault": // until stdin is closed
		fault()
	case "self": // record this process, as the user that runs it
		if err := recordSelf(); err != nil {
			fmt.Println("error:", err)
		}
	}
}

func mustEvents(t *testing.T, spec string) []Event {
	t.Helper()
	ev, err := ParseEvents(spec)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// mustOpen opens a small ring; it skips the test if perf events are not permitted.
func mustOpen(t *testing.T, target Target, o Options) *Source {
	t.Helper()
	if o.Pages == 0 {
		o.Pages = 256
	}
	s, err := Open(target, o)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("needs perf events: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// recording is what a test keeps of the records.
type recording struct {
	f       *SampleFormat
	times   []uint64
	types   map[RecordType]int
	samples map[uint32]int // by TID
	touches map[uint32]int // of page faults in touchPage, by TID
	ids     map[uint64]int // by event
	user    int            // with a stack
	errs    []error
	each    func(r Record, s *Sample)
}

func newRecording(s *Source) *recording {
	return &recording{f: s.Format(), types: map[RecordType]int{}, samples: map[uint32]int{},
		touches: map[uint32]int{}, ids: map[uint64]int{}}
}

func (rec *recording) record(r Record) error {
	rec.types[r.Type()]++
	if tm, ok := rec.f.Time(r); ok {
		rec.times = append(rec.times, tm)
	} else {
		rec.errs = append(rec.errs, fmt.Errorf("%s without a time", r.Type()))
	}
	var s Sample
	if r.Type() == RecordSample {
		if err := rec.f.Sample(r, &s); err != nil {
			rec.errs = append(rec.errs, err)
			return nil
		}
		rec.samples[s.TID]++
		if isTouch(&s) {
			rec.touches[s.TID]++
		}
		rec.ids[s.ID]++
		if s.DynSize > 0 {
			rec.user++
			ip, ok := s.Reg(8) // PERF_REG_X86_IP
			if s.CPUMode() == unix.PERF_RECORD_MISC_USER && (!ok || ip != s.IP) {
				rec.errs = append(rec.errs, fmt.Errorf("IP %#x, in the registers %#x", s.IP, ip))
			}
		}
	}
	if rec.each != nil {
		rec.each(r, &s)
	}
	return nil
}

// run records until end returns true.
func (rec *recording) run(s *Source, end func() bool) error {
	for !end() {
		if err := s.Wait(20 * time.Millisecond); err != nil {
			return err
		}
		if err := s.Drain(rec.record); err != nil {
			return err
		}
	}
	if err := s.Disable(); err != nil {
		return err
	}
	return s.Flush(rec.record)
}

func (rec *recording) check(t *testing.T) {
	t.Helper()
	for _, err := range rec.errs {
		t.Error(err)
	}
	if !slices.IsSorted(rec.times) {
		t.Error("times are not sorted")
	}
	t.Logf("%v, %d with a stack", rec.types, rec.user)
}

func after(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().After(end) }
}

// recordSelf records this process while it takes page faults, and prints what was recorded.
func recordSelf() error {
	ev, err := ParseEvents("page-faults")
	if err != nil {
		return err
	}
	// The memory that a user may lock is for 31 full copies: all faults are more of them with the race detector.
	s, err := Open(Target{PIDs: []int{os.Getpid()}}, Options{Events: ev, Period: 1, LeastStack: 32 << 10})
	if err != nil {
		return err
	}
	defer s.Close()
	rec := newRecording(s)
	touched := 0
	rec.each = func(r Record, smp *Sample) {
		if r.Type() == RecordSample && smp.DynSize > 0 && isTouch(smp) {
			touched++
		}
	}
	if err := s.Enable(); err != nil {
		return err
	}
	touch(20)
	if err := s.Disable(); err != nil {
		return err
	}
	if err := s.Flush(rec.record); err != nil {
		return err
	}
	fmt.Printf("%s: %d samples with a stack, ring %d, errors %v, sorted %v\n", s.Attrs()[0].Name, touched,
		s.RingSize(), rec.errs, slices.IsSorted(rec.times))
	for _, n := range s.Notes() {
		fmt.Println("note:", n)
	}
	return nil
}
