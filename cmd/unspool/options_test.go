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

	"unspool/testdata/programs"
)

func TestProcessWithThreads(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	cmd := exec.Command(buildDemo(t), "30")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	other := burner(t)
	task := fmt.Sprintf("/proc/%d/task", cmd.Process.Pid)
	eventually(t, "the threads", func() bool {
		threads, _ := os.ReadDir(task)
		return len(threads) == 5
	})
	time.Sleep(50 * time.Millisecond) // they name themselves
	// Both are stopped while what was recorded of them is read, which takes longer.
	both := func(s syscall.Signal) {
		for _, pid := range []int{cmd.Process.Pid, other} {
			if err := syscall.Kill(pid, s); err != nil {
				t.Fatal(err)
			}
		}
	}

	t.Run("all threads", func(t *testing.T) {
		both(syscall.SIGCONT)
		began, before := time.Now(), threadCPU(t, cmd.Process.Pid)
		r := record(t, "-F", "999", "-p", strconv.Itoa(cmd.Process.Pid), "-d", "0.6")
		had := threadCPU(t, cmd.Process.Pid)
		for name := range had {
			had[name] = r.stats.recorded(had[name]-before[name], began)
		}
		both(syscall.SIGSTOP)
		samples := perfScript(t, r.path)
		for _, name := range []string{"words", "archive", "scene", "rules"} {
			n := share(samples, func(s *sample) bool {
				return s.comm == name && slices.Contains(s.names(), name+"_round")
			})
			if uint64(n) < fewest(999, had[name], 20) {
				t.Errorf("thread %s: %d samples in %s_round of %d", name, n, name, len(samples))
			}
		}
		if n := share(samples, func(s *sample) bool { return s.pid != cmd.Process.Pid }); n > 0 {
			t.Errorf("%d samples of other processes", n)
		}
		if r.stats.incomplete() > 0.01 {
			t.Errorf("%v", r.stats.Unwind.Ended)
		}
	})

	t.Run("with a command", func(t *testing.T) {
		both(syscall.SIGCONT)
		began, before := time.Now(), []time.Duration{cpuOf(t, other), cpuOf(t, cmd.Process.Pid)}
		r := record(t, "-F", "999", "-p", fmt.Sprintf("%d,%d", cmd.Process.Pid, other), "--", "sleep", "0.4")
		had := []time.Duration{cpuOf(t, other) - before[0], cpuOf(t, cmd.Process.Pid) - before[1]}
		for i := range had {
			had[i] = r.stats.recorded(had[i], began)
		}
		both(syscall.SIGSTOP)
		samples := perfScript(t, r.path)
		if n := share(samples, func(s *sample) bool { return s.pid != cmd.Process.Pid && s.pid != other }); n > 0 {
			t.Errorf("%d samples of other processes", n)
		}
		for i, pid := range []int{other, cmd.Process.Pid} {
			n := share(samples, func(s *sample) bool { return s.pid == pid })
			if uint64(n) < fewest(999, had[i], 20) {
				t.Errorf("%d samples of process %d", n, pid)
			}
		}
		if d := r.stats.Duration; d < 0.35 || d > 1 {
			t.Errorf("recorded for %.2f s while the command ran for 0.4", d)
		}
	})

	t.Run("all processes with a command", func(t *testing.T) {
		both(syscall.SIGCONT)
		began, before := time.Now(), cpuOf(t, other)+cpuOf(t, cmd.Process.Pid)
		r := record(t, "-F", "999", "-a", "--", programs.Build(t, "burn"), "150")
		had := r.stats.recorded(cpuOf(t, other)+cpuOf(t, cmd.Process.Pid)-before, began)
		both(syscall.SIGSTOP)
		samples := perfScript(t, r.path)
		burning := share(samples, func(s *sample) bool { return s.comm == "burn" && s.pid != other })
		running := share(samples, func(s *sample) bool { return s.pid == cmd.Process.Pid || s.pid == other })
		if burning < 100 || uint64(running) < fewest(999, had, 20) {
			t.Errorf("%d samples of the command, %d of what ran before", burning, running)
		}
		if n := share(samples, func(s *sample) bool { return s.pid == 0 }); n > 0 {
			t.Errorf("%d idle samples", n)
		}
	})
}

