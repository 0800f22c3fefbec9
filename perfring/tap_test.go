package perfring

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestTap has the samples of a process seen in the rings, by a signal for each, while they are drained, and
// sees no others when that is off.
func TestTap(t *testing.T) {
	cmd, _ := work(t, "burn")
	s := mustOpen(t, Target{PIDs: []int{cmd.Process.Pid}},
		Options{Events: mustEvents(t, "cpu-clock"), Pages: 512, StackSize: 4096})
	rings := s.SampleRings()
	if len(rings) == 0 {
		t.Fatal("no rings")
	}
	const signal = unix.SIGIO
	seen, off := make(map[uint64]bool), uint64(0)
	type listener struct {
		cpu, tid int
	}
	begun, end, ended := make(chan listener), make(chan bool), make(chan map[uint64]bool)
	for i := range rings {
		tap, err := NewTap(rings[i].FD, &rings[i].Attr, rings[i].Pages)
		if err != nil {
			t.Fatal(err)
		}
		go listen(tap, signal, func(tid int) { begun <- listener{rings[i].CPU, tid} }, end, ended)
		l := <-begun
		if err := s.SignalTo(l.cpu, l.tid, signal); err != nil {
			t.Fatal(err)
		}
	}
	drained := make(map[uint64]bool)
	drain := func(r Record) error {
		var sample Sample
		if r.Type() == RecordSample && s.Format().Sample(r, &sample) == nil {
			drained[sample.Time] = true
		}
		return nil
	}
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		if err := s.Signal(on, true); err != nil {
			t.Fatal(err)
		}
		if !on {
			off = Now()
		}
		for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
			if err := s.Wait(20 * time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if err := s.Drain(drain); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(end)
	for range rings {
		for time := range <-ended {
			seen[time] = true
		}
	}
	if err := s.Disable(); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(drain); err != nil {
		t.Fatal(err)
	}
	late := 0
	for time := range seen {
		if !drained[time] {
			t.Errorf("the sample at %d is none that was drained", time)
		}
		if time > off {
			late++
		}
	}
	told := 0
	for time := range drained {
		if time <= off {
			told++
		}
	}
	// Of several for which there was one signal, only the last one is seen. A signal may still be on its way.
	if len(seen) < told/2 || late > len(rings) || told < 20 || len(drained)-told < 20 {
		t.Errorf("%d of %d samples were seen, and then %d of %d", len(seen), told, late, len(drained)-told)
	}
}

// listen waits for signals in a thread of its own, and says at the end at what times the samples were that it
// has seen.
func listen(tap *Tap, signal unix.Signal, begun func(tid int), end chan bool, ended chan map[uint64]bool) {
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
	for {
		select {
		case <-end:
			_ = tap.Close()
			ended <- seen
			return
		default:
		}
		timeout := unix.NsecToTimespec(int64(10 * time.Millisecond))
		_, _, errno := unix.Syscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0,
			uintptr(unsafe.Pointer(&timeout)), unsafe.Sizeof(set), 0, 0)
		if errno == 0 && tap.Newest(&sample) {
			seen[sample.Time] = true
		}
	}
}

// TestTapThatLags has more records written than are looked through for the last one, and others that are
// malformed.
func TestTapThatLags(t *testing.T) {
	var head, tail uint64
	tap := Tap{scratch: make([]byte, MaxRecordSize+1), format: Format{sampleType: unix.PERF_SAMPLE_TIME}}
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
