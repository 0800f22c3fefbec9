package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

func TestProcessWithThreads(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	threads := []string{"words", "archive", "scene", "rules"}
	p, other := startToucher(t, threads...), startToucher(t)

	t.Run("all threads", func(t *testing.T) {
		s := startRecording(t, faultsOf(p)...)
		p.touch(counted)
		other.touch(counted)
		r := s.stop(t)
		samples := perfScript(t, r.path)
		for _, name := range threads {
			n := share(touching(samples), func(s *sample) bool {
				return s.comm == name && slices.Contains(s.names(), "touches_thread")
			})
			if n != counted {
				t.Errorf("thread %s: %d samples below touches_thread, of %d", name, n, counted)
			}
		}
		if n := len(samples) - len(of(samples, p.pid)); n > 0 {
			t.Errorf("%d samples of other processes", n)
		}
		r.whollyComplete(t)
	})

	t.Run("with a command", func(t *testing.T) {
		dir := t.TempDir()
		r, command := startTold(t, dir, slices.Concat([]string{"record"}, faultsOf(p, other),
			[]string{"--", buildToucher(t, "")})...)
		for _, toucher := range []*toucher{p, other, command} {
			toucher.touch(counted)
		}
		if r.hasEnded() {
			t.Error("it has ended before the command")
		}
		command.end()
		if e := r.finish(t, time.Minute); e.status != 0 {
			t.Fatalf("%+v", e)
		}
		samples := perfScript(t, filepath.Join(dir, "perf.data"))
		if n := len(samples) - len(of(samples, p.pid)) - len(of(samples, other.pid)); n > 0 {
			t.Errorf("%d samples of other processes", n)
		}
		for want, pid := range map[int]int{counted: other.pid, len(threads) * counted: p.pid} {
			if n := len(touching(of(samples, pid))); n != want {
				t.Errorf("%d samples of process %d, of %d", n, pid, want)
			}
		}
	})

	t.Run("all processes with a command", func(t *testing.T) {
		dir := t.TempDir()
		r, command := startTold(t, dir, slices.Concat([]string{"record", "-a"}, rareOnly(t),
			[]string{"--", buildToucher(t, "")})...)
		for _, toucher := range []*toucher{p, other, command} {
			toucher.touch(counted)
		}
		command.end()
		if e := r.finish(t, time.Minute); e.status != 0 {
			t.Fatalf("%+v", e)
		}
		samples := perfScript(t, filepath.Join(dir, "perf.data"))
		for _, c := range []struct{ pid, want int }{{command.pid, counted}, {other.pid, counted},
			{p.pid, len(threads) * counted}} {
			if n := len(touching(of(samples, c.pid))); n != c.want {
				t.Errorf("%d samples of process %d, of %d", n, c.pid, c.want)
			}
		}
	})

	t.Run("all processes but the idle ones", func(t *testing.T) {
		s := startRecording(t, "-a", "-F", "999", "-e", "cpu-clock")
		busy := burner(t)
		lane.Eventually(t, "samples of a process", func() bool {
			n := 0
			forEachSample(t, s.path, func(pid uint32) {
				if int(pid) == busy {
					n++
				}
			})
			return n >= 3
		})
		s.control("stop")
		if e := s.finish(t, time.Minute); e.status != 0 {
			t.Fatalf("%+v", e)
		}
		if n := len(of(perfScriptHeads(t, s.path), 0)); n > 0 {
			t.Errorf("%d idle samples", n)
		}
	})
}

