package perfring

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRecordEveryCPU(t *testing.T) {
	s := mustOpen(t, Target{AllCPUs: true}, Options{Events: mustEvents(t, "cpu-clock,task-clock"), Pages: 2048})
	cmd, _ := work(t, "burn")
	rec := newRecording(s)
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	if err := rec.run(s, after(300*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	rec.check(t)
	if rec.user == 0 {
		t.Errorf("no sample with a stack, though process %d burns", cmd.Process.Pid)
	}
	for _, a := range s.Attrs() {
		n := 0
		for _, id := range a.IDs {
			n += rec.ids[id]
			delete(rec.ids, id)
		}
		if n == 0 || len(a.IDs) == 0 {
			t.Errorf("%s: %d samples of %d IDs", a.Name, n, len(a.IDs))
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
		"-c", `read x; exec /bin/sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; /bin/true'`)
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

	s := mustOpen(t, Target{Command: cmd.Process.Pid}, Options{Events: mustEvents(t, "cpu-clock")})
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
	deadline := after(20 * time.Second)
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
	cmd, in := work(t, "burn")
	time.Sleep(50 * time.Millisecond)
	s := mustOpen(t, Target{PIDs: []int{cmd.Process.Pid}},
		Options{Events: mustEvents(t, "cpu-clock:u"), Freq: 4000})
	tids, err := hostSystem.threads(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	rec := newRecording(s)
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	if err := rec.run(s, after(500*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	rec.check(t)
	// Go runs on GOMAXPROCS threads; the others sleep. What ran must have been sampled.
	for _, tid := range tids {
		ms := cpuTime(cmd.Process.Pid, tid)
		if ms > 200 && rec.samples[uint32(tid)] == 0 {
			t.Errorf("thread %d ran for %d ms without a sample", tid, ms)
		}
	}
	if len(rec.samples) < 2 {
		t.Errorf("samples of %d threads", len(rec.samples))
	}
	_ = in.Close()
	for end := after(10 * time.Second); !s.Done() && !end(); {
		if err := s.Wait(20 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if !s.Done() {
		t.Error("not done though the process has exited")
	}
}

// cpuTime returns the milliseconds that a thread has run.
func cpuTime(pid, tid int) int {
	b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", strconv.Itoa(tid), "schedstat"))
	ns, _ := strconv.Atoi(strings.SplitN(string(b), " ", 2)[0])
	return ns / 1e6
}

func TestWaitDoesNotSpinOnExitedTargets(t *testing.T) {
	cmd, in := work(t, "burn")
	s := mustOpen(t, Target{PIDs: []int{cmd.Process.Pid}}, Options{Events: mustEvents(t, "cpu-clock")})
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	_ = cmd.Wait()
	waits := 0
	for end := after(400 * time.Millisecond); !end(); waits++ {
		if err := s.Wait(50 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if !s.Done() {
		t.Error("not done")
	}
	if waits > 20 {
		t.Errorf("Wait returned %d times in 400 ms", waits)
	}
}

// A Wait for no time sets no timer, and takes in who woke it and which targets have exited.
func TestWaitForNoTime(t *testing.T) {
	cmd, in := work(t, "burn")
	s := mustOpen(t, Target{PIDs: []int{cmd.Process.Pid}}, Options{Events: mustEvents(t, "dummy")})
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	s.Wake()
	if err := s.Wait(0); err != nil || s.poller.until != 0 || s.Done() {
		t.Fatalf("%v; timer set to %d, done: %v", err, s.poller.until, s.Done())
	}
	const short = time.Millisecond
	if start := time.Now(); s.Wait(short) != nil || time.Since(start) < short {
		t.Errorf("woken once, and twice after %v", time.Since(start))
	}
	_ = in.Close()
	_ = cmd.Wait()
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
	const timeout = 10 * time.Second
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
		for began := time.Now(); !ahead[uint32(cmd.Process.Pid)]; {
			if err := s.Wait(timeout); err != nil {
				t.Fatal(err)
			}
			s.Peek(note(ahead))
			if time.Since(began) >= timeout {
				t.Fatalf("program %d did not end the wait", i)
			}
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
	const timeout, pause = 10 * time.Second, 20 * time.Millisecond
	for i := range 12 {
		began := time.Now()
		cmd := exec.Command("true")
		start := func() {
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
		}
		if during := i%3 > 0; during {
			start()
		}
		if err := s.Pause(pause); err != nil || time.Since(began) < pause {
			t.Fatalf("%v after %v; a ring presses: %v", err, time.Since(began), s.Pressing())
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
			if err := s.Wait(timeout); err != nil {
				t.Fatal(err)
			}
			if time.Since(began) >= timeout {
				t.Fatalf("program %d did not end the wait", i)
			}
			s.Peek(func(r Record) {
				var m Mmap2
				seen = seen || DecodeMmap2(r, &m) == nil && int(m.PID) == cmd.Process.Pid
			})
		}
	}
}

// A pause that ends as somebody wakes it does not keep that from the Wait behind it.
func TestWakeEndsPauseAndWait(t *testing.T) {
	s := mustOpen(t, Target{PIDs: []int{os.Getpid()}}, Options{Events: mustEvents(t, "dummy")})
	s.Wake()
	start := time.Now()
	for _, wait := range []func(time.Duration) error{s.Pause, s.Wait} {
		if err := wait(30 * time.Second); err != nil || time.Since(start) > 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	}
	const short = time.Millisecond
	if start = time.Now(); s.Pause(short) != nil || time.Since(start) < short {
		t.Errorf("woken once, and twice after %v", time.Since(start))
	}
}

func TestWakeEndsWait(t *testing.T) {
	s := mustOpen(t, Target{PIDs: []int{os.Getpid()}}, Options{Events: mustEvents(t, "dummy")})
	go func() {
		time.Sleep(20 * time.Millisecond)
		s.Wake()
	}()
	start := time.Now()
	if err := s.Wait(30 * time.Second); err != nil || time.Since(start) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
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
	ev, err := ParseEvents("sched:sched_switch,cpu-clock")
	if err != nil {
		t.Skipf("needs tracefs: %v", err)
	}
	s := mustOpen(t, Target{AllCPUs: true}, Options{Events: ev})
	if a := s.Attrs(); a[0].PerfEventAttr.Sample != 1 || a[0].PerfEventAttr.Bits&unix.PerfBitFreq != 0 ||
		a[1].PerfEventAttr.Sample != defaultFreq || a[1].PerfEventAttr.Bits&unix.PerfBitFreq == 0 {
		t.Errorf("periods %d and %d", a[0].PerfEventAttr.Sample, a[1].PerfEventAttr.Sample)
	}
	rec := newRecording(s)
	raw := 0
	rec.each = func(r Record, smp *Sample) {
		if r.Type() == RecordSample && slices.Contains(s.Attrs()[0].IDs, smp.ID) && len(smp.Raw) >= 8 {
			raw++
		}
	}
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	if err := rec.run(s, after(100*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	rec.check(t)
	if raw == 0 {
		t.Error("no sample of the tracepoint with RAW data")
	}
}

func TestRingsOfThreadsThatHaveExitedCanBeMapped(t *testing.T) {
	cmd, in := work(t, "burn")
	op := opener{sys: hostSystem, target: Target{PIDs: []int{cmd.Process.Pid}},
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
	if err := op.openProcesses(cpus); err != nil {
		t.Skipf("needs perf events: %v", err)
	}
	_ = in.Close()
	_ = cmd.Wait()
	if err := op.mapRings(); err != nil {
		t.Error(err)
	}
}

func TestLostRecordsAreCounted(t *testing.T) {
	cmd, _ := work(t, "burn")
	s := mustOpen(t, Target{PIDs: []int{cmd.Process.Pid}},
		Options{Events: mustEvents(t, "cpu-clock"), Freq: 20000, Pages: 1})
	if len(s.Notes()) == 0 || s.RingSize() < 64<<10 {
		t.Errorf("ring of %d bytes, notes %q", s.RingSize(), s.Notes())
	}
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	rec := newRecording(s)
	if err := s.Drain(rec.record); err != nil {
		t.Fatal(err)
	}
	// There is room for the LOST record now; it is written as soon as the program runs again.
	told := uint64(0)
	for waited := after(10 * time.Second); told == 0 && !waited(); told = s.Lost() {
		time.Sleep(10 * time.Millisecond)
		if err := s.Drain(rec.record); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Disable(); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(rec.record); err != nil {
		t.Fatal(err)
	}
	if told == 0 || s.Lost() < s.lost {
		t.Errorf("%d lost while recording, %d at the end, %d by LOST records", told, s.Lost(), s.lost)
	}
	t.Logf("lost: %d told, %d in the end, by LOST records %d, by event %v", told, s.Lost(), s.lost,
		s.EventLost())
}

func TestAdoptTakesDescriptorsOfOthers(t *testing.T) {
	op := opener{sys: hostSystem, target: Target{PIDs: []int{1}},
		opts: Options{Events: mustEvents(t, "cpu-clock:u")}}
	if err := op.check(); err != nil {
		t.Fatal(err)
	}
	attr := op.attr(0)
	fd, err := unix.PerfEventOpen(&attr, os.Getpid(), 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Skipf("perf_event_open: %v", err)
	}
	noClock := attr
	noClock.Bits &^= unix.PerfBitUseClockID
	if _, err := Adopt([]Adopted{{Name: "x", Attr: noClock, FDs: []int{fd}}}, 64); err == nil {
		t.Error("an event without use_clockid was adopted")
	}
	s, err := Adopt([]Adopted{{Name: "cpu-clock:u", Attr: attr, FDs: []int{fd}}}, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Enable(); err != nil {
		t.Error(err)
	}
	rec := newRecording(s)
	if err := rec.run(s, after(50*time.Millisecond)); err != nil {
		t.Error(err)
	}
	rec.check(t)
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
		opts: Options{Events: mustEvents(t, "cpu-clock")}}
	if err := op.check(); err != nil {
		t.Fatal(err)
	}
	attr := op.attr(0)
	attr.Bits |= bitsSideBand
	attr.Sample_type &^= unix.PERF_SAMPLE_STACK_USER // a few would fill the rings of a busy machine
	withCPU := attr
	attr.Sample_type &^= unix.PERF_SAMPLE_CPU
	adopted := Adopted{Name: "cpu-clock", Attr: attr}
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
	done := make(chan struct{})
	go func() { // in a thread that ends with it, as it stays on its CPU
		defer close(done)
		runtime.LockOSThread()
		for _, cpu := range cpus {
			var only unix.CPUSet
			only.Set(cpu)
			_ = unix.SchedSetaffinity(0, &only)
			for began := time.Now(); time.Since(began) < 20*time.Millisecond; {
			}
		}
	}()
	<-done
	if err := s.Flush(func(Record) error { seen[s.CPU()] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	for _, cpu := range adopted.CPUs {
		if !seen[cpu] {
			t.Errorf("no record of CPU %d, but of %v", cpu, seen)
		}
	}
}

// TestPausesOfAdoptedEvents: where each sample causes a wake-up, none of them ends a pause, and the first one
// ends a wait. The rings are calm as long as they have much room.
func TestPausesOfAdoptedEvents(t *testing.T) {
	op := opener{sys: hostSystem, target: Target{PIDs: []int{1}},
		opts: Options{Events: mustEvents(t, "cpu-clock"), Freq: 1000}}
	if err := op.check(); err != nil {
		t.Fatal(err)
	}
	attr := op.attr(0)
	attr.Bits &^= unix.PerfBitWatermark | unix.PerfBitInherit
	attr.Wakeup = 1
	attr.Sample_type &^= unix.PERF_SAMPLE_STACK_USER // for which such a ring has no room
	var over atomic.Bool
	defer over.Store(true)
	tid := make(chan int)
	go func() { // burns
		runtime.LockOSThread()
		tid <- unix.Gettid()
		for !over.Load() {
		}
	}()
	fd, err := unix.PerfEventOpen(&attr, <-tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Skipf("perf_event_open: %v", err)
	}
	s, err := Adopt([]Adopted{{Name: "cpu-clock", Attr: attr, FDs: []int{fd}}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Calm() {
		t.Error("calm before the first drain")
	}
	drain := func() (n int) {
		if err := s.Drain(func(Record) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := drain(); !s.Calm() {
		t.Errorf("not calm with %d records in %d bytes", n, s.RingSize())
	}
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	const pause = 50 * time.Millisecond
	began := time.Now()
	if err := s.Pause(pause); err != nil || time.Since(began) < pause {
		t.Errorf("a pause of %v: %v after %v", pause, err, time.Since(began))
	}
	began = time.Now()
	if err := s.Wait(10 * time.Second); err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("a wait after samples: %v after %v", err, time.Since(began))
	}
	time.Sleep(100 * time.Millisecond)
	if err := s.Disable(); err != nil {
		t.Fatal(err)
	}
	for i := range staysCrowded + 1 {
		if n := drain(); s.Calm() != (i == staysCrowded) {
			t.Errorf("%d drains after one that began with %d bytes full: calm: %t, %d records", i, s.RingSize(),
				s.Calm(), n)
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
	if !strings.Contains(text, "cpu-clock:u: ") || strings.Contains(text, "u: 0 samples") ||
		!strings.Contains(text, "errors [], sorted true") {
		t.Errorf("%s", out)
	}
	if !strings.Contains(text, "note: recording user code only") {
		t.Error("no note about :u")
	}
}

// TestTasksAreToldBesideSamples fills the ring of samples: no other record may be lost.
func TestTasksAreToldBesideSamples(t *testing.T) {
	s := mustOpen(t, Target{AllCPUs: true}, Options{Events: mustEvents(t, "cpu-clock"), Freq: 9999, Pages: 2,
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
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
	}
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
		t.Skip("no sample was lost")
	}
	for pid, n := range pids {
		if n != 3 {
			t.Errorf("process %d: %d of FORK, COMM and EXIT", pid, n)
		}
	}
}
