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
	"time"

	"unspool/testdata/lane"
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

// only fails the test unless those samples of a recording are of a process that are in touches_leaf, and others of no
// process.
func only(t *testing.T, r recording, p *toucher, touched int) {
	t.Helper()
	samples := perfScript(t, r.path)
	theirs := of(samples, p.pid)
	if len(theirs) != len(samples) || len(touching(theirs)) != touched {
		t.Errorf("%d samples, of them %d of process %d, and %d in touches_leaf, of %d", len(samples), len(theirs), p.pid,
			len(touching(theirs)), touched)
	}
	r.whollyComplete(t)
}

func TestRecordOfCPUs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf", "taskset")
	if _, err := os.Stat("/sys/devices/system/cpu/cpu1"); err != nil {
		t.Skip("there is one CPU only")
	}
	onCPU := func(p *toucher, cpu string) { output(t, "", "taskset", "-p", "-c", cpu, strconv.Itoa(p.pid)) }
	// By the depths of the stacks, samples are known again.
	touchOnBoth := func(p *toucher) {
		onCPU(p, "0")
		p.tell("20 2")
		onCPU(p, "1")
		p.tell("20 3")
	}
	check := func(t *testing.T, path string, p *toucher) {
		t.Helper()
		for depth, want := range map[int]int{2: 20, 3: 0} {
			n := share(touching(of(perfScript(t, path), p.pid)), func(s *sample) bool {
				return s.user[depth].name ==
					"touches_outer" && s.user[depth+1].name == "touches_pages"
			})
			if n != want {
				t.Errorf("%d samples %d frames deep, want %d", n, depth, want)
			}
		}
		for cpu := range strings.FieldsSeq(output(t, "", "perf", "script", "-f", "-i", path, "-F", "cpu", "-G")) {
			if cpu != "[000]" {
				t.Fatalf("a sample on CPU %s", cpu)
			}
		}
	}
	p := startToucher(t)
	t.Run("of the whole system", func(t *testing.T) {
		s := startRecording(t, append(rareOnly(t), "-C", "0")...)
		touchOnBoth(p)
		check(t, s.stop(t).path, p)
	})
	t.Run("of a process", func(t *testing.T) {
		s := startRecording(t, append(faultsOf(p), "-C", "0")...)
		touchOnBoth(p)
		check(t, s.stop(t).path, p)
	})
	// The program maps its libraries on another CPU than it is sampled on.
	t.Run("mapped elsewhere", func(t *testing.T) {
		dir := t.TempDir()
		r, p := startTold(t, dir, slices.Concat([]string{"record", "-C", "0"}, rareOnly(t),
			[]string{"--", "taskset", "-c", "1", buildToucher(t, "")})...)
		touchOnBoth(p)
		p.end()
		if e := r.finish(t, time.Minute); e.status != 0 {
			t.Fatalf("%+v", e)
		}
		path := filepath.Join(dir, "perf.data")
		check(t, path, p)
		for _, s := range of(perfScript(t, path), p.pid) {
			if names := s.names(); len(names) < 4 || names[len(names)-1] != "_start" {
				t.Errorf("a stack of %v", names)
			}
		}
	})
}

func TestRecordOfThreads(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	p := startToucher(t, "first", "second", "third")
	for name, tid := range map[string]int{"one of three": p.tids[1], "the last one": p.tids[2]} {
		t.Run(name, func(t *testing.T) {
			s := startRecording(t, append(programs.Faults(), "-t", strconv.Itoa(tid))...)
			p.touch(counted)
			r := s.stop(t)
			only(t, r, p, counted)
			if tids := threadsOf(perfScriptHeads(t, r.path)); !slices.Equal(tids, []int{tid}) {
				t.Errorf("samples of %v, want %d only", tids, tid)
			}
		})
	}
}

// TestRecordEndsWithItsThreads records a thread of a process that goes on without it.
func TestRecordEndsWithItsThreads(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	p := startToucher(t, "ends")
	s := startRecording(t, append(programs.Faults(), "-t", strconv.Itoa(p.tids[0]))...)
	p.touch(counted)
	p.tell("end")
	only(t, s.end(t), p, counted)
	p.touch(1) // it is still there
}

func TestRecordOfUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	other := startToucher(t) // of root
	const uid = 54321
	path := buildToucher(t, "")
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	p := runToucher(t, cmd)
	s := startRecording(t, append(programs.Faults(), "-u", strconv.Itoa(uid))...)
	p.touch(counted)
	other.touch(counted)
	only(t, s.stop(t), p, counted)
}

func TestRecordOfCgroup(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	name := fmt.Sprintf("unspool-test-%d", os.Getpid())
	dir := makeCgroup(t, name)
	other, p := startToucher(t), startToucher(t)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.pid)), 0o644); err != nil {
		t.Skipf("cgroups cannot be changed here: %v", err)
	}
	for _, given := range []string{name, "/" + name, dir} {
		s := startRecording(t, append(programs.Faults(), "-G", given)...)
		other.touch(counted)
		p.touch(counted)
		only(t, s.stop(t), p, counted)
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
			lane.Eventually(t, "the cgroup to be empty", func() bool { return os.Remove(dir) == nil })
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
	path := buildToucher(t, "looked-up-once")
	p, dir := runToucher(t, exec.Command(path)), t.TempDir()
	r, control := startControlled(t, dir, slices.Concat([]string{"record", "-q", "-o", "out.folded"},
		programs.Faults(), []string{"-p", filepath.Base(path)})...)
	control("enable")
	given := false
	for _, args := range childrenOf(t, r.Process.Pid) {
		given = given || strings.Contains(args, fmt.Sprintf(":%d:", p.pid))
	}
	if !given {
		t.Errorf("the process that records is not told of process %d: %v", p.pid, childrenOf(t, r.Process.Pid))
	}
	p.touch(counted)
	control("stop")
	if e := r.finish(t, time.Minute); e.status != 0 {
		t.Errorf("%+v", e)
	}
	if n := ofDepth(t, filepath.Join(dir, "out.folded"), 1); n != counted {
		t.Errorf("%d samples, of %d", n, counted)
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
