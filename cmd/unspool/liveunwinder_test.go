package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"unspool/capture/session"
	"unspool/perfring"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/testdata/sysprofd"
)

// unwinds starts the program under test as Sysprof starts its helper.
func unwinds(t testing.TB, o sysprofd.Options) *sysprofd.Recording {
	t.Helper()
	needRoot(t)
	o.Helper = filepath.Join(t.TempDir(), "sysprof-live-unwinder")
	if err := os.Symlink(binary, o.Helper); err != nil {
		t.Fatal(err)
	}
	if o.StackSize == 0 {
		o.StackSize = 16384
	}
	r, err := sysprofd.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// ends fails the test unless the program has ended well. It may have said that it got no CPU.
func ends(t testing.TB, r *sysprofd.Recording, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("it ended with %v\n%s", err, &r.Stderr)
	}
}

// samplesOf are the samples of a process.
func samplesOf(frames []sysprofd.Frame, pid int) (samples []sysprofd.Frame) {
	for _, f := range frames {
		if f.Kind == sysprofd.Sample && int(f.PID) == pid {
			samples = append(samples, f)
		}
	}
	return samples
}

// untilSampled waits for some samples of a process.
func untilSampled(t testing.TB, r *sysprofd.Recording, pid, n int) {
	t.Helper()
	lane.Eventually(t, fmt.Sprintf("%d samples of process %d", n, pid), func() bool {
		return len(samplesOf(r.Frames(), pid)) >= n
	})
}

// unwindsFaults is unwinds for a toucher, whose page faults are counted from now on.
func unwindsFaults(t testing.TB, o sysprofd.Options, touchers ...*toucher) *sysprofd.Recording {
	t.Helper()
	o.Faults = true
	for _, p := range touchers {
		o.Tasks = append(o.Tasks, p.pid)
	}
	r := unwinds(t, o)
	// When it writes frames it has mapped the rings, without which samples are lost.
	lane.Eventually(t, "a first frame", func() bool {
		if o.File == "" {
			return len(r.Frames()) > 0
		}
		st, err := os.Stat(o.File)
		return err == nil && st.Size() > sysprofd.HeaderSize
	})
	return r
}

// chainOf is that of a toucher below so many frames of touches_outer.
func chainOf(depth int) programs.Chain {
	frames := slices.Concat([]string{"main", "touches_pages"}, slices.Repeat([]string{"touches_outer"}, depth),
		[]string{"touches_leaf"})
	return programs.Chain{Kind: programs.Main, Frames: frames}
}

// userPart is what follows the marker in a sample.
func userPart(f *sysprofd.Frame) []uint64 {
	addrs := f.Addrs()
	at := slices.Index(addrs, perfring.ContextUser)
	return addrs[at+1:]
}

// namesOf are the functions of a file that is not relocated, by address.
func namesOf(t testing.TB, path string) func(addr uint64) string {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	return func(addr uint64) string {
		for _, s := range symbols {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Value <= addr && addr < s.Value+s.Size {
				return s.Name
			}
		}
		return fmt.Sprintf("%#x", addr)
	}
}

// matching counts the samples at the end of a program's chain. Each of their stacks has to be what the program says.
func matching(t testing.TB, path string, chain programs.Chain, samples []sysprofd.Frame) (right int) {
	t.Helper()
	name := namesOf(t, path)
	for _, s := range samples {
		var stack []string
		for i, addr := range userPart(&s) {
			stack = append(stack, name(addr-uint64(min(i, 1))))
		}
		if len(stack) == 0 || stack[0] != chain.Leaf() {
			continue
		}
		if err := chain.Match(stack); err != nil {
			t.Errorf("%.300v", err)
		} else {
			right++
		}
	}
	return right
}

