package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"unspool/testdata/programs"
)

func TestSpooled(t *testing.T) {
	for _, want := range []spooled{
		{asked: 100, path: "/tmp/a:b"},
		{asked: 101, pids: []int{4711, 4712}, path: "perf.data"},
	} {
		var got spooled
		if err := got.Set(want.String()); err != nil || got.asked != want.asked || got.path != want.path ||
			!slices.Equal(got.pids, want.pids) {
			t.Errorf("%v is %+v, %v", &want, got, err)
		}
	}
	if (&spooled{}).Set("100:x:perf.data") == nil {
		t.Error("no error for a process that is no number")
	}
}

// samplesBy counts the samples of a recording by one of perf script's fields.
func samplesBy(t *testing.T, path, field string) map[string]int {
	t.Helper()
	seen := make(map[string]int)
	for line := range strings.Lines(output(t, "", "perf", "script", "-f", "-i", path, "-F", field, "-G")) {
		seen[strings.TrimSpace(line)]++
	}
	return seen
}

// only fails the test unless there are some samples, all of them with one value.
func only(t *testing.T, seen map[string]int, value string) {
	t.Helper()
	if len(seen) != 1 || seen[value] == 0 {
		t.Errorf("samples of %v, want %s only", seen, value)
	}
}

func TestRecordOfCPUs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf", "taskset")
	pid := burner(t)
	onCPU := func(cpu string) { output(t, "", "taskset", "-p", "-c", cpu, strconv.Itoa(pid)) }
	onCPU("0")
	for name, args := range map[string][]string{
		"of the whole system": {"-C", "0"},
		"of a process":        {"-C", "0", "-p", strconv.Itoa(pid)},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, append(args, "-F", "999", "-d", "0.4")...)
			only(t, samplesBy(t, r.path, "cpu"), "[000]")
		})
	}
	t.Run("on another CPU", func(t *testing.T) {
		if _, err := os.Stat("/sys/devices/system/cpu/cpu1"); err != nil {
			t.Skip("there is one CPU only")
		}
		onCPU("1")
		r := record(t, "-C", "0", "-p", strconv.Itoa(pid), "-F", "999", "-d", "0.2")
		if r.stats.Samples.Total > 0 {
			t.Errorf("%d samples", r.stats.Samples.Total)
		}
	})
	// The program maps its libraries on another CPU than it is sampled on.
	t.Run("mapped elsewhere", func(t *testing.T) {
		if _, err := os.Stat("/sys/devices/system/cpu/cpu1"); err != nil {
			t.Skip("there is one CPU only")
		}
		r := record(t, "-C", "0", "-F", "999", "--", "taskset", "-c", "1", "sh", "-c",
			`"$0" 700 & sleep 0.2; taskset -p -c 0 $! >/dev/null; wait`, programs.Build(t, "burn"))
		burning := 0
		for _, s := range perfScript(t, r.path) {
			if s.comm == "burn" && slices.Contains(s.names(), "burn_inner") {
				burning++
			}
		}
		if burning < 20 {
			t.Errorf("%d samples in burn_inner", burning)
		}
	})
}

func TestRecordOfThreads(t *testing.T) {
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
	var tids []string
	eventually(t, "the threads", func() bool {
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", cmd.Process.Pid))
		tids = nil
		for _, e := range entries {
			tids = append(tids, e.Name())
		}
		return len(tids) == 5
	})
	slices.Sort(tids)
	r := record(t, "-F", "999", "-t", tids[2], "-d", "0.6")
	only(t, samplesBy(t, r.path, "tid"), tids[2])
	if r.stats.incomplete() > 0.01 {
		t.Errorf("%v", r.stats.Unwind.Ended)
	}
}

