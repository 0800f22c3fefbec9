package main

import (
	"bytes"
	little "encoding/binary"
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

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/unwind/image/fusetest"
)

// fieldsOf reads the status of each thread of a process.
func fieldsOf(t *testing.T, pid int) (threads []map[string]string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d: no threads, %v", pid, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		fields := make(map[string]string)
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			fields[name] = strings.Join(strings.Fields(value), " ")
		}
		threads = append(threads, fields)
	}
	return threads
}

// TestRecordingIsConfined looks at the processes of a recording while it runs.
func TestRecordingIsConfined(t *testing.T) {
	t.Parallel()
	needRoot(t)
	burns := strconv.Itoa(burner(t))
	for _, format := range []string{"perf.data", "out.folded", "comparison"} {
		dir := t.TempDir()
		what := []string{"record", "-o", format}
		if format == "comparison" {
			what = []string{"compare"}
		}
		r := start(t, dir, func(c *exec.Cmd) { c.Env = append(os.Environ(), "TMPDIR="+dir) },
			append(what, "-v", "-p", burns)...)
		pid := r.Process.Pid
		if format == "perf.data" {
			recordsInto(t, filepath.Join(dir, format))
		} else { // the process that records is a child of this one
			recordsInto(t, appears(t, dir, map[string]string{
				"out.folded": "out.folded.perf.data", "comparison": "unspool-*/pairs.data",
			}[format]))
			pid = child(t, pid, what[0])
		}
		for _, thread := range fieldsOf(t, pid) {
			for name, want := range map[string]string{
				"Uid": usersOf(pid), "Gid": "65534 65534 65534 65534", "Groups": "",
				"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
			} {
				if thread[name] != want {
					t.Errorf("%s: a thread has %s %q, not %q", format, name, thread[name], want)
				}
			}
		}
		opener := child(t, pid, "(opener)")
		for _, thread := range fieldsOf(t, opener) {
			if thread["Seccomp"] != "2" || thread["NoNewPrivs"] != "1" {
				t.Errorf("%s: the opener has seccomp %s", format, thread["Seccomp"])
			}
		}
		for pid, want := range map[int]string{pid: "unspool", opener: "unspool-opener"} {
			for _, thread := range fieldsOf(t, pid) {
				if thread["Pid"] == strconv.Itoa(pid) && thread["Name"] != want {
					t.Errorf("%s: a process is called %s, not %s", format, thread["Name"], want)
				}
			}
		}
		r.Process.Signal(syscall.SIGINT)
		e := r.finish(t, time.Minute)
		if e.status != 0 || !strings.Contains(e.stderr, "unspool: confined: ") {
			t.Errorf("%s: status %d\n%s", format, e.status, e.stderr)
		}
		// Names are looked up, and the format is written, by the first process.
		if said := strings.Contains(e.stderr, "unspool: afterwards confined: "); said != (format != "perf.data") {
			t.Errorf("%s: it is said how it is confined afterwards: %v\n%s", format, said, e.stderr)
		}
		lane.Eventually(t, format+": the opener ends", func() bool {
			return unix.Kill(opener, 0) != nil || strings.HasPrefix(fieldsOf(t, opener)[0]["State"], "Z")
		})
	}
}

// usersOf is what the status of a process says whose user no other process is: see sandbox.
func usersOf(pid int) string {
	uid := strconv.Itoa(1<<31 + pid)
	return strings.Join([]string{uid, uid, uid, uid}, " ")
}

// appears waits for a file of a pattern in a directory: a comparison first measures what samples cost.
func appears(t *testing.T, dir, pattern string) (path string) {
	t.Helper()
	lane.Eventually(t, pattern, func() bool {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(paths) != 1 {
			return false
		}
		path = paths[0]
		return true
	})
	return path
}

// child is the child of a process whose arguments hold a word.
func child(t testing.TB, parent int, word string) (pid int) {
	t.Helper()
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, number := range strings.Fields(string(text)) {
			arguments, _ := os.ReadFile("/proc/" + number + "/cmdline")
			if pid, _ = strconv.Atoi(number); bytes.Contains(arguments, []byte(word)) {
				return pid
			}
		}
	}
	t.Fatalf("process %d has no child %s", parent, word)
	return 0
}

// hangsFor is how long servers of files do not answer at most. Tests wait for longer.
const hangsFor = time.Minute