// TestLiveUnwinder records through a pipe: what comes in which order, and stacks of 2,000 frames.
func TestLiveUnwinder(t *testing.T) {
	t.Parallel()
	path := buildCase(t, "touches.c", "-no-pie", "-fno-pie")
	p := runToucher(t, exec.Command(path))
	const depth = 2000
	kallsyms := filepath.Join(t.TempDir(), "kallsyms")
	symbols := bytes.Repeat([]byte("ffffffff81000000 T _text\n"), 1000)
	if err := os.WriteFile(kallsyms, symbols, 0o600); err != nil {
		t.Fatal(err)
	}
	r := unwindsFaults(t, sysprofd.Options{StackSize: 61440, Kallsyms: kallsyms}, p)
	for n := 5; n <= counted; n += 5 { // with the pages of its stack, all of them at once would fill a ring
		p.tell(fmt.Sprintf("5 %d", depth))
		untilSampled(t, r, p.pid, n)
	}
	ends(t, r, r.EndAndRead())

	h, err := r.Header()
	at, terr := time.Parse(time.RFC3339Nano, h.Clock)
	if err != nil || terr != nil || time.Since(at).Abs() > time.Hour || h.Start == 0 {
		t.Errorf("header %+v, %v, %v", h, err, terr)
	}
	if reads, largest := r.Backlog(); reads != 0 || largest > 4096 {
		t.Errorf("%d reads had more than a frame, and the largest %d bytes", reads, largest)
	}
	frames := r.Frames()
	inOrder(t, frames, h)
	got, first := embeddedFile(frames, "/proc/kallsyms"), frames[0].Name()
	if !bytes.Equal(got, symbols) || first != "/proc/kallsyms" {
		t.Errorf("%d bytes of the kernel's symbols, first frame %s", len(got), first)
	}
	for _, file := range []string{"/proc/self/mounts", fmt.Sprintf("/proc/%d/mountinfo", p.pid)} {
		// Other tests may mount and unmount meanwhile.
		own := regexp.MustCompile("(?m)^.* /proc .*$")
		got := own.Find(embeddedFile(frames, strings.Replace(file, "self/", "", 1)))
		if want := own.Find(mustRead(t, file)); !bytes.Equal(got, want) {
			t.Errorf("%s has %q, not %q", file, got, want)
		}
	}
	onTime(t, samplesOf(frames, p.pid), 0) // none of these waits to be completed
	if right := matching(t, path, chainOf(depth), samplesOf(frames, p.pid)); right != counted {
		t.Errorf("%d stacks of %d frames, of %d", right, depth, counted)
	}
}

// TestLiveUnwinderReadsTheRest has small copies: the rest of stacks is read when they are sampled, for events that
// another process has opened, too.
func TestLiveUnwinderReadsTheRest(t *testing.T) {
	t.Parallel()
	path := buildCase(t, "touches.c", "-no-pie", "-fno-pie")
	p := runToucher(t, exec.Command(path))
	const depth = 1000
	r := unwindsFaults(t, sysprofd.Options{StackSize: 4096}, p)
	n := 0
	lane.Eventually(t, "stacks that are read", func() bool {
		p.tell(fmt.Sprintf("%d %d", counted, depth))
		n += counted
		untilSampled(t, r, p.pid, n)
		whole := 0
		for _, s := range samplesOf(r.Frames(), p.pid) {
			if len(userPart(&s)) > depth {
				whole++
			}
		}
		return whole >= counted
	})
	ends(t, r, r.EndAndRead())
	samples := samplesOf(r.Frames(), p.pid)
	samples = slices.DeleteFunc(samples, func(s sysprofd.Frame) bool { return len(userPart(&s)) <= depth })
	if right := matching(t, path, chainOf(depth), samples); right < counted {
		t.Errorf("%d stacks of %d frames, of %d", right, depth, len(samples))
	}
}

// TestLiveUnwinderTellsOfProcesses looks at what is told of a process from its begin to its end, which is sampled by
// time, as Sysprof does it.
func TestLiveUnwinderTellsOfProcesses(t *testing.T) {
	t.Parallel()
	r := unwinds(t, sysprofd.Options{})
	lane.Eventually(t, "a frame", func() bool { return len(r.Frames()) > 0 })
	child := exec.Command(programs.Build(t, "burn"), "0")
	if err := programs.StartTied(t, child); err != nil {
		t.Fatal(err)
	}
	short := child.Process.Pid
	untilSampled(t, r, short, 3)
	child.Process.Kill()
	child.Wait()
	lane.Eventually(t, "the end of a process", func() bool {
		return slices.ContainsFunc(r.Frames(), func(f sysprofd.Frame) bool {
			return f.Kind == sysprofd.Exit && int(f.PID) == short
		})
	})
	ends(t, r, r.EndAndRead())
	// It may be sampled before it executes its program, while the kernel has not mapped that yet, and after its
	// EXIT.
	mapped := regexp.MustCompile("(PROCESS|FILE) (SAMPLE )?MAP")
	if kinds := kindsOf(r.Frames(), short); !strings.HasPrefix(kinds, "FORK PROCESS FILE ") ||
		!mapped.MatchString(kinds) || !regexp.MustCompile("SAMPLE .*EXIT").MatchString(kinds) {
		t.Errorf("a short process has %s", kinds)
	}
}

