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

	"unspool/capture"
	"unspool/perfring"
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
	eventually(t, fmt.Sprintf("%d samples of process %d", n, pid), func() bool {
		return len(samplesOf(r.Frames(), pid)) >= n
	})
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

// matching counts the samples of a program whose stacks are what it says.
func matching(t testing.TB, path string, p *programs.Process, samples []sysprofd.Frame) (right int) {
	t.Helper()
	name := namesOf(t, path)
	for _, s := range samples {
		var stack []string
		for i, addr := range userPart(&s) {
			stack = append(stack, name(addr-uint64(min(i, 1))))
		}
		if err := p.Chain.Match(stack); err == nil {
			right++
		} else if right == 0 {
			t.Logf("%.300v", err)
		}
	}
	return right
}

// TestLiveUnwinder records through a pipe: what comes in which order, and stacks of 2,000 frames.
func TestLiveUnwinder(t *testing.T) {
	t.Parallel()
	path := programs.Build(t, "deep", "-no-pie", "-fno-pie")
	p := programs.Start(t, path, 60, "2000")
	kallsyms := filepath.Join(t.TempDir(), "kallsyms")
	symbols := bytes.Repeat([]byte("ffffffff81000000 T _text\n"), 1000)
	if err := os.WriteFile(kallsyms, symbols, 0o600); err != nil {
		t.Fatal(err)
	}
	r := unwinds(t, sysprofd.Options{StackSize: 61440, Kallsyms: kallsyms})
	untilSampled(t, r, p.Process.Pid, 50)
	child := exec.Command(programs.Build(t, "burn"), "30")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	short := child.Process.Pid
	eventually(t, "the end of a process", func() bool {
		return slices.ContainsFunc(r.Frames(), func(f sysprofd.Frame) bool {
			return f.Kind == sysprofd.Exit && int(f.PID) == short
		})
	})
	ends(t, r, r.EndAndRead())

	h, err := r.Header()
	at, terr := time.Parse(time.RFC3339Nano, h.Clock)
	if err != nil || terr != nil || time.Since(at).Abs() > time.Minute || h.Start == 0 {
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
	for _, file := range []string{"/proc/self/mounts", fmt.Sprintf("/proc/%d/mountinfo", p.Process.Pid)} {
		want, _ := os.ReadFile(file)
		if got := embeddedFile(frames, strings.Replace(file, "self/", "", 1)); !bytes.Equal(got, want) {
			t.Errorf("%s is %q, not %q", file, got, want)
		}
	}
	samples := samplesOf(frames, p.Process.Pid)
	right := matching(t, path, p, samples)
	t.Logf("%d of %d stacks of %d frames are right", right, len(samples), len(p.Chain.Frames))
	if right*100 < len(samples)*99 {
		t.Errorf("only %d of %d stacks are right", right, len(samples))
	}
	// It may be sampled before it executes its program, while the kernel has not mapped that yet, and after its
	// EXIT.
	mapped := regexp.MustCompile("(PROCESS|FILE) (SAMPLE )?MAP")
	if kinds := kindsOf(frames, short); !strings.HasPrefix(kinds, "FORK PROCESS FILE ") ||
		!mapped.MatchString(kinds) || !strings.Contains(kinds, "SAMPLE EXIT") {
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

// late is how much later than others a sample is written that may be completed: it waits, and then for the
// next time that the rings are drained.
const late = capture.JoinAfter + 500*time.Millisecond

// inOrder checks that whatever has samples has a name, mounts and mappings before them, and what is said of
// time and CPU. Sysprof sorts what it reads by time.
func inOrder(t testing.TB, frames []sysprofd.Frame, h sysprofd.Header) {
	t.Helper()
	named, mounted, mapped, forked := make(map[int32]bool), make(map[int32]bool), make(map[int32]bool),
		make(map[int32]bool)
	outOfOrder, without := 0, 0
	var last uint64
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
			if f.Time+uint64(late) < last {
				outOfOrder++
			}
			last = max(last, f.Time)
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
	if outOfOrder > 0 || without > 0 {
		t.Errorf("%d samples are out of order, %d are of processes without mounts", outOfOrder, without)
	}
}

// TestLiveUnwinderIsConfined looks at the processes while they unwind.
func TestLiveUnwinderIsConfined(t *testing.T) {
	t.Parallel()
	r := unwinds(t, sysprofd.Options{})
	eventually(t, "a frame", func() bool { return len(r.Frames()) > 0 })
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
	path := programs.Build(t, "plain", "-no-pie", "-fno-pie")
	p := programs.Start(t, path, 60)
	file := filepath.Join(t.TempDir(), "x.syscap")
	r := unwinds(t, sysprofd.Options{File: file})
	var frames []sysprofd.Frame
	eventually(t, "samples", func() bool {
		b, _ := os.ReadFile(file)
		if len(b) > sysprofd.HeaderSize {
			_, frames, _ = sysprofd.Parse(b)
		}
		return len(samplesOf(frames, p.Process.Pid)) >= 20
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
	samples := samplesOf(frames, p.Process.Pid)
	if right := matching(t, path, p, samples); right*100 < len(samples)*99 {
		t.Errorf("only %d of %d stacks are right", right, len(samples))
	}
}

// TestLiveUnwinderEnds ends it in all the ways that there are.
func TestLiveUnwinderEnds(t *testing.T) {
	t.Parallel()
	burns := burner(t)
	t.Run("by the eventfd, with the reader gone at once", func(t *testing.T) {
		r := unwinds(t, sysprofd.Options{})
		untilSampled(t, r, burns, 20)
		began := time.Now()
		ends(t, r, r.End())
		t.Logf("after %v", time.Since(began))
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
		eventually(t, "frames", func() bool { return len(r.Frames()) > 0 })
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
		time.Sleep(100 * time.Millisecond)
		r.Resume()
		ends(t, r, r.EndAndRead())
	})
}

// TestLiveUnwinderDropsEventsThatHangUp ends the task of one of the events. Those of the CPUs go on, and what
// hung up is not asked again and again.
func TestLiveUnwinderDropsEventsThatHangUp(t *testing.T) {
	t.Parallel()
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
	if used > passed/2 {
		t.Errorf("it used %v in %v", used, passed)
	}
	ends(t, r, r.EndAndRead())

	alone := exec.Command(programs.Build(t, "burn"), "0")
	if err := alone.Start(); err != nil {
		t.Fatal(err)
	}
	r = unwinds(t, sysprofd.Options{Tasks: []int{alone.Process.Pid}, TasksOnly: true})
	untilSampled(t, r, alone.Process.Pid, 20)
	alone.Process.Kill()
	alone.Wait()
	ends(t, r, r.Wait()) // nothing can come any more
}

// TestLiveUnwinderWithASlowReader has nobody read for a while: the rings are drained all the same, and what
// waits is written later.
func TestLiveUnwinderWithASlowReader(t *testing.T) {
	t.Parallel()
	burns := burner(t)
	r := unwinds(t, sysprofd.Options{StackSize: 61440})
	untilSampled(t, r, burns, 20)
	r.Pause()
	time.Sleep(1500 * time.Millisecond) // a ring holds half a second
	until := monotonic(t)
	r.Resume()
	eventually(t, "samples from behind the pause", func() bool {
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
	if ofThePause == 0 {
		t.Error("no sample is from the end of the pause")
	}
	h, _ := r.Header()
	inOrder(t, r.Frames(), h)
}

// TestLiveUnwinderInAStorm starts 1,200 processes: what it remembers of those that have ended does not grow,
// and every process has its frames.
func TestLiveUnwinderInAStorm(t *testing.T) { stormOf(t, 6, 200, "/bin/true", 0) }

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
	eventually(t, "frames", func() bool { return len(r.Frames()) > 0 })
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
	eventually(t, "the end of the last process", func() bool {
		return len(squalls(r.Frames(), name).ended) == seconds*rate
	})
	ends(t, r, r.EndAndRead())
	t.Logf("resident KiB, four times a second: %.0f", rss)
	t.Logf("open files: %.0f, of the opener %.0f", files, opened)
	// Files of what else runs on the machine stay open: so some room. Between the quarters compared the storm
	// starts 600 processes.
	levelsOff(t, "resident KiB", rss, 12<<10)
	levelsOff(t, "open files", files, 256)
	levelsOff(t, "open files of the opener", opened, 8)

	h, _ := r.Header()
	inOrder(t, r.Frames(), h)
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

// TestLiveUnwinderRefuses calls it wrongly.
func TestLiveUnwinderRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"--capture-fd=3", "--perf-fd is missing"},
		{"--perf-fd=x --capture-fd=3", `--perf-fd "x": must be FD or FD:CPU`},
		{"--perf-fd=1:0 --capture-fd=3", "descriptor 1: "},
		{"--perf-fd=4:0", "descriptor -1: "},
		{"--perf-fd=4:0 --capture-fd=3 --stack-size=70000", "--stack-size 70000: "},
		{"--perf-fd=94:0 --capture-fd=3", "bad file descriptor"},
	} {
		r := start(t, t.TempDir(), nil, append([]string{"live-unwinder"}, strings.Fields(c.args)...)...)
		if e := r.finish(t, 20*time.Second); e.status != 125 || !strings.Contains(e.stderr, c.want) {
			t.Errorf("%s: status %d, %q", c.args, e.status, e.stderr)
		}
	}
}