// TestRecordingEndsWhileAFileHangs records a program whose file's server does not answer: the recording ends
// in time, and its process with it, and says which file it was. A file that hangs only when it is closed is read.
func TestRecordingEndsWhileAFileHangs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	program, err := os.ReadFile(programs.Build(t, "plain", "-static"))
	if err != nil {
		t.Fatal(err)
	}
	files := t.TempDir()
	if err := writeProgram(filepath.Join(files, "program"), program); err != nil {
		t.Fatal(err)
	}
	modes := []fusetest.Mode{fusetest.HangOpen, fusetest.HangRead, fusetest.HangContents, fusetest.HangClose}
	for i := range 2 * len(modes) {
		mode, option := modes[i/2], []string{"--sandbox", "--no-sandbox"}[i%2]
		t.Run(string(mode)+" "+option, func(t *testing.T) {
			t.Parallel()
			server := fusetest.Show(t, files)
			path := filepath.Join(server.Dir, "program")
			hung := programs.StartCounted(t, path, counted)
			beside := programs.StartCounted(t, programs.Build(t, "plain"), counted)
			server.Be(t, mode)
			defer server.Be(t, fusetest.Answer)
			late := time.AfterFunc(hangsFor, func() { server.Be(t, fusetest.Answer) })
			defer late.Stop()
			dir := t.TempDir()
			r, control := startControlled(t, dir, slices.Concat([]string{"record", option, "-o", "perf.data", "--stats",
				"stats.json"}, programs.Faults(), []string{"-p", fmt.Sprintf("%d,%d", hung.Process.Pid, beside.Process.Pid)})...)
			control("enable")
			hung.Continue()
			beside.Continue()
			<-beside.Ended()
			lane.Eventually(t, "the end of the program, or that it waits for its own file", func() bool {
				select {
				case <-hung.Ended():
					return true
				default:
					stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", hung.Process.Pid))
					return err != nil || !bytes.Contains(stat, []byte(") R ")) && !bytes.Contains(stat, []byte(") T "))
				}
			})
			r.Process.Signal(syscall.SIGINT) // if it has not ended with them
			e := r.finish(t, 2*hangsFor)
			if !late.Stop() {
				t.Error("it ended only when the server answered")
			}
			server.Be(t, fusetest.Answer)
			// The kernel drops the pages of a file that is opened again: the program may wait for them, too.
			want := 1
			if mode == fusetest.HangClose || samplesOfProcess(t, filepath.Join(dir, "perf.data"), hung.Process.Pid) == 0 {
				want = 0
			}
			if st := statsIn(t, dir); mode == fusetest.HangClose && st.Unwind.Complete != st.Samples.User {
				t.Errorf("%d of %d stacks are complete", st.Unwind.Complete, st.Samples.User)
			}
			if named := strings.Count(e.stderr, path+": not read"); e.status != 0 || named != want {
				t.Errorf("status %d, the file is named %d times:\n%s", e.status, named, e.stderr)
			}
			if strings.Contains(e.stderr, "lost") {
				t.Errorf("samples were lost:\n%s", e.stderr)
			}
		})
	}
}

// TestRecordingEndsWhileADebugFileHangs records a program with a debug file whose server does not answer any
// more: the recording ends in time, and its process with it. Where it answers, or hangs only when the file is closed,
// the stacks are complete.
func TestRecordingEndsWhileADebugFileHangs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "objcopy")
	program := programs.Build(t, "plain", "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables",
		"-fomit-frame-pointer")
	files := t.TempDir()
	debug := filepath.Join(files, "plain.debug")
	output(t, "", "objcopy", "--only-keep-debug", program, debug)
	for _, mode := range []fusetest.Mode{fusetest.Answer, fusetest.HangOpen, fusetest.HangRead,
		fusetest.HangContents, fusetest.HangStat, fusetest.HangClose} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			server, dir := fusetest.Show(t, files), t.TempDir()
			stripped := filepath.Join(dir, "plain")
			output(t, "", "objcopy", "--strip-all", "--add-gnu-debuglink="+debug, program, stripped)
			isRead := mode == fusetest.Answer || mode == fusetest.HangClose
			served := filepath.Join(server.Dir, "plain.debug")
			if mode == fusetest.Answer { // how soon a server answers is another matter
				served = debug
			}
			if err := os.Symlink(served, stripped+".debug"); err != nil {
				t.Fatal(err)
			}
			recorded := programs.StartCounted(t, stripped, counted)
			server.Be(t, mode)
			defer server.Be(t, fusetest.Answer)
			late := time.AfterFunc(hangsFor, func() { server.Be(t, fusetest.Answer) })
			defer late.Stop()
			r, control := startControlled(t, dir, slices.Concat([]string{"record", "-v", "-o", "perf.data", "--stats",
				"stats.json"}, programs.Faults(), []string{"-p", strconv.Itoa(recorded.Process.Pid)})...)
			control("enable")
			recorded.Continue()
			e := r.finish(t, 2*hangsFor)
			if !late.Stop() {
				t.Error("it ended only when the server answered")
			}
			st := statsIn(t, dir)
			if e.status != 0 || st.Samples.User < counted {
				t.Errorf("status %d, %d samples\n%s", e.status, st.Samples.User, e.stderr)
			}
			if by := st.Unwind.CompleteBy["cfi"]; isRead && by < counted {
				t.Errorf("%d of %d stacks are complete by CFI\n%s", by, st.Samples.User, e.stderr)
			}
			if said := strings.Contains(e.stderr, "debug file of "+stripped+": not read"); said == isRead {
				t.Errorf("it is said that the debug file was not read: %v\n%s", said, e.stderr)
			}
		})
	}
}