// TestRecordEndsWithItsThreads records a thread of a process that goes on without it.
func TestRecordEndsWithItsThreads(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "python3")
	cmd := exec.Command("python3", "-c", `
import threading, time
def spin():
    end = time.time() + 2
    while time.time() < end: pass
threading.Thread(target=spin).start()
time.sleep(30)`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	var tid string
	eventually(t, "the thread", func() bool {
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", cmd.Process.Pid))
		if len(entries) == 2 {
			tid = entries[1].Name()
		}
		return len(entries) == 2
	})
	if r := record(t, "-t", tid); r.stats.Duration > 20 || r.stats.Samples.Total == 0 {
		t.Errorf("%d samples in %.1f s", r.stats.Samples.Total, r.stats.Duration)
	}
}

func TestRecordOfUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	burner(t) // of root
	const uid = 54321
	dir := t.TempDir()
	program, err := os.ReadFile(programs.Build(t, "burn"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "burn")
	if err := writeProgram(path, program); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "30000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	r := record(t, "-F", "999", "-u", strconv.Itoa(uid), "-d", "0.4")
	only(t, samplesBy(t, r.path, "pid"), strconv.Itoa(cmd.Process.Pid))
}

func TestRecordOfCgroup(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	name := fmt.Sprintf("unspool-test-%d", os.Getpid())
	dir := makeCgroup(t, name)
	burner(t) // outside
	pid := strconv.Itoa(burner(t))
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0o644); err != nil {
		t.Skipf("cgroups cannot be changed here: %v", err)
	}
	for _, given := range []string{name, "/" + name, dir} {
		r := record(t, "-F", "999", "-G", given, "-d", "0.4")
		only(t, samplesBy(t, r.path, "pid"), pid)
		if r.stats.incomplete() > 0.01 {
			t.Errorf("%v", r.stats.Unwind.Ended)
		}
	}
}

// makeCgroup makes a cgroup in the hierarchy that has perf_event, for the time of the test.
func makeCgroup(t *testing.T, name string) string {
	t.Helper()
	for _, root := range cgroupRoots {
		parent, err := openCgroup(root, nil)
		if err != nil {
			continue
		}
		parent.Close()
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("no cgroup can be made here: %v", err)
		}
		t.Cleanup(func() {
			// What was in it has been killed, and may not be gone yet.
			eventually(t, "the cgroup to be empty", func() bool { return os.Remove(dir) == nil })
		})
		return dir
	}
	t.Skip("no hierarchy of cgroups is mounted that has perf_event")
	return ""
}

// TestNamesAreLookedUpOnce records processes by name in another format, which takes a second process.
func TestNamesAreLookedUpOnce(t *testing.T) {
	t.Parallel()
	needRoot(t)
	program, err := os.ReadFile(programs.Build(t, "burn"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "looked-up-once")
	if err := writeProgram(path, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "60000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	eventually(t, "the process", func() bool {
		found, err := processes([]string{filepath.Base(path)})
		return err == nil && slices.Equal(found, []int{cmd.Process.Pid})
	})
	dir := t.TempDir()
	r := start(t, dir, nil, "record", "-q", "-p", filepath.Base(path), "-d", "1", "-o", "out.folded")
	eventually(t, "the process that records", func() bool {
		for _, args := range childrenOf(t, r.Process.Pid) {
			if strings.Contains(args, fmt.Sprintf(":%d:", cmd.Process.Pid)) {
				return true
			}
		}
		return false
	})
	if e := r.wait(); e.status != 0 {
		t.Errorf("%+v", e)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "out.folded")); err != nil ||
		!strings.Contains(string(text), "burn_inner") {
		t.Errorf("%v, %.200s", err, text)
	}
}

// childrenOf are the command lines of the children of a process, by PID.
func childrenOf(t *testing.T, pid int) map[int]string {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	lines := make(map[int]string)
	for _, path := range threads {
		list, _ := os.ReadFile(path)
		for _, child := range strings.Fields(string(list)) {
			line, _ := os.ReadFile(filepath.Join("/proc", child, "cmdline"))
			if pid, err := strconv.Atoi(child); err == nil {
				lines[pid] = string(line)
			}
		}
	}
	return lines
}
