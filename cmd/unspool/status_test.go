package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

func TestExitStatusIsTheCommands(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, c := range []struct {
		name   string
		args   []string
		status int
	}{
		{"success", []string{"--", "true"}, 0},
		{"status", []string{"--", "sh", "-c", "exit 3"}, 3},
		{"largest status", []string{"--", "sh", "-c", "exit 255"}, 255},
		{"SIGTERM", []string{"--", "sh", "-c", "kill -TERM $$"}, 128 + 15},
		{"SIGSEGV", []string{"--", "sh", "-c", "kill -SEGV $$"}, 128 + 11},
		{"SIGKILL", []string{"--", "sh", "-c", "kill -KILL $$"}, 128 + 9},
		// Of the whole machine at any rate, samples can be lost on a busy one, which -q says.
		{"with -a", []string{"-a", "-e", "page-faults", "-c", "1000", "--", "sh", "-c", "exit 3"}, 3},
		{"with -p", []string{"-p", strconv.Itoa(os.Getpid()), "--", "sh", "-c", "exit 3"}, 3},
		{"without --", []string{"sh", "-c", "exit 3"}, 3},
		{"before -d is over", []string{"-d", "600", "--", "sh", "-c", "exit 3"}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			e := unspool(t, dir, append([]string{"record", "-q", "-o", "perf.data"}, c.args...)...)
			if e.status != c.status {
				t.Errorf("status %d, want %d", e.status, c.status)
			}
			if e.stderr != "" {
				t.Errorf("-q printed %q", e.stderr)
			}
			if e := unspool(t, dir, "report"); e.status != 0 {
				t.Errorf("report: status %d\n%s", e.status, e.stderr)
			}
		})
	}
}

func TestDurationEndsTheCommand(t *testing.T) {
	t.Parallel()
	needRoot(t)
	process := burner(t)
	const duration = 200 * time.Millisecond
	for _, c := range []struct {
		name string
		args []string
	}{
		{"sleeping", []string{"-d", "0.2", "--", "sleep", "300"}},
		{"burning", []string{"-d", "200ms", "--", programs.Build(t, "burn"), "0"}},
		{"burning beside -a", []string{"-d", "0.2s", "-a", "-F", "99", "--", programs.Build(t, "burn"), "0"}},
		{"process", []string{"-d", "0.2", "-p", strconv.Itoa(process)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			e := unspool(t, dir, append([]string{"record", "--stats", "stats.json"}, c.args...)...)
			if e.status != 0 {
				t.Fatalf("%+v", e)
			}
			st := statsIn(t, dir)
			st.addUp(t)
			// It can be longer on a busy machine, and never shorter.
			if st.Duration < duration.Seconds() || e.took < duration {
				t.Errorf("events were enabled for %.2f s, and it took %v", st.Duration, e.took)
			}
			if n := ownProfile(t, filepath.Join(dir, "perf.data")).Count(); n != st.Samples.Total {
				t.Errorf("%d samples in the file, %d in the statistics", n, st.Samples.Total)
			}
		})
	}
}

func TestDurationEndsACommandDeafToSIGTERM(t *testing.T) {
	t.Parallel()
	needRoot(t)
	record(t, "-d", "0.3", "--", "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done") // it ends
}

