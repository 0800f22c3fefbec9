package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/testdata/programs"
)

const nobody = 65534

// asNobody starts the program under test, which is copied to where everybody
// may run it, as a user without privileges.
func asNobody(t *testing.T, dir string, args ...string) ended {
	t.Helper()
	own := filepath.Join(dir, "unspool")
	if _, err := os.Stat(own); err != nil {
		copyFile(t, binary, own)
	}
	r := start(t, dir, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args[0] = own, own
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Env = confined(dir)
	}, args...)
	return r.finish(t, 2*time.Minute)
}

// nobodysDirectory is one that the user without privileges owns and can reach.
func nobodysDirectory(t *testing.T) string {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("", "unspool-nobody")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "cd "+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := cmd.Run(); err != nil {
		t.Skipf("%s is out of an unprivileged user's reach", dir)
	}
	return dir
}

// needParanoid skips where the kernel lets users do more, or less.
func needParanoid(t *testing.T) {
	t.Helper()
	level, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil || strings.TrimSpace(string(level)) != "2" {
		t.Skipf("kernel.perf_event_paranoid is %s, not 2", strings.TrimSpace(string(level)))
	}
}

// levels is how deep qsort calls itself: its frames have more than 1 KiB each in glibc since 2.37, and an ordinary user
// gets no more of a stack than is copied.
const levels = "8"

func TestUnprivilegedUserRecordsOwnCommand(t *testing.T) {
	dir := nobodysDirectory(t)
	needParanoid(t)
	need(t, "perf")
	program := filepath.Join(dir, "qsort")
	copyFile(t, programs.Build(t, "qsort"), program)
	// By the clock, of which as many samples as there are will do.
	e := asNobody(t, dir, "record", "-F", "999", "-o", "clock.data", "--", program, programs.Times(counted))
	if e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	if !strings.Contains(e.stderr, ":u") {
		t.Errorf("it does not say that only user code is recorded:\n%s", e.stderr)
	}
	if limited := lockedMemory(t) < 8<<20; limited &&
		!regexp.MustCompile(`ring of \d+ KiB`).MatchString(e.stderr) {
		t.Errorf("it does not say that the ring is smaller:\n%s", e.stderr)
	}
	e = asNobody(t, dir, slices.Concat([]string{"record", "-o", "perf.data", "--stats", "stats.json"},
		programs.Faults(), []string{"--stack-size", "8192", "--", program, programs.Times(counted), levels})...)
	if e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	path := filepath.Join(dir, "perf.data")
	r := made(t, path, filepath.Join(dir, "stats.json"), e)
	r.whollyComplete(t)
	chain, err := programs.ParseChain(firstLine(e.stdout))
	if err != nil {
		t.Fatal(err)
	}
	matchCounted(t, r, chain, programs.Program{Name: "qsort"})
	samples := perfScript(t, path)
	if n := share(samples, func(s *sample) bool { return len(s.kernel) > 0 }); n > 0 {
		t.Errorf("%d samples with kernel frames", n)
	}
	if uint64(len(samples)) != r.stats.Samples.Total {
		t.Errorf("perf script shows %d samples, stats say %d", len(samples), r.stats.Samples.Total)
	}
}