// TestThreadsThatComeAndGo records threads that are there for one page each.
func TestThreadsThatComeAndGo(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	const threads = 60
	r := record(t, slices.Concat(programs.Faults(), []string{"--stack-size", "8192", "--", buildCase(t, "passing.c"),
		programs.Times(threads)})...)
	var working []sample
	for _, s := range perfScript(t, r.path) {
		if len(s.user) > 0 && s.user[0].name == "passing_work" {
			working = append(working, s)
		}
	}
	if n := len(threadsOf(working)); n != threads || len(working) != threads {
		t.Errorf("%d samples in the work of %d threads, of %d threads with one each", len(working), n, threads)
	}
	named := share(working, func(s *sample) bool { return strings.HasPrefix(s.comm, "worker-") })
	if named != threads {
		t.Errorf("%d of %d threads have their name", named, threads)
	}
	if r.whollyComplete(t); r.stats.Samples.Lost > 0 {
		t.Errorf("%d lost", r.stats.Samples.Lost)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	plain := programs.Build(t, "plain")
	inKernel := func(samples []sample) int { return share(samples, func(s *sample) bool { return len(s.kernel) > 0 }) }
	for _, c := range []struct {
		name    string
		args    []string
		command []string
		events  []string // what perf script calls them
		check   func(t *testing.T, r recording, samples []sample)
	}{
		{"page faults", []string{"-e", "page-faults", "-c", "1"}, []string{plain, programs.Times(counted)},
			[]string{"page-faults"},
			func(t *testing.T, _ recording, samples []sample) {
				if n := share(samples, func(s *sample) bool {
					return len(s.user) > 0 && s.user[0].name == "plain_leaf" && len(s.kernel) == 0
				}); n != counted {
					t.Errorf("%d samples in plain_leaf, of %d", n, counted)
				}
			}},
		{"context switches", []string{"-e", "context-switches", "-c", "1"}, []string{"sh", "-c", "sleep 0.02; sleep 0.02"},
			[]string{"context-switches"},
			func(t *testing.T, _ recording, samples []sample) {
				if n := inKernel(samples); n != len(samples) || n < 2 {
					t.Errorf("%d of %d switches of two processes that sleep have kernel frames", n, len(samples))
				}
			}},
		{"tracepoint", []string{"-e", "sched:sched_switch"}, []string{"sh", "-c", "sleep 0.02; sleep 0.02"},
			[]string{"sched:sched_switch"},
			func(t *testing.T, r recording, samples []sample) {
				if len(samples) < 2 {
					t.Errorf("%d switches of two processes that sleep", len(samples))
				}
				fields := output(t, "", "perf", "script", "-i", r.path, "-F", "comm,event,trace")
				if !strings.Contains(fields, "prev_comm=sleep") || !strings.Contains(fields, "next_pid=") {
					t.Errorf("perf script does not show the tracepoint's fields:\n%.500s", fields)
				}
				header := output(t, "", "perf", "report", "--header-only", "-i", r.path)
				_, missing, _ := strings.Cut(header, "missing features:")
				if strings.Contains(missing, "TRACING_DATA") {
					t.Error("TRACING_DATA is missing")
				}
			}},
		{"several", []string{"-e", "cpu-clock,page-faults", "-e", "sched:sched_process_exec"}, nil,
			[]string{"cpu-clock", "page-faults", "sched:sched_process_exec"},
			func(t *testing.T, r recording, samples []sample) {
				n := share(samples, func(s *sample) bool { return s.event == "sched:sched_process_exec" })
				if n != 3 {
					t.Errorf("%d programs were executed, of 3", n)
				}
			}},
		// Of these events time brings samples: it is waited for until there are some.
		{"user code only", []string{"-e", "task-clock:u"}, nil, []string{"task-clock:u"},
			func(t *testing.T, r recording, samples []sample) {
				if n := inKernel(samples); n > 0 {
					t.Errorf("%d samples with kernel frames", n)
				}
				r.whollyComplete(t)
			}},
		{"kernel only", []string{"-e", "cpu-clock:k", "-F", "1999"}, nil, []string{"cpu-clock:k"},
			func(t *testing.T, _ recording, samples []sample) {
				if n := inKernel(samples); n != len(samples) {
					t.Errorf("%d samples without kernel frames", len(samples)-n)
				}
			}},
		{"period", []string{"-e", "cpu-clock", "-c", "5000000"}, nil, []string{"cpu-clock"},
			func(t *testing.T, r recording, samples []sample) {
				periods := output(t, "", "perf", "script", "-i", r.path, "-G", "-F", "period")
				if want := strings.Repeat("5000000 ", len(samples)); strings.Join(strings.Fields(periods), " ")+" " != want {
					t.Errorf("samples have the periods\n%s", periods)
				}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(strings.Join(c.args, " "), "sched:") {
				needTracepoints(t)
			}
			var r recording
			if c.command != nil {
				r = record(t, slices.Concat(c.args, []string{"--"}, c.command)...)
			} else {
				r = recordBusy(t, c.events, c.args...)
			}
			samples := perfScript(t, r.path)
			if uint64(len(samples)) != r.stats.Samples.Total {
				t.Errorf("perf script shows %d samples, stats say %d", len(samples), r.stats.Samples.Total)
			}
			for _, event := range c.events {
				if share(samples, func(s *sample) bool { return s.event == event }) == 0 {
					t.Errorf("no sample of %s", event)
				}
			}
			if n := share(samples, func(s *sample) bool { return !slices.Contains(c.events, s.event) }); n > 0 {
				t.Errorf("%d samples of other events, such as %s", n, samples[0].event)
			}
			if n := unspoolReportSamples(t, r.path); n != r.stats.Samples.Total {
				t.Errorf("unspool report counts %d", n)
			}
			c.check(t, r, samples)
		})
	}
}

// recordBusy records programs that use the CPU, in user code and in the kernel, until there are samples of each event.
func recordBusy(t *testing.T, events []string, args ...string) recording {
	t.Helper()
	dir := t.TempDir()
	path, stats := filepath.Join(dir, "perf.data"), filepath.Join(dir, "stats.json")
	input, over, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	script := `"$0" 0 & first=$!; dd if=/dev/zero of=/dev/null bs=1M 2>/dev/null & read line; kill $! $first; wait`
	r := start(t, dir, func(cmd *exec.Cmd) { cmd.Stdin = input }, slices.Concat([]string{"record", "-o", path,
		"--stats", stats}, args, []string{"--", "sh", "-c", script, programs.Build(t, "burn")})...)
	input.Close()
	lane.Eventually(t, "samples", func() bool {
		for _, n := range samplesByEvent(t, path, len(events)) {
			if n < 3 {
				return false
			}
		}
		return true
	})
	over.Close()
	e := r.finish(t, time.Minute)
	if e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	return made(t, path, stats, e)
}

func TestRateIsClamped(t *testing.T) {
	needRoot(t)
	content, err := os.ReadFile("/proc/sys/kernel/perf_event_max_sample_rate")
	if err != nil {
		t.Fatal(err)
	}
	e := unspool(t, t.TempDir(), "record", "-F", "1000000000", "-d", "0.1", "-p", sleeper(t))
	if limit := strings.TrimSpace(string(content)); e.status != 0 ||
		!regexp.MustCompile("unspool: .*"+limit+".*1000000000.*perf_event_max_sample_rate").MatchString(e.stderr) {
		t.Errorf("status %d\n%s", e.status, e.stderr)
	}
}

// TestSmallRing has samples come while nobody drains the rings: so some are lost, and all are accounted for.
func TestSmallRing(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	p := startToucher(t)
	for _, c := range []struct {
		name string
		args []string
	}{
		{"four pages", []string{"-m", "4"}},
		{"less than a sample", []string{"-m", "1", "--stack-size", "65528"}},
		{"in KiB", []string{"-m", "64K", "--stack-size", "8192"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startRecording(t, append(faultsOf(p), c.args...)...)
			p.touch(1)
			s.drained()
			all := []int{s.Process.Pid}
			for child := range childrenOf(t, s.Process.Pid) {
				all = append(all, child)
			}
			for _, pid := range all {
				stopProcess(t, pid)
			}
			const touched = 300
			p.touch(touched)
			for _, pid := range all {
				if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
			}
			s.drained()
			p.touch(1) // the kernel says with it what was lost
			r := s.stop(t)
			lost := r.stats.Samples.Lost
			if r.stats.Samples.User < 2 || lost == 0 {
				t.Errorf("%d samples, %d lost", r.stats.Samples.User, lost)
			}
			if n := uint64(len(touching(perfScript(t, r.path)))); n+lost != touched+2 {
				t.Errorf("%d samples in touches_leaf, %d lost, of %d", n, lost, touched+2)
			}
			if !strings.Contains(r.stderr, " records were lost") {
				t.Errorf("%d lost, but the summary:\n%s", lost, r.stderr)
			}
			// LOST records count all records that found no room, LOST_SAMPLES the samples.
			if told := ownProfile(t, r.path).Lost(); told != lost {
				t.Errorf("%d lost in stats, %d in the file", lost, told)
			}
			r.whollyComplete(t)
		})
	}
	t.Run("nothing is lost", func(t *testing.T) {
		s := startRecording(t, faultsOf(p)...)
		p.touch(counted)
		if r := s.stop(t); r.stats.Samples.Lost > 0 || strings.Contains(r.stderr, " were lost") {
			t.Errorf("%d lost:\n%s", r.stats.Samples.Lost, r.stderr)
		}
	})
}

// stopProcess stops a process, and returns when it has stopped.
func stopProcess(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	lane.Eventually(t, "a process to stop", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " T")
	})
}