// TestMachineDurationEndsTheCommand looks at the time that it takes.
func TestMachineDurationEndsTheCommand(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	for _, args := range [][]string{{"--"}, {"-a", "--"}} {
		r := record(t, slices.Concat([]string{"-d", "0.5"}, args, []string{programs.Build(t, "burn"), "0"})...)
		lane.Figure(t, "%d samples in %.2f s of %v", r.stats.Samples.User, r.stats.Duration, r.took)
		if d := r.stats.Duration; d < 0.5 || d > 0.8 || r.took > 3*time.Second || r.stats.Samples.User < 200 {
			t.Errorf("%d samples in %.2f s of %v", r.stats.Samples.User, d, r.took)
		}
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	needRoot(t)
	busy := burner(t) // somebody has to run
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		group  bool // as the terminal does it: everybody in the foreground
		args   []string
		status int
	}{
		{"whole system", syscall.SIGINT, false, []string{"-a", "-d", "300"}, 0},
		{"whole system, SIGTERM", syscall.SIGTERM, false, []string{"-a"}, 0},
		{"process", syscall.SIGINT, false, []string{"-p", strconv.Itoa(busy)}, 0},
		{"command", syscall.SIGINT, true, []string{"--", programs.Build(t, "burn"), "0"}, 128 + 2},
		{"shell that catches it", syscall.SIGINT, true,
			[]string{"--", "sh", "-c", "trap 'exit 7' INT; >trapped; while :; do :; done"}, 7},
		{"command that gets no signal", syscall.SIGTERM, false, []string{"--", programs.Build(t, "burn"), "0"},
			128 + 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			r := start(t, dir, func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} },
				append([]string{"record", "-F", "99", "--stats", "stats.json", "-o", "perf.data"}, c.args...)...)
			awaitSamples(t, filepath.Join(dir, "perf.data"), 1)
			if c.name == "shell that catches it" {
				awaitFile(t, filepath.Join(dir, "trapped"))
			}
			pid := r.Process.Pid
			if c.group {
				pid = -pid
			}
			syscall.Kill(pid, c.signal)
			e := r.finish(t, time.Minute)
			if e.status != c.status {
				t.Errorf("status %d, want %d\n%s", e.status, c.status, e.stderr)
			}
			st := statsIn(t, dir)
			st.addUp(t)
			if n := ownProfile(t, filepath.Join(dir, "perf.data")); n.Count() != st.Samples.Total {
				t.Errorf("the file has %d samples, stats %d", n.Count(), st.Samples.Total)
			}
			if !hasSummary(e.stderr) {
				t.Errorf("no summary:\n%s", e.stderr)
			}
		})
	}
}

func TestChildrenAreRecorded(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	r := record(t, append(programs.Faults(), "--", "sh", "-c", `"$0" "$1" & "$0" "$1" & wait; exec "$0" "$1"`,
		programs.Build(t, "plain"), programs.Times(counted))...)
	perProcess := make(map[int]int)
	for _, s := range perfScript(t, r.path) {
		if s.comm == "plain" && len(s.user) > 0 && s.user[0].name == "plain_leaf" && s.outermost().name == "_start" {
			perProcess[s.pid]++
		}
	}
	if len(perProcess) != 3 {
		t.Errorf("%d processes were sampled: %v", len(perProcess), perProcess)
	}
	for pid, n := range perProcess {
		if n != counted {
			t.Errorf("process %d: %d complete samples, of %d", pid, n, counted)
		}
	}
}

func TestCommandHasItsOwnInputAndOutput(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir()
	r := start(t, dir, func(cmd *exec.Cmd) { cmd.Stdin = strings.NewReader("one\ntwo\n") },
		"record", "-v", "-o", "perf.data", "--", "sh", "-c", "cat; echo three >&2")
	e := r.finish(t, time.Minute)
	if e.stdout != "one\ntwo\n" {
		t.Errorf("stdout: %q", e.stdout)
	}
	if !strings.Contains(e.stderr, "three\n") || !strings.Contains(e.stderr, " in perf.data\n") {
		t.Errorf("stderr: %q", e.stderr)
	}

	t.Run("quiet", func(t *testing.T) {
		e := unspool(t, t.TempDir(), "record", "-q", "-F", "100000000", "-d", "0.1", "-p", sleeper(t))
		if e.stdout != "" || e.stderr != "" || e.status != 0 {
			t.Errorf("%+v", e)
		}
	})
	t.Run("statistics on stdout", func(t *testing.T) {
		e := unspool(t, t.TempDir(), "record", "--stats", "-", "--", "true")
		readStatistics(t, []byte(e.stdout)).Command[0] = "true"
	})
	t.Run("recording on stdout", func(t *testing.T) {
		// The output of the command must not get between the records.
		e := unspool(t, t.TempDir(), "record", "-q", "-o", "-", "--", "sh", "-c", "echo $((41*41))")
		if e.status != 0 || strings.Contains(e.stdout, "1681\n") || !strings.HasPrefix(e.stdout, "PERFILE2") {
			t.Errorf("status %d, stdout begins with %.20q", e.status, e.stdout)
		}
		if e.stderr != "1681\n" {
			t.Errorf("stderr: %q", e.stderr)
		}
	})
}

func TestOldRecordingIsKept(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	old := []byte("the old one")
	if err := os.WriteFile(filepath.Join(dir, "perf.data"), old, 0o644); err != nil {
		t.Fatal(err)
	}
	if e := unspool(t, dir, "record", "-q", "--", "true"); e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	kept, err := os.ReadFile(filepath.Join(dir, "perf.data.old"))
	if err != nil || !bytes.Equal(kept, old) {
		t.Errorf("perf.data.old: %v, %q", err, kept)
	}
	if e := unspool(t, dir, "report"); e.status != 0 {
		t.Errorf("report: status %d\n%s", e.status, e.stderr)
	}
	// Others must not see what ran here.
	if st, err := os.Stat(filepath.Join(dir, "perf.data")); err != nil || st.Mode().Perm()&0o077 != 0 {
		t.Errorf("perf.data: %v, %v", err, st.Mode())
	}
}