var kindNames = map[uint32]string{
	sysprofd.Sample: "SAMPLE", sysprofd.Map: "MAP", sysprofd.Process: "PROCESS", sysprofd.Fork: "FORK",
	sysprofd.Exit: "EXIT", sysprofd.Log: "LOG", sysprofd.File: "FILE",
}

// kindsOf are the kinds of the frames of a process, each once in a row, from its FORK on.
func kindsOf(frames []sysprofd.Frame, pid int) string {
	var kinds []string
	info := fmt.Sprintf("/proc/%d/mountinfo", pid)
	for _, f := range frames {
		if f.Kind == sysprofd.Fork && int(f.Child()) == pid || f.Kind == sysprofd.File && f.Name() == info ||
			f.Kind != sysprofd.File && f.Kind != sysprofd.Fork && int(f.PID) == pid {
			kinds = append(kinds, kindNames[f.Kind])
		}
	}
	return strings.Join(slices.Compact(kinds), " ")
}

// embeddedFile puts the chunks of a file together, up to the first end.
func embeddedFile(frames []sysprofd.Frame, name string) (content []byte) {
	for _, f := range frames {
		if f.Kind == sysprofd.File && f.Name() == name {
			data, last := f.Chunk()
			if content = append(content, data...); last {
				return content
			}
		}
	}
	return nil
}

// inOrder checks that whatever has samples has a name, mounts and mappings before them, and what is said of
// the begin and of CPUs.
func inOrder(t testing.TB, frames []sysprofd.Frame, h sysprofd.Header) {
	t.Helper()
	named, mounted, mapped, forked := make(map[int32]bool), make(map[int32]bool), make(map[int32]bool),
		make(map[int32]bool)
	without := 0
	for _, f := range frames {
		if f.Time < h.Start {
			t.Fatalf("%s at %d, before the start at %d", kindNames[f.Kind], f.Time, h.Start)
		}
		switch f.Kind {
		case sysprofd.Process:
			named[f.PID] = true
		case sysprofd.Map:
			mapped[f.PID] = true
		case sysprofd.Fork:
			forked[f.Child()] = mounted[f.PID] // those of its parent will do
		case sysprofd.File:
			var pid int32
			if n, _ := fmt.Sscanf(f.Name(), "/proc/%d/mountinfo", &pid); n == 1 {
				mounted[pid] = true
				if !named[pid] {
					t.Fatalf("mounts of process %d before its name", pid)
				}
			}
		case sysprofd.Sample:
			user := slices.Contains(f.Addrs(), perfring.ContextUser)
			if !named[f.PID] || user && len(userPart(&f)) > 1 && !mapped[f.PID] {
				t.Fatalf("a sample of process %d before its name or its mappings", f.PID)
			}
			if !mounted[f.PID] && forked[f.PID] { // others may have ended before they were looked at
				without++
			}
			if f.CPU < 0 {
				t.Fatalf("a sample on CPU %d", f.CPU)
			}
		}
	}
	if without > 0 {
		t.Errorf("%d samples are of processes without mounts", without)
	}
}

// late is how much later than others a sample is written that may be completed: it waits, and then for the
// next time that the rings are drained.
const late = session.JoinAfter + 500*time.Millisecond

// onTime checks that no sample is much later than others. Sysprof sorts what it reads by time.
func onTime(t testing.TB, frames []sysprofd.Frame, late time.Duration) {
	t.Helper()
	n := 0
	var last uint64
	for _, f := range frames {
		if f.Kind == sysprofd.Sample {
			if f.Time+uint64(late) < last {
				n++
			}
			last = max(last, f.Time)
		}
	}
	if n > 0 {
		t.Errorf("%d samples are out of order", n)
	}
}

// TestLiveUnwinderIsConfined looks at the processes while they unwind.
func TestLiveUnwinderIsConfined(t *testing.T) {
	t.Parallel()
	r := unwinds(t, sysprofd.Options{})
	lane.Eventually(t, "a frame", func() bool { return len(r.Frames()) > 0 })
	pid := r.Cmd.Process.Pid
	for _, thread := range fieldsOf(t, pid) {
		for name, want := range map[string]string{
			"Uid": usersOf(pid), "Gid": "65534 65534 65534 65534", "Groups": "",
			"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
		} {
			if thread[name] != want {
				t.Errorf("a thread has %s %q, not %q", name, thread[name], want)
			}
		}
	}
	for _, thread := range fieldsOf(t, child(t, pid, "(opener)")) {
		if thread["Seccomp"] != "2" || thread["NoNewPrivs"] != "1" {
			t.Errorf("the opener has seccomp %s", thread["Seccomp"])
		}
	}
	ends(t, r, r.End())
}

