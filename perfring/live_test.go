package perfring

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
)

func TestRecordEveryCPU(t *testing.T) {
	s := mustOpen(t, Target{AllCPUs: true}, Options{Events: rare(t), StackSize: 1024})
	f := startFaulter(t)
	rec := newRecording(s)
	user := 0
	samples := make(map[uint64]int)
	rec.each = func(r Record, smp *Sample) {
		if r.Type() != RecordSample || int(smp.PID) != f.Process.Pid {
			return
		}
		samples[smp.ID]++
		if smp.DynSize > 0 {
			user++
		}
	}
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	const times = 5
	f.touch(t, times)
	rec.take(t, s)
	calls := times * len(f.tids)
	online, err := hostSystem.onlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	if user != 2*calls {
		t.Errorf("%d samples with a stack, of %d", user, 2*calls)
	}
	for _, a := range s.Attrs() {
		n, cpus := 0, 0
		for _, id := range a.IDs {
			n += samples[id]
			if samples[id] > 0 {
				cpus++
			}
			delete(rec.ids, id)
		}
		if n != calls || cpus != len(online) {
			t.Errorf("%s: %d samples of %d, on %d CPUs, with %d IDs", a.Name, n, calls, cpus, len(a.IDs))
		}
	}
	if len(rec.ids) > 0 {
		t.Errorf("samples of unknown events: %v", rec.ids)
	}
	if s.Done() {
		t.Error("all CPUs are done")
	}
	if lost := s.EventLost(); lost != nil && (len(lost) != 2 || s.Lost() < s.lost) {
		t.Errorf("lost %d, by event %v, by LOST records %d", s.Lost(), lost, s.lost)
	}
}