func TestStackSizeAndDepth(t *testing.T) {
	t.Parallel()
	needRoot(t)
	const frames = 800
	deep := programs.Build(t, "deep")
	run := func(ended string, args ...string) recording {
		proc := programs.StartCounted(t, deep, counted, strconv.Itoa(frames))
		r := recordCounted(t, proc, args...)
		if n := r.stats.Unwind.Ended[ended]; n < counted {
			t.Errorf("%v: %d of %d ended by %s: %v", args, n, counted, ended, r.stats.Unwind.Ended)
		}
		return r
	}
	// Or what is missing would be read from the process.
	small := run("dump_too_short", "--stack-size", "8192", "--no-join")
	if !strings.Contains(small.stderr, "--stack-size 16384") {
		t.Errorf("the summary does not say what to do:\n%s", small.stderr)
	}
	if small.stats.Bytes.StackCopied > 8192*small.stats.Samples.User {
		t.Errorf("%d bytes were copied for %d samples of 8192", small.stats.Bytes.StackCopied,
			small.stats.Samples.User)
	}
	large := run("root", "--stack-size", "65528", "--no-join")
	if large.whollyComplete(t); large.stats.Unwind.Frames < counted*frames {
		t.Errorf("64 KiB of %d frames: %d frames of %d samples", frames, large.stats.Unwind.Frames,
			large.stats.Samples.User)
	}
	limited := run("depth_limit", "--max-stack", "10", "--stack-size", "65528")
	if limited.stats.Unwind.Frames > 10*limited.stats.Samples.User {
		t.Errorf("--max-stack 10: %d samples, %d frames", limited.stats.Samples.User, limited.stats.Unwind.Frames)
	}
	if !strings.Contains(limited.stderr, "--max-stack 20") {
		t.Errorf("the summary does not say what to do:\n%s", limited.stderr)
	}
}