// TestLiveUnwinderWritesFiles records into a file, whose header gets its end.
func TestLiveUnwinderWritesFiles(t *testing.T) {
	t.Parallel()
	path := buildCase(t, "touches.c", "-no-pie", "-fno-pie")
	p := runToucher(t, exec.Command(path))
	file := filepath.Join(t.TempDir(), "x.syscap")
	r := unwindsFaults(t, sysprofd.Options{File: file}, p)
	p.touch(counted)
	var frames []sysprofd.Frame
	lane.Eventually(t, "samples", func() bool {
		b, _ := os.ReadFile(file)
		if len(b) > sysprofd.HeaderSize {
			_, frames, _ = sysprofd.Parse(b)
		}
		return len(samplesOf(frames, p.pid)) >= counted
	})
	ends(t, r, r.EndAndRead())
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	h, frames, err := sysprofd.Parse(b)
	if err != nil || h.End <= h.Start {
		t.Fatalf("header %+v, %v", h, err)
	}
	inOrder(t, frames, h)
	if right := matching(t, path, chainOf(1), samplesOf(frames, p.pid)); right != counted {
		t.Errorf("%d stacks are right, of %d", right, counted)
	}
}

// TestLiveUnwinderEnds ends it in all the ways that there are.
func TestLiveUnwinderEnds(t *testing.T) {
	t.Parallel()
	burns := burner(t)
	t.Run("by the eventfd, with the reader gone at once", func(t *testing.T) {
		r := unwinds(t, sysprofd.Options{})
		untilSampled(t, r, burns, 20)
		ends(t, r, r.End())
	})
	t.Run("by the eventfd, before it begins", func(t *testing.T) {
		r := unwinds(t, sysprofd.Options{Announced: true})
		ends(t, r, r.Wait())
		if _, err := r.Header(); err != nil {
			t.Error(err)
		}
	})
	t.Run("by the eventfd, without a sample", func(t *testing.T) {
		r := unwinds(t, sysprofd.Options{Disabled: true})
		lane.Eventually(t, "frames", func() bool { return len(r.Frames()) > 0 })
		ends(t, r, r.EndAndRead())
		if n := len(samplesOf(r.Frames(), burns)); n > 0 {
			t.Errorf("%d samples of events that were not enabled", n)
		}
	})
	t.Run("by the reader, which goes early", func(t *testing.T) {
		r := unwinds(t, sysprofd.Options{})
		r.Hang()
		ends(t, r, r.Wait())
	})
	t.Run("by the reader, in the middle", func(t *testing.T) {
		r := unwinds(t, sysprofd.Options{})
		untilSampled(t, r, burns, 20)
		r.Hang()
		ends(t, r, r.Wait())
	})
	t.Run("by the eventfd, with a reader that does not read", func(t *testing.T) {
		r := unwinds(t, sysprofd.Options{})
		r.Pause()
		untilFull(t, r)
		r.Resume()
		ends(t, r, r.EndAndRead())
	})
}

// untilFull waits until the pipe of a helper whose reader has paused takes nothing more. How much that is depends on
// what is in it: each frame takes a page at least, however short it is.
func untilFull(t *testing.T, r *sysprofd.Recording) {
	t.Helper()
	waiting, same := 0, 0
	lane.Eventually(t, "a full pipe", func() bool {
		if n := r.Waiting(); n != waiting || n == 0 {
			waiting, same = n, 0
		}
		same++
		return same > 200
	})
}

// TestLiveUnwinderDropsEventsThatHangUp ends the tasks of events one after the other. Those of the others go on, until
// nothing can come any more.
func TestLiveUnwinderDropsEventsThatHangUp(t *testing.T) {
	t.Parallel()
	first, second := startToucher(t), startToucher(t)
	r := unwindsFaults(t, sysprofd.Options{TasksOnly: true}, first, second)
	first.touch(counted)
	second.touch(counted)
	untilSampled(t, r, first.pid, counted)
	untilSampled(t, r, second.pid, counted)
	first.tell("quit")
	second.touch(counted)
	untilSampled(t, r, second.pid, 2*counted)
	second.touch(counted)
	untilSampled(t, r, second.pid, 3*counted)
	second.tell("quit")
	ends(t, r, r.Wait())
}