// samplesOfProcess counts the samples of a process in a recording.
func samplesOfProcess(t *testing.T, path string, pid int) (n uint64) {
	t.Helper()
	p := ownProfile(t, path)
	for _, s := range p.Samples {
		if p.Threads[s.Thread].PID == uint32(pid) {
			n += s.Count
		}
	}
	return n
}

// statsIn reads stats.json in a directory.
func statsIn(t *testing.T, dir string) statistics {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	if err != nil {
		t.Fatal(err)
	}
	return readStatistics(t, text)
}

// TestFileOfAServerIsNotHeld records a program whose file's server answers: the process that records has no
// descriptor of the file that it could wait for.
func TestFileOfAServerIsNotHeld(t *testing.T) {
	t.Parallel()
	needRoot(t)
	server, path := served(t, buildCase(t, "touches.c", "-static"))
	p := runToucher(t, exec.Command(path))
	r := startRecording(t, faultsOf(p)...)
	p.touch(counted)
	held := 0
	lane.Eventually(t, "a descriptor of the file", func() bool {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", r.Process.Pid))
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); to != path {
				continue
			}
			held++
			info, err := os.ReadFile(strings.Replace(fd, "/fd/", "/fdinfo/", 1))
			_, flags, _ := strings.Cut(string(info), "flags:")
			n, _ := strconv.ParseUint(strings.Fields(flags + " 0")[0], 8, 64)
			if err == nil && n&unix.O_PATH == 0 {
				t.Errorf("a descriptor of the file can be read: %s", info)
			}
		}
		return held > 0
	})
	r.stop(t)
	server.Be(t, fusetest.Answer)
}

// served is a copy of a program whose file is that of a server, which answers.
func served(t *testing.T, program string) (server *fusetest.Mount, path string) {
	t.Helper()
	files := t.TempDir()
	copyFile(t, program, filepath.Join(files, "program"))
	server = fusetest.Show(t, files)
	return server, filepath.Join(server.Dir, "program")
}

// TestMachineFileOfAServer records a program whose file's server answers in time: its stacks are complete.
func TestMachineFileOfAServer(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	_, path := served(t, programs.Build(t, "plain", "-static"))
	r := record(t, "-F", "999", "-d", "1", "-p", strconv.Itoa(programs.Start(t, path, 20).Process.Pid))
	lane.Figure(t, "%d of %d stacks are complete", r.stats.Unwind.Complete, r.stats.Samples.User)
	if r.stats.Samples.User < 100 || r.stats.Unwind.Complete*100 < r.stats.Samples.User*95 {
		t.Errorf("%+v\n%s", r.stats.Unwind, r.stderr)
	}
}

// capable is a copy of the program under test that has all capabilities that a recording takes, for
// everybody.
func capable(t *testing.T) (path string) {
	t.Helper()
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "unspool-caps") // which others can enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "unspool")
	if err := writeProgram(path, content); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	low := uint32(1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_DAC_READ_SEARCH |
		1<<unix.CAP_IPC_LOCK | 1<<unix.CAP_SYS_NICE)
	high := uint32(1<<(unix.CAP_PERFMON-32) | 1<<(unix.CAP_SYSLOG-32) | 1<<(unix.CAP_CHECKPOINT_RESTORE-32))
	var xattr []byte // struct vfs_cap_data (include/uapi/linux/capability.h), effective
	for _, n := range []uint32{0x02000001, low, 0, high, 0} {
		xattr = little.LittleEndian.AppendUint32(xattr, n)
	}
	if err := unix.Setxattr(path, "security.capability", xattr, 0); err != nil {
		t.Skipf("skipped for want of file capabilities: %v", err)
	}
	return path
}

// TestCapabilitiesAreTheOpeners runs a program with capabilities as a user who has none: what the user names
// is opened with the user's own rights, and recording works.
func TestCapabilitiesAreTheOpeners(t *testing.T) {
	t.Parallel()
	needRoot(t)
	program := capable(t)
	dir := nobodysDirectory(t)
	secret := filepath.Join(dir, "secret")
	if err := os.Mkdir(secret, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("record", "-a", "-d", "0.5", "-v", "-o", "perf.data", "--stats", "stats.json")
	if err != nil || strings.Contains(out, "user code only") || !strings.Contains(out, "no capabilities") {
		t.Fatalf("-a: %v\n%s", err, out)
	}
	for _, name := range []string{"perf.data", "stats.json"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(secret, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hidden := filepath.Join(secret, "perf.data")
	for _, args := range [][]string{
		{"report", hidden}, {"convert", hidden, "-o", "x.folded"},
		{"check", hidden}, {"record", "-o", "x.data", "--", filepath.Join(secret, "perf.data")},
		{"record", "-o", filepath.Join(secret, "x.data"), "--", "true"},
		{"record", "-o", "x.data", "--stats", filepath.Join(secret, "x.json"), "--", "true"},
	} {
		if out, err := run(args...); err == nil || !strings.Contains(out, "ermi") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}