func TestStrictTakesNoFrameFromAGuess(t *testing.T) {
	t.Parallel()
	needRoot(t)
	// Code without CFI, but with frame pointers.
	const frames = 50
	deep := programs.Build(t, "deep",
		"-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-exceptions")
	run := func(args ...string) (r recording, leaves int, whole bool) {
		r = recordCounted(t, programs.StartCounted(t, deep, counted, strconv.Itoa(frames)), args...)
		whole = true
		p := ownProfile(t, r.path)
		for _, s := range p.Samples {
			names := userStack(p, s.Node)
			if len(names) == 0 || names[0] != "deep_leaf" {
				continue
			}
			leaves += int(s.Count)
			whole = whole && slices.Contains(names, "_start")
			if len(args) > 0 && len(names) > 1 {
				t.Errorf("--strict: %d samples have %s", s.Count, strings.Join(names, " "))
			}
		}
		return r, leaves, whole
	}
	r, leaves, _ := run("--strict")
	if by := r.stats.Unwind.FramesBy; by["frame_pointer"] > 0 || by["heuristic"] > 0 || leaves != counted ||
		r.stats.Unwind.Ended["no_cfi"] < counted {
		t.Errorf("--strict: %d stacks, %v, %v", leaves, by, r.stats.Unwind.Ended)
	}
	r, leaves, whole := run()
	// By the code or, where that has no answer, by the frame pointer. "sample" is what the one before had, too.
	by := r.stats.Unwind.FramesBy
	if by["frame_pointer"]+by["heuristic"] < frames || leaves != counted || !whole {
		t.Errorf("with frame pointers: %d stacks, %v, %v", leaves, by, r.stats.Unwind.Ended)
	}
	r.whollyComplete(t)
}