// TestUnprivilegedUserRecordsOwnProcess attaches to a process. So little of each stack is copied that the ring, of 2
// MiB for users, is never half full: as long as it is not, files are waited for.
func TestUnprivilegedUserRecordsOwnProcess(t *testing.T) {
	dir := nobodysDirectory(t)
	needParanoid(t)
	need(t, "mkfifo")
	t.Parallel()
	program := filepath.Join(dir, "qsort")
	copyFile(t, programs.Build(t, "qsort"), program)
	// It begins when a recording attaches to it, and ends the recording by its end.
	output(t, dir, "mkfifo", "begin", "control", "ack")
	for _, fifo := range []string{"begin", "control", "ack"} {
		if err := os.Chown(filepath.Join(dir, fifo), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	proc := exec.Command("sh", "-c", fmt.Sprintf(`read x <begin; exec "$0" =%d %s`, counted, levels), program)
	proc.Dir = dir
	proc.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := programs.StartTied(t, proc); err != nil {
		t.Fatal(err)
	}
	ack, err := os.OpenFile(filepath.Join(dir, "ack"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	control, err := os.OpenFile(filepath.Join(dir, "control"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	if _, err := control.WriteString("enable\n"); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan struct{})
	go func() {
		defer close(reaped)
		var b [4]byte
		if _, err := ack.Read(b[:]); err == nil {
			os.WriteFile(filepath.Join(dir, "begin"), []byte("\n"), 0)
		}
		proc.Wait()
	}()
	defer func() {
		proc.Process.Kill()
		ack.Close()
		<-reaped
	}()
	e := asNobody(t, dir, slices.Concat([]string{"record", "-D", "-1", "--control", "fifo:control,ack", "-p",
		fmt.Sprint(proc.Process.Pid), "-o", "perf.data", "--stats", "stats.json", "--stack-size", "8192"},
		programs.Faults())...)
	if e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	r := made(t, filepath.Join(dir, "perf.data"), filepath.Join(dir, "stats.json"), e)
	r.whollyComplete(t)
	if n := leavesOf(t, r.path, "qsort_leaf"); n != counted {
		t.Errorf("%d samples of the leaf, of %d: %+v", n, counted, r.stats.Samples)
	}
}

// leavesOf counts the samples of a recording whose leaf is a function.
func leavesOf(t *testing.T, path, leaf string) (n int) {
	t.Helper()
	p := ownProfile(t, path)
	for _, s := range p.Samples {
		if stack := userStack(p, s.Node); len(stack) > 0 && stack[0] == leaf {
			n += int(s.Count)
		}
	}
	return n
}

func TestUnprivilegedUserIsToldWhatIsMissing(t *testing.T) {
	dir := nobodysDirectory(t)
	needParanoid(t)
	mended := `(?s)perf_event_paranoid.*\n  try: .*(sysctl|setcap|sudo)`
	for _, c := range []struct {
		name string
		args []string
		says string
	}{
		{"whole system", []string{"-a", "-d", "1"}, mended},
		{"whole system with a command", []string{"-a", "--", "true"}, mended},
		{"somebody else's process", []string{"-p", fmt.Sprint(os.Getpid()), "-d", "1"}, `\n  try: `},
		{"kernel code", []string{"-e", "cpu-clock:k", "--", "true"}, `\n  try: `},
		{"somebody else's directory", []string{"-o", "/usr/perf.data", "--", "true"},
			"/usr/perf.data.*permission denied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asNobody(t, dir, append([]string{"record", "-q"}, c.args...)...).fails(t, statusFailure, c.says)
		})
	}
	t.Run("doctor", func(t *testing.T) {
		e := asNobody(t, dir, "doctor")
		if !strings.Contains(e.stdout, "perf_event_paranoid") || e.stderr != "" {
			t.Errorf("status %d\n%s%s", e.status, e.stdout, e.stderr)
		}
		for _, want := range []string{
			`command  +-- COMMAND: \d+ samples in 0.2 s, .*complete`, `process  +-p PID: \d+ samples in 0.2 s`,
			`without kernel stacks \(:u\)`, "whole machine +-a is not permitted", `the mappings of \d+ of \d+`,
			"debug information",
		} {
			if !regexp.MustCompile(want).MatchString(e.stdout) {
				t.Errorf("does not say %q:\n%s", want, e.stdout)
			}
		}
		if limited := lockedMemory(t) < 8<<20; limited && !strings.Contains(e.stdout, "ring of ") {
			t.Errorf("the limit of locked memory is %d:\n%s", lockedMemory(t), e.stdout)
		}
		if n := strings.Count(e.stdout, "\n"); n > 48 {
			t.Errorf("%d lines are more than one screen:\n%s", n, e.stdout)
		}
	})
}

// lockedMemory is how much a user may lock for one CPU's ring, about.
func lockedMemory(t *testing.T) uint64 {
	t.Helper()
	content, err := os.ReadFile("/proc/sys/kernel/perf_event_mlock_kb")
	if err != nil {
		t.Fatal(err)
	}
	var kb uint64
	fmt.Sscan(string(content), &kb)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	return kb<<10 + min(limit.Cur, 1<<40)
}