func TestThreadsThatComeAndGo(t *testing.T) {
	needRoot(t)
	need(t, "perf")
	r := record(t, "-F", "1999", "--", programs.Build(t, "threads"), "1", "200")
	samples := perfScript(t, r.path)
	workers := share(samples, func(s *sample) bool { return slices.Contains(s.names(), "threads_work") })
	var started int // each has 2 ms of CPU time, which are four samples
	if _, err := fmt.Sscanf(r.stdout, "threads %d", &started); err != nil {
		t.Fatalf("%q: %v", r.stdout, err)
	}
	if n := len(threadsOf(samples)); n < started/2 || workers < started {
		t.Errorf("%d of %d threads were sampled, %d samples in their work", n, started, workers)
	}
	if r.stats.incomplete() > 0.01 || r.stats.Samples.Lost > 0 {
		t.Errorf("%d lost, %v", r.stats.Samples.Lost, r.stats.Unwind.Ended)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	burn := programs.Build(t, "burn")
	faults := []string{"sh", "-c", "for i in 1 2 3 4 5; do /bin/true; done"}
	for _, c := range []struct {
		name    string
		args    []string
		command []string
		atLeast int
		events  []string // what perf script calls them
		check   func(t *testing.T, r recording, samples []sample)
	}{
		{"page faults", []string{"-e", "page-faults", "-c", "1"}, faults, 200, []string{"page-faults"}, nil},
		{"context switches", []string{"-e", "context-switches"}, []string{"sh", "-c", "sleep 0.02; sleep 0.02"}, 2,
			[]string{"context-switches"},
			func(t *testing.T, _ recording, samples []sample) {
				if n := share(samples, func(s *sample) bool { return len(s.kernel) == 0 }); n > 0 {
					t.Errorf("%d switches without kernel frames", n)
				}
			}},
		{"user code only", []string{"-e", "task-clock:u"}, []string{burn, "200"}, 100, []string{"task-clock:u"},
			func(t *testing.T, r recording, samples []sample) {
				if n := share(samples, func(s *sample) bool { return len(s.kernel) > 0 }); n > 0 {
					t.Errorf("%d samples with kernel frames", n)
				}
				if r.stats.incomplete() > 0.02 {
					t.Errorf("%v", r.stats.Unwind.Ended)
				}
			}},
		{"kernel only", []string{"-e", "cpu-clock:k", "-F", "1999"},
			[]string{"sh", "-c", "dd if=/dev/zero of=/dev/null bs=1M count=1500 2>/dev/null"}, 50,
			[]string{"cpu-clock:k"},
			func(t *testing.T, _ recording, samples []sample) {
				if n := share(samples, func(s *sample) bool { return len(s.kernel) == 0 }); n > 0 {
					t.Errorf("%d samples without kernel frames", n)
				}
			}},
		{"tracepoint", []string{"-e", "sched:sched_switch"}, []string{"sh", "-c", "sleep 0.02; sleep 0.02"}, 2,
			[]string{"sched:sched_switch"},
			func(t *testing.T, r recording, _ []sample) {
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
		{"several", []string{"-e", "cpu-clock,page-faults", "-e", "sched:sched_process_exec", "-F", "999"},
			[]string{"sh", "-c", burn + " 100; /bin/true"}, 60,
			[]string{"cpu-clock", "page-faults", "sched:sched_process_exec"}, nil},
		{"period", []string{"-e", "cpu-clock", "-c", "5000000"}, []string{burn, "300"}, 40, []string{"cpu-clock"},
			func(t *testing.T, _ recording, samples []sample) {
				if len(samples) > 90 {
					t.Errorf("%d samples of 300 ms, each for 5 ms", len(samples))
				}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(strings.Join(c.args, " "), "sched:") {
				needTracepoints(t)
			}
			r := record(t, slices.Concat(c.args, []string{"--"}, c.command)...)
			samples := perfScript(t, r.path)
			if len(samples) < c.atLeast || uint64(len(samples)) != r.stats.Samples.Total {
				t.Errorf("perf script shows %d samples, at least %d wanted, stats say %d", len(samples), c.atLeast,
					r.stats.Samples.Total)
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
			if c.check != nil {
				c.check(t, r, samples)
			}
		})
	}
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

func TestSmallRing(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	for _, c := range []struct {
		name string
		args []string
	}{
		{"four pages", []string{"-m", "4"}},
		{"less than a sample", []string{"-m", "1", "--stack-size", "65528"}},
		{"in KiB", []string{"-m", "64K", "--stack-size", "8192"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r recording
			for _, seconds := range []string{"0.4", "4"} { // the second where a busy machine brings too few samples
				r = record(t, slices.Concat(c.args, []string{"-e", "cpu-clock", "-F", "20000", "-d", seconds,
					"--", programs.Build(t, "pulse"), "5"})...)
				if r.stats.Samples.User >= 10 {
					break
				}
			}
			if r.stats.Samples.User < 10 {
				t.Fatalf("%d user samples", r.stats.Samples.User)
			}
			lost := r.stats.Samples.Lost
			t.Logf("%d samples, %d lost", r.stats.Samples.Total, lost)
			if said := strings.Contains(r.stderr, " records were lost"); said != (lost > 0) {
				t.Errorf("%d lost, but the summary:\n%s", lost, r.stderr)
			}
			// LOST records count all records that found no room, LOST_SAMPLES the samples.
			if told := ownProfile(t, r.path).Lost(); told != lost {
				t.Errorf("%d lost in stats, %d in the file", lost, told)
			}
			if r.stats.incomplete() > 0.02 {
				t.Errorf("%v", r.stats.Unwind.Ended)
			}
		})
	}
}

func TestStackSizeAndDepth(t *testing.T) {
	t.Parallel()
	needRoot(t)
	deep := programs.Build(t, "deep")
	run := func(args ...string) (recording, uint64) {
		r := record(t, slices.Concat([]string{"-F", "1999", "-d", "0.5", "-e", "cpu-clock:u"}, args,
			[]string{"--", deep, "1", "800"})...)
		return r, r.stats.Samples.User
	}
	small, n := run("--stack-size", "8192", "--no-join") // or what is missing would be read from the process
	if short := small.stats.Unwind.Ended["dump_too_short"]; n < small.fewest(1999, 300) || short*10 < n*9 {
		t.Errorf("8 KiB of 800 frames: %d of %d dumps are too short: %v", short, n, small.stats.Unwind.Ended)
	}
	if !strings.Contains(small.stderr, "--stack-size 16384") {
		t.Errorf("the summary does not say what to do:\n%s", small.stderr)
	}
	large, n := run("--stack-size", "65528")
	if n < large.fewest(1999, 300) || large.stats.incomplete() > 0.02 {
		t.Errorf("64 KiB of 800 frames: %d samples, %v", n, large.stats.Unwind.Ended)
	}
	if small.stats.Bytes.StackCopied/small.stats.Samples.User > 8192 {
		t.Errorf("%d bytes were copied for %d samples of 8192", small.stats.Bytes.StackCopied,
			small.stats.Samples.User)
	}
	limited, n := run("--max-stack", "10", "--stack-size", "65528")
	if at := limited.stats.Unwind.Ended["depth_limit"]; n < limited.fewest(1999, 300) || at*10 < n*9 ||
		limited.stats.Unwind.Frames > 10*n {
		t.Errorf("--max-stack 10: %d samples, %d frames, %v", n, limited.stats.Unwind.Frames,
			limited.stats.Unwind.Ended)
	}
	if !strings.Contains(limited.stderr, "--max-stack 20") {
		t.Errorf("the summary does not say what to do:\n%s", limited.stderr)
	}
}

func TestStrictTakesNoFrameFromAGuess(t *testing.T) {
	t.Parallel()
	needRoot(t)
	// Code without CFI, but with frame pointers. It gets 0.4 s of CPU time at least.
	deep := programs.Build(t, "deep",
		"-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-exceptions")
	r := record(t, "-F", "999", "-e", "cpu-clock:u", "--strict", "--", deep, "1", "50")
	by := r.stats.Unwind.FramesBy
	if by["frame_pointer"] > 0 || by["heuristic"] > 0 ||
		r.stats.Unwind.Ended["no_cfi"]*10 < r.stats.Samples.User*9 {
		t.Errorf("--strict: %v, %v", by, r.stats.Unwind.Ended)
	}
	r = record(t, "-F", "999", "-e", "cpu-clock:u", "--", deep, "1", "50")
	by = r.stats.Unwind.FramesBy
	// By the code or, where that has no answer, by the frame pointer.
	if by["frame_pointer"]+by["heuristic"] < 49*r.stats.Samples.User || r.stats.incomplete() > 0.02 {
		t.Errorf("with frame pointers: %v, %v", by, r.stats.Unwind.Ended)
	}
	p := ownProfile(t, r.path)
	for _, s := range p.Samples {
		if names := userStack(p, s.Node); slices.Contains(names, "deep_leaf") && !slices.Contains(names, "_start") {
			t.Errorf("%d samples do not reach _start: %s", s.Count, strings.Join(names, " "))
		}
	}
}

func TestPipeIntoPerf(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	pulse := programs.Build(t, "pulse")
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
		{"tracepoint", []string{"-e", "cpu-clock,sched:sched_process_exit"},
			[]string{"perf", "script", "-i", "-", "-F", "comm,pid,tid,time,event,ip,sym,dso", "--ns", "--no-inline"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			r := start(t, dir, func(cmd *exec.Cmd) { cmd.Stdout = writer },
				slices.Concat([]string{"record", "-F", "999", "-d", "0.5", "-o", "-", "--stats", "stats.json"}, c.args,
					[]string{"--", pulse, "1"})...)
			writer.Close()
			cmd := exec.Command(c.reader[0], c.reader[1:]...)
			cmd.Stdin = reader
			out, err := cmd.Output()
			reader.Close()
			e := r.finish(t, 10*time.Second)
			if err != nil || e.status != 0 {
				t.Fatalf("reader: %v; unspool: status %d\n%s", err, e.status, e.stderr)
			}
			content, err := os.ReadFile(filepath.Join(dir, "stats.json"))
			if err != nil {
				t.Fatal(err)
			}
			st := readStatistics(t, content)
			st.addUp(t)
			if !strings.Contains(string(out), "pulse_outer") {
				t.Errorf("the reader does not show pulse_outer:\n%.1000s", out)
			}
			if strings.HasSuffix(c.name, "script") || c.name == "tracepoint" {
				samples := parseScript(t, string(out))
				if uint64(len(samples)) != st.Samples.Total || len(samples) < 20 {
					t.Errorf("perf script shows %d samples, stats say %d", len(samples), st.Samples.Total)
				}
			}
		})
	}
}

func TestCompressedFile(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	pulse := programs.Build(t, "pulse")
	plain := record(t, "-F", "9999", "-d", "0.5", "--", pulse, "1")
	for _, flag := range []string{"-z", "-z=9"} {
		r := record(t, flag, "-F", "9999", "-d", "0.5", "--", pulse, "1")
		if n := len(readableBy(t, r.path)); uint64(n) != r.stats.Samples.Total {
			t.Errorf("%s: perf script shows %d samples, stats say %d", flag, n, r.stats.Samples.Total)
		}
		per := func(r recording) float64 { return float64(r.stats.Bytes.Written) / float64(r.stats.Samples.Total) }
		if per(r)*2 > per(plain) {
			t.Errorf("%s: %.0f bytes a sample, %.0f without", flag, per(r), per(plain))
		}
	}
}

func TestRecordingDescribesItself(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf", "readelf")
	burn := programs.Build(t, "burn", "-Wl,--build-id")
	r := record(t, "-F", "999", "--", burn, "200")
	m := regexp.MustCompile(`Build ID: ([0-9a-f]+)`).FindStringSubmatch(output(t, "", "readelf", "-n", burn))
	if m == nil {
		t.Fatal("readelf finds no build ID")
	}
	ids := output(t, "", "perf", "buildid-list", "-i", r.path)
	if want := m[1] + " " + burn + "\n"; !strings.Contains(ids, want) {
		t.Errorf("perf buildid-list has no %q:\n%s", want, ids)
	}
	if !strings.Contains(ids, "[kernel.kallsyms]") {
		t.Errorf("perf buildid-list has no kernel:\n%s", ids)
	}
	header := output(t, "", "perf", "report", "--header-only", "-i", r.path)
	host, _ := os.Hostname()
	for _, want := range []string{
		"cmdline : .*unspool record .* -- " + regexp.QuoteMeta(burn) + " 200",
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
	for _, s := range perfScript(t, r.path) {
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
	program, err := os.ReadFile(programs.Build(t, "burn"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "burn-called-by-name")
	if err := writeProgram(path, program); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for range 2 {
		cmd := exec.Command(path, "60000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		pids = append(pids, cmd.Process.Pid)
	}
	eventually(t, "the processes", func() bool {
		found, err := processes([]string{filepath.Base(path)})
		return err == nil && slices.Equal(found, pids)
	})
	r := record(t, "-F", "999", "-p", filepath.Base(path), "-d", "400ms", "--call-graph", "dwarf,16k")
	seen := make(map[int]int)
	for _, s := range perfScript(t, r.path) {
		seen[s.pid]++
	}
	if len(seen) != 2 || seen[pids[0]] == 0 || seen[pids[1]] == 0 {
		t.Errorf("%v of processes %d", seen, pids)
	}
	if d := r.stats.Duration; d < 0.35 || d > 10 {
		t.Errorf("recorded for %.2f s, not 400ms", d)
	}
}