func TestPipeIntoPerf(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	plain := programs.Build(t, "plain")
	for _, c := range []struct {
		name   string
		args   []string
		reader []string
	}{
		{"script", nil, []string{"perf", "script", "-i", "-", "-F", "comm,pid,tid,time,event,ip,sym,dso",
			"--ns", "--no-inline"}},
		{"report", []string{"-z"}, []string{"perf", "report", "-i", "-", "--stdio", "-g", "none"}},
		{"compressed script", []string{"-z"},
			[]string{"perf", "script", "-i", "-", "-F", "comm,pid,tid,time,event,ip,sym,dso", "--ns", "--no-inline"}},
		{"unspool", []string{"-z"}, []string{binary, "report", "-"}},
		{"tracepoint", []string{"-e", "sched:sched_process_exit"},
			[]string{"perf", "script", "-i", "-", "-F", "comm,pid,tid,time,event,ip,sym,dso", "--ns", "--no-inline"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "tracepoint" {
				needTracepoints(t)
			}
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			r := start(t, dir, func(cmd *exec.Cmd) { cmd.Stdout = writer },
				slices.Concat([]string{"record", "-o", "-", "--stats", "stats.json"}, programs.Faults(), c.args,
					[]string{"--", plain, programs.Times(counted)})...)
			writer.Close()
			cmd := exec.Command(c.reader[0], c.reader[1:]...)
			cmd.Stdin = reader
			out, err := cmd.Output()
			reader.Close()
			e := r.finish(t, time.Minute)
			if err != nil || e.status != 0 {
				t.Fatalf("reader: %v; unspool: status %d\n%s", err, e.status, e.stderr)
			}
			content, err := os.ReadFile(filepath.Join(dir, "stats.json"))
			if err != nil {
				t.Fatal(err)
			}
			st := readStatistics(t, content)
			st.addUp(t)
			if !strings.Contains(string(out), "plain_leaf") {
				t.Errorf("the reader does not show plain_leaf:\n%.1000s", out)
			}
			if strings.HasSuffix(c.name, "script") || c.name == "tracepoint" {
				samples := parseScript(t, string(out))
				if uint64(len(samples)) != st.Samples.Total {
					t.Errorf("perf script shows %d samples, stats say %d", len(samples), st.Samples.Total)
				}
				if n := share(samples, func(s *sample) bool {
					return len(s.user) > 0 && s.user[0].name == "plain_leaf"
				}); n != counted {
					t.Errorf("perf script shows %d samples in plain_leaf, of %d", n, counted)
				}
				exits := share(samples, func(s *sample) bool { return s.event == "sched:sched_process_exit" })
				if exits != strings.Count(strings.Join(c.args, " "), "exit") {
					t.Errorf("perf script shows %d exits", exits)
				}
			}
		})
	}
}