// TestMachineLiveUnwinderDropsEventsThatHangUp looks at the CPU time after the task of an event has ended: what hung up
// is not asked again and again.
func TestMachineLiveUnwinderDropsEventsThatHangUp(t *testing.T) {
	lane.Machine(t, 0.95)
	burns := burner(t)
	task := exec.Command(programs.Build(t, "burn"), "0")
	if err := task.Start(); err != nil {
		t.Fatal(err)
	}
	r := unwinds(t, sysprofd.Options{Tasks: []int{task.Process.Pid}})
	untilSampled(t, r, burns, 20)
	task.Process.Kill()
	task.Wait()
	before := len(samplesOf(r.Frames(), burns)) + 300 // files of what runs already are read first
	untilSampled(t, r, burns, before)
	cpu, began := cpuOf(t, r.Cmd.Process.Pid), time.Now()
	untilSampled(t, r, burns, before+200)
	used, passed := cpuOf(t, r.Cmd.Process.Pid)-cpu, time.Since(began)
	if lane.Figure(t, "it used %v in %v", used, passed); used > passed/2 {
		t.Errorf("it used %v in %v", used, passed)
	}
	ends(t, r, r.EndAndRead())
}

// TestLiveUnwinderWithASlowReader has nobody read for a while: what waits is written later.
func TestLiveUnwinderWithASlowReader(t *testing.T) {
	t.Parallel()
	p := startToucher(t)
	r := unwindsFaults(t, sysprofd.Options{TasksOnly: true, StackSize: 61440}, p)
	p.touch(1)
	untilSampled(t, r, p.pid, 1)
	r.Pause()
	const frames, waiting = 3000, 60 // of 24,000 bytes each
	for range waiting / 5 {
		p.tell(fmt.Sprintf("5 %d", frames))
	}
	untilFull(t, r)
	r.Resume()
	untilSampled(t, r, p.pid, 1+waiting)
	ends(t, r, r.EndAndRead())
	for _, f := range r.Frames() {
		if f.Kind == sysprofd.Log {
			t.Errorf("%q", f.Name())
		}
	}
	h, _ := r.Header()
	inOrder(t, r.Frames(), h)
}

// TestMachineLiveUnwinderWithASlowReader has nobody read for longer than the rings hold: they are drained all the same.
func TestMachineLiveUnwinderWithASlowReader(t *testing.T) {
	lane.Machine(t, 0.95)
	burns := burner(t)
	r := unwinds(t, sysprofd.Options{StackSize: 61440})
	untilSampled(t, r, burns, 20)
	r.Pause()
	time.Sleep(1500 * time.Millisecond) // a ring holds half a second
	until := monotonic(t)
	r.Resume()
	lane.Eventually(t, "samples from behind the pause", func() bool {
		all := samplesOf(r.Frames(), burns)
		return len(all) > 0 && time.Duration(all[len(all)-1].Time) > until
	})
	ends(t, r, r.EndAndRead())
	ofThePause := 0
	for _, f := range r.Frames() {
		if at := time.Duration(f.Time); f.Kind == sysprofd.Sample && at < until && at > until-500*time.Millisecond {
			ofThePause++
		}
		if f.Kind == sysprofd.Log && strings.Contains(f.Name(), "not read in time") {
			t.Errorf("%q", f.Name())
		}
	}
	if lane.Figure(t, "%d samples are from the end of the pause", ofThePause); ofThePause == 0 {
		t.Error("no sample is from the end of the pause")
	}
	h, _ := r.Header()
	inOrder(t, r.Frames(), h)
	onTime(t, r.Frames(), late)
}

// TestLiveUnwinderInAStorm starts 200 processes one after the other, as fast as it goes: each has a name and an end.
func TestLiveUnwinderInAStorm(t *testing.T) {
	t.Parallel()
	const processes = 200
	name := fmt.Sprintf("gust%d", os.Getpid()) // no other process has it
	command := filepath.Join(t.TempDir(), name)
	copyFile(t, "/bin/true", command)
	r := unwindsFaults(t, sysprofd.Options{StackSize: 4096})
	output(t, "", "sh", "-c", fmt.Sprintf(`for i in $(seq %d); do "$0"; done`, processes), command)
	lane.Eventually(t, "the end of the last process", func() bool {
		return len(squalls(r.Frames(), name).ended) == processes
	})
	ends(t, r, r.EndAndRead())
	h, _ := r.Header()
	inOrder(t, r.Frames(), h)
	if s := squalls(r.Frames(), name); len(s.named) != processes || s.logged != "" {
		t.Errorf("of %d processes %d have a name; %q", processes, len(s.named), s.logged)
	}
}

