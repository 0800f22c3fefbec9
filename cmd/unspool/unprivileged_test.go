package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	return r.finish(t, 20*time.Second)
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

func TestUnprivilegedUserRecordsOwnCommand(t *testing.T) {
	dir := nobodysDirectory(t)
	needParanoid(t)
	need(t, "perf")
	program := filepath.Join(dir, "qsort")
	copyFile(t, programs.Build(t, "qsort"), program)
	e := asNobody(t, dir, "record", "-F", "999", "-o", "perf.data", "--stats", "stats.json", "--", program, "1")
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
	content, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	if err != nil {
		t.Fatal(err)
	}
	st := readStatistics(t, content)
	st.addUp(t)
	least := (recording{stats: st, ended: e}).fewest(999, 200)
	if st.Samples.User < least || st.incomplete() > 0.01 || st.Samples.Lost > 0 {
		t.Errorf("%+v %v", st.Samples, st.Unwind.Ended)
	}
	t.Parallel() // what was recorded is read beside other tests
	path := filepath.Join(dir, "perf.data")
	samples := perfScript(t, path)
	if n := share(samples, func(s *sample) bool { return len(s.kernel) > 0 }); n > 0 {
		t.Errorf("%d samples with kernel frames", n)
	}
	if uint64(len(samples)) != st.Samples.Total {
		t.Errorf("perf script shows %d samples, stats say %d", len(samples), st.Samples.Total)
	}
	chain, err := programs.ParseChain(strings.TrimSpace(e.stdout))
	if err != nil {
		t.Fatal(err)
	}
	p := ownProfile(t, path)
	matched := 0
	for _, s := range p.Samples {
		if chain.Match(userStack(p, s.Node)) == nil {
			matched += int(s.Count)
		}
	}
	if matched*100 < len(samples)*95 { // the rest is from before main
		t.Errorf("%d of %d stacks match the chain", matched, len(samples))
	}
}

func TestUnprivilegedUserRecordsOwnProcess(t *testing.T) {
	dir := nobodysDirectory(t)
	needParanoid(t)
	program := filepath.Join(dir, "burn")
	copyFile(t, programs.Build(t, "burn"), program)
	cmd := exec.Command(program, "0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	time.Sleep(50 * time.Millisecond)
	began, before := time.Now(), cpuOf(t, cmd.Process.Pid)
	e := asNobody(t, dir, "record", "-F", "999", "-p", fmt.Sprint(cmd.Process.Pid), "-d", "0.4",
		"--stats", "stats.json")
	had := cpuOf(t, cmd.Process.Pid) - before
	if e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	content, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	if err != nil {
		t.Fatal(err)
	}
	st := readStatistics(t, content)
	if st.Samples.User < fewest(999, st.recorded(had, began), 100) || st.incomplete() > 0.01 {
		t.Errorf("%+v %v", st.Samples, st.Unwind.Ended)
	}
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
