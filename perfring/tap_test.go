package perfring

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestTap has each sample of a process seen in the rings, by a signal for it, while they are drained, and sees no
// others when that is off.
func TestTap(t *testing.T) {
	f := startFaulter(t)
	s := mustOpen(t, Target{PIDs: []int{f.Process.Pid}},
		Options{Events: mustEvents(t, "page-faults:u"), Period: 1, Pages: 512, StackSize: 1024})
	rings := s.SampleRings()
	if len(rings) == 0 {
		t.Fatal("no rings")
	}
	const signal = unix.SIGIO
	begun, end, ended := make(chan int), make(chan bool), make(chan map[uint64]bool)
	heard := make(chan int, 1000) // the index of the ring of which a sample was seen
	for i := range rings {
		tap, err := NewTap(rings[i].FD, &rings[i].Attr, rings[i].Pages)
		if err != nil {
			t.Fatal(err)
		}
		go listen(tap, signal, func(tid int) { begun <- tid }, func() { heard <- i }, end, ended)
		if err := s.SignalTo(rings[i].CPU, <-begun, signal); err != nil {
			t.Fatal(err)
		}
	}
	rec := newRecording(s)
	drained := make(map[uint64]bool)
	rec.each = func(r Record, sample *Sample) {
		if r.Type() == RecordSample {
			drained[sample.Time] = true
		}
	}
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(true, true); err != nil {
		t.Fatal(err)
	}
	// Of several samples for which there was one signal, only the last one is seen: so the next ones come when
	// there was one of each CPU.
	const times = 20
	for range times {
		f.touch(t, 1)
		for of := make(map[int]bool); len(of) < len(rings); {
			select {
			case i := <-heard:
				of[i] = true
			case <-time.After(time.Minute):
				t.Fatal("a sample is not seen")
			}
		}
		if err := s.Drain(rec.record); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Signal(false, true); err != nil {
		t.Fatal(err)
	}
	off := Now()
	f.touch(t, times)
	close(end)
	seen, late := make(map[uint64]bool), 0
	for range rings {
		for at := range <-ended {
			if seen[at] = true; at > off {
				late++
			}
		}
	}
	rec.take(t, s)
	rec.touched(t, f.tids, 2*times)
	for at := range seen {
		if !drained[at] {
			t.Errorf("the sample at %d is none that was drained", at)
		}
	}
	// A signal may still have been on its way.
	if len(seen) < times*len(rings) || late > len(rings) {
		t.Errorf("%d samples were seen, of %d or more; and %d when that was off", len(seen), times*len(rings), late)
	}
}

// listen waits for signals in a thread of its own, calls heard when it has seen a sample, and says at the end at
// what times the samples were.
func listen(tap *Tap, signal unix.Signal, begun func(tid int), heard func(), end chan bool,
	ended chan map[uint64]bool) {
	seen := make(map[uint64]bool)
	set := uint64(1) << (signal - 1)
	runtime.LockOSThread()
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, uintptr(unsafe.Pointer(&set)), 0,
		unsafe.Sizeof(set), 0, 0)
	if errno != 0 {
		panic(errno)
	}
	begun(unix.Gettid())
	var sample Sample
	for over := false; ; {
		select {
		case <-end:
			over = true
		default:
		}
		timeout := unix.NsecToTimespec(int64(10 * time.Millisecond))
		_, _, errno := unix.Syscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0,
			uintptr(unsafe.Pointer(&timeout)), unsafe.Sizeof(set), 0, 0)
		switch {
		case errno == 0 && tap.Newest(&sample):
			seen[sample.Time] = true
			heard()
		case errno != 0 && over:
			_ = tap.Close()
			ended <- seen
			return
		}
	}
}

// TestTapThatLags has more records written than are looked through for the last one, and others that are
// malformed.
func TestTapThatLags(t *testing.T) {
	var head, tail uint64
	tap := Tap{scratch: make([]byte, MaxRecordSize+1), format: SampleFormat{sampleType: unix.PERF_SAMPLE_TIME}}
	tap.ring = newRing(make([]byte, 4<<20), &head, &tail)
	write := func(kind RecordType, size int, time uint64) {
		at := head & uint64(len(tap.ring.data)-1)
		r := tap.ring.data[at : at+16]
		clear(r)
		r[0], r[6], r[7] = byte(kind), byte(size), byte(size>>8)
		r[8] = byte(time)
		head += uint64(size)
	}
	var s Sample
	for _, step := range []struct {
		name    string
		records int
		size    int
		want    bool
	}{
		{"none", 0, 16, false}, {"one", 1, 16, true}, {"three", 3, 16, true}, {"none", 0, 16, false},
		{"too many", 70_000, 16, false}, {"then one", 1, 16, true}, {"of no size", 1, 0, false},
	} {
		for i := range step.records {
			write(RecordSample, step.size, uint64(i))
			if i%2 == 0 && step.records > 1 {
				write(RecordComm, 16, 0)
			}
		}
		if step.size == 0 {
			head += 16
		}
		got := tap.Newest(&s)
		if got != step.want || got && s.Time != uint64(step.records-1) {
			t.Errorf("%s: %v, at %d", step.name, got, s.Time)
		}
	}
}