func TestCompressedFile(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	p := startToucher(t)
	const touched = 400
	run := func(args ...string) recording {
		s := startRecording(t, slices.Concat(faultsOf(p), []string{"--stack-size", "4096"}, args)...)
		for range touched / counted {
			p.tell(fmt.Sprintf("%d 40", counted))
			s.drained()
		}
		return s.stop(t)
	}
	plain := run()
	for _, flag := range []string{"-z", "-z=9"} {
		r := run(flag)
		samples := readableBy(t, r.path)
		if n := len(samples); uint64(n) != r.stats.Samples.Total || len(touching(samples)) != touched {
			t.Errorf("%s: perf script shows %d samples, %d in touches_leaf, stats say %d", flag, n,
				len(touching(samples)), r.stats.Samples.Total)
		}
		per := func(r recording) float64 { return float64(r.stats.Bytes.Written) / float64(r.stats.Samples.Total) }
		if t.Logf("%s: %.0f bytes a sample, %.0f without", flag, per(r), per(plain)); per(r)*2 > per(plain) {
			t.Errorf("%s: %.0f bytes a sample, %.0f without", flag, per(r), per(plain))
		}
	}
}

func TestRecordingDescribesItself(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf", "readelf")
	burn := programs.Build(t, "burn", "-Wl,--build-id")
	dir := t.TempDir()
	run := start(t, dir, nil, "record", "-F", "999", "--", burn, "0")
	path := filepath.Join(dir, "perf.data")
	awaitSamples(t, path, 3)
	run.Process.Signal(syscall.SIGTERM)
	if e := run.finish(t, time.Minute); e.status != 128+int(syscall.SIGTERM) { // that of the program, which is ended
		t.Fatalf("%+v", e)
	}
	m := regexp.MustCompile(`Build ID: ([0-9a-f]+)`).FindStringSubmatch(output(t, "", "readelf", "-n", burn))
	if m == nil {
		t.Fatal("readelf finds no build ID")
	}
	ids := output(t, "", "perf", "buildid-list", "-i", path)
	if want := m[1] + " " + burn + "\n"; !strings.Contains(ids, want) {
		t.Errorf("perf buildid-list has no %q:\n%s", want, ids)
	}
	if !strings.Contains(ids, "[kernel.kallsyms]") {
		t.Errorf("perf buildid-list has no kernel:\n%s", ids)
	}
	header := output(t, "", "perf", "report", "--header-only", "-i", path)
	host, _ := os.Hostname()
	for _, want := range []string{
		"cmdline : .*unspool record .* -- " + regexp.QuoteMeta(burn) + " 0",
		`event : name = (cpu-clock|cycles[^,]*), .*id = \{ \d+(, \d+)* \}`,
		"hostname : " + regexp.QuoteMeta(host), "arch : x86_64", "os release : ", "nrcpus online : ",
		"sample duration : ",
		"callchain|CALLCHAIN",
	} {
		if !regexp.MustCompile(want).MatchString(header) {
			t.Errorf("perf report --header-only has no %q:\n%s", want, header)
		}
	}
	if strings.Contains(header, "REGS_USER") || strings.Contains(header, "STACK_USER") {
		t.Errorf("the attributes promise registers or stacks:\n%s", header)
	}
	found := false
	for _, s := range perfScript(t, path) {
		found = found || slices.Contains(s.names(), "burn_inner")
	}
	if !found {
		t.Error("no sample in burn_inner")
	}
}

// TestProcessesByName records all processes with a name, some of whose programs have longer names.
func TestProcessesByName(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	path := buildToucher(t, "touches-called-by-name")
	first, second, other := runToucher(t, exec.Command(path)), runToucher(t, exec.Command(path)), startToucher(t)
	s := startRecording(t, slices.Concat(programs.Faults(), []string{"-p", filepath.Base(path), "--call-graph",
		"dwarf,16k"})...)
	for _, p := range []*toucher{first, second, other} {
		p.touch(counted)
	}
	r := s.stop(t)
	seen := make(map[int]int)
	for _, s := range perfScript(t, r.path) {
		seen[s.pid]++
	}
	if len(seen) != 2 || seen[first.pid] < counted || seen[second.pid] < counted {
		t.Errorf("%v of processes %d and %d", seen, first.pid, second.pid)
	}
}