// TestCommandRunsAsWithoutUs compares what a command inherits from unspool with what it inherits from a plain
// shell.
func TestCommandRunsAsWithoutUs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "setpriv")
	dir := t.TempDir()
	data := filepath.Join(dir, "perf.data")
	script := ""
	for _, c := range []struct{ name, command string }{
		{"signals", "grep -E '^Sig(Pnd|Blk|Ign|Cgt)|^ShdPnd' /proc/self/status"},
		{"open files", "ls /proc/self/fd; readlink /proc/$$/fd/[345]"},
		{"limits", "cat /proc/self/limits"},
		{"capabilities", "grep -E '^(Cap|NoNewPrivs|Seccomp)' /proc/self/status"},
		{"environment", "env -u _ | sort"},
		{"directory and umask", "pwd; umask"},
		{"name", "echo $0; cat /proc/$$/comm; tr '\\0' ' ' </proc/$$/cmdline; echo"},
		{"nice and scheduling", "nice; cat /proc/self/oom_score_adj; grep policy /proc/self/sched"},
		{"process group", "test $(ps -o pgid= -p $$) = $(ps -o pgid= -p $PPID) && echo same"},
		{"session and cgroup", "ps -o sid=,tty= -p $$; cat /proc/self/cgroup"},
		{"CPUs, users, and timers", "grep _allowed_list /proc/self/status; id; cat /proc/$$/timerslack_ns"},
		{"securebits and parent-death signal", "setpriv -d"},
	} {
		script += fmt.Sprintf("echo '%s:'; %s\n", c.name, c.command)
	}
	for _, before := range []string{"", "ulimit -S -n 512; ", "trap '' HUP; ", "exec 3</dev/null 4<&3 6>&1; ",
		"renice -n 3 $$ >/dev/null; umask 027; "} {
		run := func(prefix ...string) string {
			cmd := exec.Command("sh", append([]string{"-c", before + `exec "$@"`, "sh"},
				append(prefix, "sh", "-c", script)...)...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", cmd, err, out)
			}
			return string(out)
		}
		plain := run()
		for _, option := range []string{"--sandbox", "--no-sandbox"} {
			if under := run(binary, "record", option, "-q", "-o", data, "--"); under != plain {
				t.Errorf("%salone:\n%s\nunder unspool %s:\n%s", before, plain, option, under)
			}
		}
	}
}

// TestCommandCountsAsOurs expects whoever waits for unspool, as a shell's time does, to be told of what the command has
// used, too.
func TestCommandCountsAsOurs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	const ticks = 30 // of 10 ms
	for _, option := range []string{"--sandbox", "--no-sandbox"} {
		cmd := exec.Command(binary, "record", option, "-q", "-o", filepath.Join(t.TempDir(), "perf.data"), "--", "sh", "-c",
			fmt.Sprintf("until read -r s </proc/$$/stat; set -- $s; [ ${14} -ge %d ]; do :; done", ticks))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if used := cmd.ProcessState.UserTime(); used < ticks*10*time.Millisecond {
			t.Errorf("%s: %v", option, used)
		}
	}
}

// TestCommandOutlivesAKilledRecording kills unspool, which ends the opener, the parent of the command, and expects the
// command to go on.
func TestCommandOutlivesAKilledRecording(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, option := range []string{"--sandbox", "--no-sandbox"} {
		dir := t.TempDir()
		output(t, dir, "mkfifo", "go")
		r := start(t, dir, nil, "record", option, "-q", "--", "sh", "-c", "echo $PPID >begun~; mv begun~ begun; read x <go; "+
			"echo $x >over~; mv over~ over")
		awaitFile(t, filepath.Join(dir, "begun"))
		text, err := os.ReadFile(filepath.Join(dir, "begun"))
		if err != nil {
			t.Fatal(err)
		}
		opener, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		lane.Eventually(t, "the opener to end", func() bool { return hasEnded(opener) })
		if err := os.WriteFile(filepath.Join(dir, "go"), []byte("on\n"), 0); err != nil {
			t.Fatal(err)
		}
		awaitFile(t, filepath.Join(dir, "over"))
	}
}