func TestRecordCommandTellsMappingsBeforeSamples(t *testing.T) {
	// A shell that waits on its standard input before it execs, as a session's child does.
	cmd := exec.Command("/bin/sh",
		"-c", `read x; exec /bin/sh -c '/bin/true; :'`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := uint32(cmd.Process.Pid)
	var exited sync.WaitGroup
	exited.Go(func() { _ = cmd.Wait() })
	defer exited.Wait()
	defer in.Close()

	// Each program that starts has page faults, from its first instruction on.
	s := mustOpen(t, Target{Command: cmd.Process.Pid},
		Options{Events: mustEvents(t, "page-faults:u"), Period: 1, StackSize: 1024, Pages: 1024})
	rec := newRecording(s)
	execs, mapped, early, identified := 0, 0, 0, 0
	type end struct {
		typ RecordType
		tid uint32
	}
	tasks := make(map[end]int)
	rec.each = func(r Record, smp *Sample) {
		switch r.Type() {
		case RecordFork, RecordExit:
			var e Task
			if err := DecodeTask(r, &e); err != nil {
				t.Error(err)
			} else if tasks[end{r.Type(), e.TID}]++; tasks[end{r.Type(), e.TID}] > 1 {
				t.Errorf("a second %v of thread %d", r.Type(), e.TID)
			}
		case RecordComm:
			var c Comm
			if err := DecodeComm(r, &c); err != nil {
				t.Error(err)
			} else if c.Exec && c.PID == pid {
				execs++
			}
		case RecordMmap2:
			var m Mmap2
			if err := DecodeMmap2(r, &m); err != nil {
				t.Error(err)
			} else if m.PID == pid && strings.Contains(string(m.Path), "/") {
				mapped++
				if len(m.BuildID) > 0 {
					identified++
				}
			}
		case RecordSample:
			if smp.PID == pid && smp.DynSize > 0 && mapped == 0 {
				early++
			}
		}
	}
	if err := s.Enable(); err != nil { // must not record the shell that waits
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	exited.Wait()
	deadline := after(time.Minute)
	if err := rec.run(s, func() bool { return s.Done() || deadline() }); err != nil {
		t.Fatal(err)
	}
	rec.check(t)
	if !s.Done() {
		t.Error("not done though the command has exited")
	}
	if execs != 1 || mapped < 2 || early != 0 || rec.user == 0 {
		t.Errorf("%d execs, %d mappings, %d samples before the first mapping, %d with a stack", execs, mapped,
			early, rec.user)
	}
	if identified != 0 {
		t.Errorf("%d mappings with a build ID, for which nobody asked", identified)
	}
	if rec.types[RecordFork] == 0 || rec.types[RecordExit] < 2 {
		t.Error("no FORK and EXIT of the command's child")
	}
}

func TestRecordProcessCoversAllThreads(t *testing.T) {
	f := startFaulter(t)
	s := mustOpen(t, Target{PIDs: []int{f.Process.Pid}},
		Options{Events: mustEvents(t, "page-faults:u"), Period: 1, StackSize: 1024})
	rec := newRecording(s)
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	const times = 20
	f.touch(t, times)
	rec.take(t, s)
	rec.touched(t, f.tids, times)
	f.end()
	if !lane.Soon(func() bool {
		if err := s.Wait(20 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		return s.Done()
	}) {
		t.Error("not done though the process has exited")
	}
}

func TestWaitDoesNotSpinOnExitedTargets(t *testing.T) {
	f := startFaulter(t)
	s := mustOpen(t, Target{PIDs: []int{f.Process.Pid}}, Options{Events: mustEvents(t, "page-faults"), Period: 1})
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	f.end()
	if !lane.Soon(func() bool { // what is not drained ends a Wait, too
		out := timedOut(t, s, s.Wait, time.Millisecond)
		if err := s.Drain(func(Record) error { return nil }); err != nil {
			t.Fatal(err)
		}
		return out && s.Done()
	}) {
		t.Fatal("not done")
	}
	for i := range 3 {
		if !timedOut(t, s, s.Wait, time.Millisecond) {
			t.Errorf("Wait %d ends early", i)
		}
	}
}

// A Wait for no time sets no timer, and learns who woke it and which targets have exited.
func TestWaitForNoTime(t *testing.T) {
	f := startFaulter(t)
	s := mustOpen(t, Target{PIDs: []int{f.Process.Pid}}, Options{Events: mustEvents(t, "dummy")})
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	s.Wake()
	if err := s.Wait(0); err != nil || s.poller.until != 0 || s.Done() {
		t.Fatalf("%v; timer set to %d, done: %v", err, s.poller.until, s.Done())
	}
	if !lane.Soon(func() bool { return timedOut(t, s, s.Wait, time.Millisecond) }) { // a new thread ends one, too
		t.Error("woken once, and no Wait lasts any more")
	}
	f.end()
	if err := s.Wait(0); err != nil || !s.Done() {
		t.Errorf("%v; done: %v", err, s.Done())
	}
}

// Each program that starts ends a Wait: without that wake-up, Wait would only end at its timeout. Peek shows
// what the program maps before Drain hands it out.
func TestNewMappingsEndWait(t *testing.T) {
	s := mustOpen(t, Target{AllCPUs: true}, Options{Events: mustEvents(t, "cpu-clock"), Freq: 49})
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	const timeout = time.Minute
	ahead, drained := make(map[uint32]bool), make(map[uint32]bool)
	note := func(pids map[uint32]bool) func(Record) {
		return func(r Record) {
			var m Mmap2
			if DecodeMmap2(r, &m) == nil && strings.HasSuffix(string(m.Path), "/true") {
				pids[m.PID] = true
			}
		}
	}
	for i := range 20 {
		cmd := exec.Command("true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for !ahead[uint32(cmd.Process.Pid)] {
			if timedOut(t, s, s.Wait, timeout) {
				t.Fatalf("program %d did not end the wait", i)
			}
			s.Peek(note(ahead))
		}
		_ = cmd.Wait()
		if i%4 == 3 { // in between, wake-ups come while nobody waits
			if err := s.Drain(func(r Record) error { note(drained)(r); return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Flush(func(r Record) error { note(drained)(r); return nil }); err != nil {
		t.Fatal(err)
	}
	for pid := range ahead {
		if !drained[pid] {
			t.Errorf("the mapping of process %d was not handed out", pid)
		}
	}
}

// Glance shows what was written since it or Peek was last called, and takes nothing away from Peek.
func TestGlance(t *testing.T) {
	s := mustOpen(t, Target{AllCPUs: true}, Options{Events: mustEvents(t, "dummy")})
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	// maps gives how many mappings of the program that was run last a look shows.
	var pid int
	maps := func(look func(func(Record))) (n int) {
		look(func(r Record) {
			var m Mmap2
			if DecodeMmap2(r, &m) == nil && int(m.PID) == pid {
				n++
			}
		})
		return n
	}
	for i := range 4 {
		cmd := exec.Command("true")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		pid = cmd.Process.Pid
		if i%2 == 0 {
			if n, again := maps(s.Glance), maps(s.Glance); n == 0 || again != 0 {
				t.Errorf("%d mappings, and %d again", n, again)
			}
		}
		if n, again := maps(s.Peek), maps(s.Glance); n == 0 || again != 0 {
			t.Errorf("%d mappings after Glance, and %d again after Peek", n, again)
		}
	}
}

// Programs that start during a pause do not wake this process, and the Wait behind it sees them. Those that
// start later end it as if there had been no pause.
func TestNewMappingsDoNotEndPause(t *testing.T) {
	s := mustOpen(t, Target{AllCPUs: true}, Options{Events: mustEvents(t, "dummy")})
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	const timeout, pause = time.Minute, 5 * time.Millisecond
	for i := range 12 {
		cmd := exec.Command("true")
		start := func() {
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
		}
		if during := i%3 > 0; during {
			start()
		}
		if !timedOut(t, s, s.Pause, pause) {
			t.Fatalf("a pause ends early; a ring presses: %v", s.Pressing())
		}
		if i%3 == 2 { // its records come between pause and wait
			cmd = exec.Command("true")
			start()
			if n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.poller.fd), Events: unix.POLLIN}}, 0); n != 0 {
				t.Errorf("a new program wakes who pauses (%v)", err)
			}
		}
		if cmd.Process == nil {
			start()
		}
		for seen := false; !seen; {
			if timedOut(t, s, s.Wait, timeout) {
				t.Fatalf("program %d did not end the wait", i)
			}
			s.Peek(func(r Record) {
				var m Mmap2
				seen = seen || DecodeMmap2(r, &m) == nil && int(m.PID) == cmd.Process.Pid
			})
		}
		if err := s.Drain(func(Record) error { return nil }); err != nil { // so that no ring presses
			t.Fatal(err)
		}
	}
}

// A pause that ends as somebody wakes it does not keep that from the Wait behind it.
func TestWakeEndsPauseAndWait(t *testing.T) {
	s := mustOpen(t, Target{PIDs: []int{os.Getpid()}}, Options{Events: mustEvents(t, "dummy")})
	s.Wake()
	for i, wait := range []func(time.Duration) error{s.Pause, s.Wait} {
		if timedOut(t, s, wait, time.Minute) {
			t.Errorf("wait %d is not ended", i)
		}
	}
	if !timedOut(t, s, s.Pause, time.Millisecond) {
		t.Error("woken once, and the second pause ends early")
	}
}

func TestWakeEndsWait(t *testing.T) {
	s := mustOpen(t, Target{PIDs: []int{os.Getpid()}}, Options{Events: mustEvents(t, "dummy")})
	for i := range 20 { // some before the wait begins, and some while it is under way
		go func() {
			time.Sleep(time.Duration(i%4) * 100 * time.Microsecond)
			s.Wake()
		}()
		if timedOut(t, s, s.Wait, time.Minute) {
			t.Fatal("the wait is not ended")
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s.Wake()
}

func TestOpenSaysThatAProcessIsMissing(t *testing.T) {
	_, err := Open(Target{PIDs: []int{1 << 22}}, Options{Events: mustEvents(t, "cpu-clock")})
	var open *OpenError
	if !errors.As(err, &open) || open.PID != 1<<22 || !errors.Is(err, unix.ESRCH) {
		t.Errorf("%v", err)
	}
}

func TestOpenClampsTheFrequency(t *testing.T) {
	rate, err := readUint("/proc/sys/kernel/perf_event_max_sample_rate", 63)
	if err != nil {
		t.Skip(err)
	}
	s := mustOpen(t, Target{PIDs: []int{os.Getpid()}},
		Options{Events: mustEvents(t, "cpu-clock"), Freq: rate + 1})
	if got := s.Attrs()[0].PerfEventAttr.Sample; got > rate {
		t.Errorf("%d Hz", got)
	}
	if n := s.Notes(); len(n) == 0 || !strings.Contains(n[0], "perf_event_max_sample_rate") {
		t.Errorf("notes %q", n)
	}
}

func TestRecordTracepointHasRawDataInEverySample(t *testing.T) {
	ev, err := ParseEvents("syscalls:sys_enter_sched_rr_get_interval,cpu-clock")
	if err != nil {
		t.Skipf("needs tracefs: %v", err)
	}
	s := mustOpen(t, Target{AllCPUs: true}, Options{Events: ev})
	if a := s.Attrs(); a[0].PerfEventAttr.Sample != 1 || a[0].PerfEventAttr.Bits&unix.PerfBitFreq != 0 ||
		a[1].PerfEventAttr.Sample != defaultFreq || a[1].PerfEventAttr.Bits&unix.PerfBitFreq == 0 {
		t.Errorf("periods %d and %d", a[0].PerfEventAttr.Sample, a[1].PerfEventAttr.Sample)
	}
	f := startFaulter(t)
	rec := newRecording(s)
	raw := 0
	rec.each = func(r Record, smp *Sample) {
		if r.Type() == RecordSample && slices.Contains(s.Attrs()[0].IDs, smp.ID) && len(smp.Raw) >= 8 &&
			int(smp.PID) == f.Process.Pid {
			raw++
		}
	}
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	const times = 2
	f.touch(t, times)
	rec.take(t, s)
	if want := times * len(f.tids); raw != want {
		t.Errorf("%d samples of the tracepoint with RAW data, want %d", raw, want)
	}
}

func TestRingsOfThreadsThatHaveExitedCanBeMapped(t *testing.T) {
	f := startFaulter(t)
	op := opener{sys: hostSystem, target: Target{PIDs: []int{f.Process.Pid}},
		opts: Options{Events: mustEvents(t, "cpu-clock"), Pages: 64}}
	if err := op.check(); err != nil {
		t.Fatal(err)
	}
	defer op.close()
	op.attrs = make([]unix.PerfEventAttr, 1)
	cpus, err := hostSystem.onlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	op.size(cpus)
	if err := op.openProcesses(cpus); err != nil {
		t.Skipf("needs perf events: %v", err)
	}
	f.end()
	if err := op.mapRings(); err != nil {
		t.Error(err)
	}
}

func TestLostRecordsAreCounted(t *testing.T) {
	f := startFaulter(t)
	s := mustOpen(t, Target{PIDs: []int{f.Process.Pid}},
		Options{Events: mustEvents(t, "page-faults:u"), Period: 1, Pages: 1})
	if len(s.Notes()) == 0 || s.RingSize() < 64<<10 {
		t.Errorf("ring of %d bytes, notes %q", s.RingSize(), s.Notes())
	}
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	const times = 50 // of 64 KiB each
	f.touch(t, times)
	rec := newRecording(s)
	if err := s.Drain(rec.record); err != nil {
		t.Fatal(err)
	}
	// There is room for the LOST record now; it is written as soon as the program runs again.
	f.touch(t, 1)
	if !lane.Soon(func() bool { // Drain leaves out what is newest
		if err := s.Drain(rec.record); err != nil {
			t.Fatal(err)
		}
		return s.Lost() > 0
	}) {
		t.Error("none lost while recording")
	}
	rec.take(t, s)
	got := 0
	for _, n := range rec.touches {
		got += n
	}
	if all := uint64((times + 1) * len(f.tids)); s.Lost() < s.lost || s.Lost()+uint64(got) < all {
		t.Errorf("%d lost, %d by LOST records, and %d of %d are there", s.Lost(), s.lost, got, all)
	}
	t.Logf("lost: %d, by LOST records %d, by event %v", s.Lost(), s.lost, s.EventLost())
}

func TestAdoptTakesDescriptorsOfOthers(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	op := opener{sys: hostSystem, target: Target{PIDs: []int{1}},
		opts: Options{Events: mustEvents(t, "page-faults:u"), Period: 1, StackSize: 1024}}
	if err := op.check(); err != nil {
		t.Fatal(err)
	}
	attr := op.attr(0)
	attr.Bits &^= unix.PerfBitInherit
	fd, err := unix.PerfEventOpen(&attr, unix.Gettid(), -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Skipf("perf_event_open: %v", err)
	}
	noClock := attr
	noClock.Bits &^= unix.PerfBitUseClockID
	if _, err := Adopt([]Adopted{{Name: "x", Attr: noClock, FDs: []int{fd}}}, 64); err == nil {
		t.Error("an event without use_clockid was adopted")
	}
	s, err := Adopt([]Adopted{{Name: "page-faults:u", Attr: attr, FDs: []int{fd}}}, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Enable(); err != nil {
		t.Error(err)
	}
	rec := newRecording(s)
	const times = 20
	touch(times)
	rec.take(t, s)
	rec.touched(t, []uint32{uint32(unix.Gettid())}, times)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestAdoptedEventsTellTheirCPU adopts an event on each CPU, whose records do not say it, and looks ahead for
// what is mapped, which is in the same rings as the samples.
func TestAdoptedEventsTellTheirCPU(t *testing.T) {
	cpus, err := hostSystem.onlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	op := opener{sys: hostSystem, target: Target{AllCPUs: true},
		opts: Options{Events: mustEvents(t, "dummy")}}
	if err := op.check(); err != nil {
		t.Fatal(err)
	}
	attr := op.attr(0)
	attr.Bits |= bitsSideBand
	withCPU := attr
	attr.Sample_type &^= unix.PERF_SAMPLE_CPU
	adopted := Adopted{Name: "dummy", Attr: attr}
	for _, cpu := range cpus {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			t.Skipf("perf_event_open: %v", err)
		}
		adopted.FDs, adopted.CPUs = append(adopted.FDs, fd), append(adopted.CPUs, cpu+100)
	}
	if attr == withCPU {
		t.Fatal("the samples say their CPU")
	}
	s, err := Adopt([]Adopted{adopted}, 64)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	ahead := 0
	s.Peek(func(r Record) {
		var m Mmap2
		if r.Type() == RecordMmap2 && DecodeMmap2(r, &m) == nil && int(m.PID) == cmd.Process.Pid {
			ahead++
		}
	})
	if ahead == 0 {
		t.Error("nothing was seen ahead of the drain")
	}
	seen := make(map[int]bool)
	for _, cpu := range cpus {
		onCPU(cpu, func() {
			if err := exec.Command("true").Run(); err != nil {
				t.Error(err)
			}
		})
	}
	if err := s.Flush(func(Record) error { seen[s.CPU()] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	for _, cpu := range adopted.CPUs {
		if !seen[cpu] {
			t.Errorf("no record of CPU %d, but of %v", cpu, seen)
		}
	}
}

// adoptFaults adopts the page faults of a thread, in a ring of so many pages, and enables them. The kernel wakes who
// waits after so many samples. touched has the thread touch so many pages.
func adoptFaults(t *testing.T, wakeup uint32, pages int) (s *Source, touched func(times int)) {
	t.Helper()
	op := opener{sys: hostSystem, target: Target{PIDs: []int{1}},
		opts: Options{Events: mustEvents(t, "page-faults:u"), Period: 1}}
	if err := op.check(); err != nil {
		t.Fatal(err)
	}
	attr := op.attr(0)
	attr.Bits &^= unix.PerfBitWatermark | unix.PerfBitInherit
	attr.Wakeup = wakeup
	attr.Sample_type &^= unix.PERF_SAMPLE_STACK_USER // for which a small ring has no room
	tid, work, done := make(chan int), make(chan int), make(chan bool)
	t.Cleanup(func() { close(work) })
	go func() {
		runtime.LockOSThread()
		tid <- unix.Gettid()
		for times := range work {
			touch(times)
			done <- true
		}
	}()
	fd, err := unix.PerfEventOpen(&attr, <-tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Skipf("perf_event_open: %v", err)
	}
	if s, err = Adopt([]Adopted{{Name: "page-faults:u", Attr: attr, FDs: []int{fd}}}, pages); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	return s, func(times int) {
		work <- times
		<-done
	}
}

// TestPausesOfAdoptedEvents: where each sample causes a wake-up, none of them ends a pause, and the first one
// ends a wait.
func TestPausesOfAdoptedEvents(t *testing.T) {
	s, touched := adoptFaults(t, 1, 1)
	touched(1)
	go touched(1) // while it pauses, or before
	if !timedOut(t, s, s.Pause, 20*time.Millisecond) {
		t.Error("a pause ends early")
	}
	if timedOut(t, s, s.Wait, time.Minute) {
		t.Error("samples of a pause do not end the wait behind it")
	}
	s.Peek(func(Record) {})
	over, ended := make(chan bool), make(chan bool)
	go func() {
		for {
			select {
			case <-over:
				close(ended)
				return
			case <-time.After(time.Millisecond):
				touched(1)
			}
		}
	}()
	if timedOut(t, s, s.Wait, time.Minute) {
		t.Error("samples do not end a wait")
	}
	close(over)
	<-ended
}

// TestFewSamplesOfAPauseEndTheNextWait: samples of adopted events of which the kernel has not told, or told the
// runtime's poller, end the Wait behind a Pause, and those that were looked at do not.
func TestFewSamplesOfAPauseEndTheNextWait(t *testing.T) {
	s, touched := adoptFaults(t, math.MaxInt32, 64)
	touched(1)
	for _, want := range []bool{false, true} {
		if !timedOut(t, s, s.Pause, time.Millisecond) {
			t.Fatal("samples end a pause")
		}
		timeout := time.Minute
		if want {
			timeout = time.Millisecond
		}
		if out := timedOut(t, s, s.Wait, timeout); out != want || s.Pressing() {
			t.Errorf("the wait lasts until its timeout: %v, want %v; the ring is a quarter full: %v", out, want, s.Pressing())
		}
		s.Peek(func(Record) {})
	}
}

// TestRingThatFillsEndsPause: a ring that is a quarter full ends a pause, also if the kernel has told the runtime's
// poller of it already, as it tells once; and again, until the ring is drained. Nothing of that ends a Sleep.
func TestRingThatFillsEndsPause(t *testing.T) {
	f := startFaulter(t)
	// A quarter is 64 of the samples of all threads together, which have 17 KiB each.
	s := mustOpen(t, Target{PIDs: []int{f.Process.Pid}},
		Options{Events: mustEvents(t, "page-faults:u"), Period: 1, StackSize: 16 << 10, Pages: 1024})
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if i%2 == 0 { // or else while it pauses
			f.touch(t, 100)
			if !timedOut(t, s, s.Sleep, time.Millisecond) { // and takes the report
				t.Errorf("round %d: records end a Sleep", i)
			}
		} else {
			go fmt.Fprintln(f.in, 100)
		}
		for range 2 {
			if timedOut(t, s, s.Pause, time.Minute) {
				t.Fatalf("round %d: a pause lasts, although a ring is a quarter full: %v", i, s.Pressing())
			}
		}
		if !timedOut(t, s, s.Sleep, time.Millisecond) {
			t.Errorf("round %d: a ring that is a quarter full ends a Sleep", i)
		}
		if i%2 == 1 {
			f.line(t)
		}
		if !lane.Soon(func() bool { // what is newest stays
			if err := s.Drain(func(Record) error { return nil }); err != nil {
				t.Fatal(err)
			}
			return !s.Pressing()
		}) {
			t.Fatalf("round %d: the ring stays a quarter full", i)
		}
	}
}

func TestUnprivilegedUserRecordsTheirOwnProcess(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	if p, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid"); err != nil ||
		strings.TrimSpace(string(p)) != "2" {
		t.Skipf("needs kernel.perf_event_paranoid=2, it is %s", p)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "PERFRING_WORK=self")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
	text := string(out)
	if !strings.Contains(text, fmt.Sprintf("page-faults:u: %d samples", 20*faultsOfTouch)) ||
		!strings.Contains(text, "errors [], sorted true") {
		t.Errorf("%s", out)
	}
	if !strings.Contains(text, "note: recording user code only") {
		t.Error("no note about :u")
	}
}

// TestTasksAreToldBesideSamples fills the ring of samples: no other record may be lost.
func TestTasksAreToldBesideSamples(t *testing.T) {
	// Of this process and its children, as others might fill the other rings, too.
	s := mustOpen(t, Target{PIDs: []int{os.Getpid()}}, Options{Events: mustEvents(t, "page-faults"), Period: 1, Pages: 2,
		StackSize: 8, NoStack: true})
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	const programs = 40
	pids := make(map[uint32]int)
	for range programs {
		cmd := exec.Command("true")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		pids[uint32(cmd.Process.Pid)] = 0
	}
	touch(4000) // for more than the rings have room for
	if err := s.Disable(); err != nil {
		t.Fatal(err)
	}
	err := s.Flush(func(r Record) error {
		var c Comm
		var e Task
		switch {
		case r.Type() == RecordComm && DecodeComm(r, &c) == nil && c.Exec:
			if _, ours := pids[c.PID]; ours {
				pids[c.PID]++
			}
		case (r.Type() == RecordFork || r.Type() == RecordExit) && DecodeTask(r, &e) == nil && e.PID == e.TID:
			if _, ours := pids[e.PID]; ours {
				pids[e.PID]++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Lost() == 0 {
		t.Error("no sample was lost")
	}
	for pid, n := range pids {
		if n != 3 {
			t.Errorf("process %d: %d of FORK, COMM and EXIT", pid, n)
		}
	}
}