// TestMachineLiveUnwinderInAStorm starts 1,200 processes: what it remembers of those that have ended does not grow,
// and every process has its frames.
func TestMachineLiveUnwinderInAStorm(t *testing.T) {
	lane.Machine(t, 0.95)
	stormOf(t, 6, 200, "/bin/true", 0)
}

// BenchmarkLiveUnwinderInAStorm starts as many processes in more time, and each runs for 5 ms.
func BenchmarkLiveUnwinderInAStorm(b *testing.B) {
	stormOf(b, 24, 50, programs.Build(b, "burn"), 90)
	b.ReportMetric(0, "ns/op")
}

// stormOf starts some processes of a program a second. At least so many per cent of them are sampled.
func stormOf(t testing.TB, seconds, rate int, program string, sampled int) {
	needRoot(t)
	name := fmt.Sprintf("squall%d", os.Getpid()) // no other process has it
	command := filepath.Join(t.TempDir(), name)
	copyFile(t, program, command)
	r := unwinds(t, sysprofd.Options{})
	lane.Eventually(t, "frames", func() bool { return len(r.Frames()) > 0 })
	storm := exec.Command(programs.Build(t, "storm"), strconv.Itoa(seconds), strconv.Itoa(rate), command)
	var stdout bytes.Buffer
	storm.Stdout = &stdout
	if err := storm.Start(); err != nil {
		t.Fatal(err)
	}
	opener := child(t, r.Cmd.Process.Pid, "(opener)")
	var rss, files, opened []float64
	for range 4 * (seconds - 1) {
		time.Sleep(time.Second / 4)
		rss = append(rss, vmRSS(t, r.Cmd.Process.Pid))
		files = append(files, openFiles(t, r.Cmd.Process.Pid))
		opened = append(opened, openFiles(t, opener))
	}
	all := fmt.Sprintf("storm %d\n", seconds*rate)
	if err := storm.Wait(); err != nil || !strings.Contains(stdout.String(), all) {
		t.Fatalf("storm printed %q, %v", &stdout, err)
	}
	lane.Eventually(t, "the end of the last process", func() bool {
		return len(squalls(r.Frames(), name).ended) == seconds*rate
	})
	ends(t, r, r.EndAndRead())
	lane.Figure(t, "resident KiB, four times a second: %.0f", rss)
	lane.Figure(t, "open files: %.0f, of the opener %.0f", files, opened)
	// Files of what else runs on the machine stay open: so some room. Between the quarters compared the storm
	// starts 600 processes.
	levelsOff(t, "resident KiB", rss, 12<<10)
	levelsOff(t, "open files", files, 256)
	levelsOff(t, "open files of the opener", opened, 8)

	h, _ := r.Header()
	inOrder(t, r.Frames(), h)
	onTime(t, r.Frames(), late)
	s := squalls(r.Frames(), name)
	t.Logf("%d named, %d ended, %d sampled", len(s.named), len(s.ended), len(s.sampled))
	if len(s.named) != seconds*rate || len(s.sampled)*100 < seconds*rate*sampled || s.logged != "" {
		t.Errorf("of %d processes %d have a name, %d samples; %q", seconds*rate, len(s.named), len(s.sampled),
			s.logged)
	}
}

// squall is what frames say of the processes of a storm.
type squall struct {
	named, ended, sampled map[int32]bool
	logged                string
}

func squalls(frames []sysprofd.Frame, name string) squall {
	s := squall{named: make(map[int32]bool), ended: make(map[int32]bool), sampled: make(map[int32]bool)}
	for _, f := range frames {
		switch {
		case f.Kind == sysprofd.Process && f.Name() == name:
			s.named[f.PID] = true
		case f.Kind == sysprofd.Exit && s.named[f.PID]:
			s.ended[f.PID] = true
		case f.Kind == sysprofd.Sample && s.named[f.PID]:
			s.sampled[f.PID] = true
		case f.Kind == sysprofd.Log:
			s.logged = f.Name()
		}
	}
	return s
}
