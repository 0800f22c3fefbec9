package main

import (
	"bytes"
	"fmt"
	"io"
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

// readableBy checks that perf and unspool read what is left of a recording, and
// returns its samples.
func readableBy(t *testing.T, path string) []sample {
	t.Helper()
	samples := perfScript(t, path)
	if len(samples) == 0 {
		t.Fatal("perf script finds no sample")
	}
	if n := perfReportSamples(t, path); n != uint64(len(samples)) {
		t.Errorf("perf report counts %d samples, perf script shows %d", n, len(samples))
	}
	if n := unspoolReportSamples(t, path); n != uint64(len(samples)) {
		t.Errorf("unspool report counts %d samples, perf script shows %d", n, len(samples))
	}
	if bad := share(samples, func(s *sample) bool { return len(s.user) == 0 }); bad*10 > len(samples) {
		t.Errorf("%d of %d samples have no user stack", bad, len(samples))
	}
	return samples
}

// TestKilledRecordingIsReadable kills recordings of one process, one after the other. What has been sampled is in their
// files without an end.
func TestKilledRecordingIsReadable(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	p := startToucher(t)
	pid := strconv.Itoa(p.pid)
	for _, c := range []struct {
		name, event string // what perf script calls it
		args        []string
	}{
		{"plain", "page-faults:u", faultsOf(p)},
		{"compressed", "page-faults:u", append(faultsOf(p), "-z")},
		// Not with page faults: of software events that several recordings have at once, kernels give the samples the
		// IDs of one of them (do_perf_sw_event), by which an event is found if there are several.
		{"tracepoint", rare, []string{"-e", rare + ",sched:sched_process_exec", "-c", "1", "-p", pid}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.event == rare {
				rareOnly(t)
			}
			dir := t.TempDir()
			var rs []*running
			var paths []string
			for i := range 3 {
				path := filepath.Join(dir, fmt.Sprintf("%d.data", i))
				r, control := startControlled(t, dir, append([]string{"record", "-o", path}, c.args...)...)
				control("enable")
				rs, paths = append(rs, r), append(paths, path)
			}
			for i, r := range rs {
				p.touch(counted)
				for _, path := range paths[i:] {
					lane.Eventually(t, "samples in "+path, func() bool { return samplesByEvent(t, path, 2)[0] >= counted*(i+1) })
				}
				r.Process.Kill()
				if e := r.finish(t, time.Minute); e.status != 128+9 {
					t.Fatalf("status %d\n%s", e.status, e.stderr)
				}
			}
			for i, path := range paths {
				n := share(touching(readableBy(t, path)), func(s *sample) bool { return strings.HasPrefix(s.event, c.event) })
				if want := counted * (i + 1); n != want {
					t.Errorf("recording %d has %d samples in touches_leaf, of %d", i+1, n, want)
				}
			}
		})
	}
}

// TestMachineKilledRecording looks at how much is missing before the kill.
func TestMachineKilledRecording(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	need(t, "perf")
	pid := strconv.Itoa(burner(t))
	for _, args := range [][]string{nil, {"-z"}} {
		dir := t.TempDir()
		path := filepath.Join(dir, "perf.data")
		r := start(t, dir, nil, append([]string{"record", "-F", "999", "-p", pid}, args...)...)
		recordsInto(t, path)
		time.Sleep(400 * time.Millisecond)
		r.Process.Kill()
		at := monotonic(t)
		r.finish(t, time.Minute)
		samples := readableBy(t, path)
		gap := at - samples[len(samples)-1].time
		if lane.Figure(t, "the last sample is from %v before the kill", gap); gap > 500*time.Millisecond {
			t.Errorf("the last sample is from %v before the kill", gap)
		}
	}
}

// mountTmpfs mounts a file system of the given size that nobody else sees, and
// returns a directory in it. It is gone when the test ends.
func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	needRoot(t)
	programs.NeedMounts(t)
	dir := t.TempDir()
	holder := exec.Command("sh", "-c", `mount -t tmpfs -o "$1" none "$2" && echo mounted && cat >/dev/null`,
		"sh", options, dir)
	// Go makes the new namespace private.
	holder.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := programs.StartTied(t, holder); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() {
		stdin.Close()
		holder.Wait()
	})
	if _, err := io.ReadFull(stdout, make([]byte, len("mounted\n"))); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	return fmt.Sprintf("/proc/%d/root%s", holder.Process.Pid, dir)
}

// lossNote is what is said of lost records, where a test does not wait for the recording to keep up.
var lossNote = regexp.MustCompile(`(?m)^unspool: [0-9,]+ records were lost: .*\n`)

func TestFullDisk(t *testing.T) {
	t.Parallel()
	need(t, "perf")
	for _, c := range []struct {
		name string
		size uint64 // KiB
		most uint64 // that are taken back
		args []string
	}{
		{"plain", 640, 256 + 16, nil},
		{"compressed", 24, 16, []string{"-z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(mountTmpfs(t, fmt.Sprintf("size=%dk", c.size)), "perf.data")
			p := startToucher(t)
			r, control := startControlled(t, t.TempDir(), slices.Concat([]string{"record", "-q", "-o", path,
				"--stack-size", "4096"}, faultsOf(p), c.args)...)
			control("enable")
			for depth := 37; !r.hasEnded(); depth = 1 + (depth+37)%100 {
				p.tell(fmt.Sprintf("200 %d", depth)) // it does not matter if some are lost
			}
			e := r.finish(t, time.Minute)
			e.stderr = lossNote.ReplaceAllString(e.stderr, "")
			e.fails(t, statusFailure, "no space left on device")
			if n := fileSize(t, path); n < (c.size-c.most)<<10 || n > c.size<<10 {
				t.Errorf("%d bytes were written to %d KiB", n, c.size)
			}
			readableBy(t, path)
		})
	}
	t.Run("dev full", func(t *testing.T) {
		// Use a node of our own, in case it were replaced.
		needRoot(t)
		path := filepath.Join(t.TempDir(), "full")
		if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|7); err != nil {
			t.Skipf("mknod: %v", err)
		}
		if f, err := os.OpenFile(path, os.O_WRONLY, 0); err != nil {
			t.Skip(err) // a file system without devices
		} else {
			f.Close()
		}
		e := unspool(t, t.TempDir(), "record", "-q", "-o", path, "--", "true")
		e.fails(t, statusFailure, "no space left on device|not a regular file|device")
		st, err := os.Stat(path)
		if err != nil || st.Mode()&os.ModeCharDevice == 0 {
			t.Errorf("the device is no longer there: %v %v", st, err)
		}
	})
	t.Run("stats", func(t *testing.T) {
		needRoot(t)
		dir := t.TempDir()
		e := unspool(t, dir, slices.Concat([]string{"record", "-q", "--stats", "/dev/full"}, programs.Faults(),
			[]string{"--", programs.Build(t, "plain"), programs.Times(counted)})...)
		e.fails(t, statusFailure, "no space left on device")
		readableBy(t, filepath.Join(dir, "perf.data"))
	})
}

func TestClosedPipe(t *testing.T) {
	t.Parallel()
	needRoot(t)
	p := startToucher(t)
	for _, c := range []struct {
		name string
		read int64
	}{
		{"at once", 0},
		{"after a while", 40_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			r := start(t, t.TempDir(), func(cmd *exec.Cmd) { cmd.Stdout = writer },
				slices.Concat([]string{"record", "-q", "-o", "-"}, faultsOf(p))...)
			writer.Close()
			closed := make(chan error)
			go func() {
				_, err := io.CopyN(io.Discard, reader, c.read)
				reader.Close()
				closed <- err
			}()
			p.touchUntil("the end", func() bool {
				time.Sleep(5 * time.Millisecond)
				return r.hasEnded()
			})
			if err := <-closed; err != nil {
				t.Fatal(err)
			}
			r.finish(t, time.Minute).fails(t, statusFailure, "broken pipe|closed")
		})
	}
}

// TestFailuresAreOneClearLine runs commands that cannot work.
func TestFailuresAreOneClearLine(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(dir, "garbage")
	if err := writeProgram(garbage, []byte("\x7fELF garbage")); err != nil {
		t.Fatal(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		args   []string
		status int
		says   string
	}{
		{"missing command", []string{"--", "no-such-command-anywhere"}, 127,
			"no-such-command-anywhere: command not found"},
		{"missing path", []string{"--", "./no-such-file"}, 127, "./no-such-file"},
		{"command is not executable", []string{"--", plain}, 126, "permission denied"},
		{"command is a directory", []string{"--", dir}, 126, regexp.QuoteMeta(dir)},
		{"command is no program", []string{"--", garbage}, 126, "exec format error"},
		{"missing command with -a", []string{"-a", "--", "no-such-command-anywhere"}, 127, "not found"},
		{"no such process", []string{"-p", strconv.Itoa(gone.Process.Pid)}, statusFailure, "no (such )?process"},
		{"one of two processes", []string{"-p", fmt.Sprintf("%d,%d", os.Getpid(), gone.Process.Pid)}, statusFailure,
			"no (such )?process"},
		{"output is a directory", []string{"-o", dir, "--", "true"}, statusFailure, regexp.QuoteMeta(dir)},
		{"no directory for the output", []string{"-o", dir + "/none/perf.data", "--", "true"}, statusFailure,
			"no such file or directory"},
		{"directory that is not writable", []string{"-o", "/proc/perf.data", "--", "true"}, statusFailure,
			"/proc/perf.data"},
		{"file as a directory", []string{"-o", plain + "/perf.data", "--", "true"}, statusFailure,
			"not a directory"},
		{"stats that cannot be written",
			[]string{"--stats", dir + "/none/stats", "-o", dir + "/other.data", "--", "true"}, statusFailure,
			"none/stats"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cwd := t.TempDir()
			e := unspool(t, cwd, append([]string{"record", "-q"}, c.args...)...)
			e.fails(t, c.status, c.says)
			if e.stdout != "" {
				t.Errorf("printed %q", e.stdout)
			}
		})
	}

	t.Run("report", func(t *testing.T) {
		for _, c := range []struct{ name, file, says string }{
			{"missing", dir + "/none", "no such file"},
			{"no recording", plain, "not a perf.data file"},
			{"directory", dir, "directory"},
			{"empty", os.DevNull, "empty"},
		} {
			t.Run(c.name, func(t *testing.T) {
				unspool(t, dir, "report", c.file).fails(t, statusFailure, c.says)
			})
		}
	})
}

func TestRecordingEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	p := startToucher(t)
	s := startRecording(t, faultsOf(p)...)
	p.touch(counted)
	syscall.Kill(p.pid, syscall.SIGKILL)
	r := s.end(t)
	if n := len(touching(readableBy(t, r.path))); n != counted {
		t.Errorf("%d samples in touches_leaf, of %d", n, counted)
	}
}

func TestReportOfACutRecording(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, flag := range []string{"-v", "-z"} {
		t.Run(flag, func(t *testing.T) {
			r := record(t, slices.Concat(programs.Faults(), []string{flag, "--", programs.Build(t, "deep"),
				programs.Times(counted), "200"})...)
			whole, err := os.ReadFile(r.path)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []int{3, 2} {
				cut := filepath.Join(t.TempDir(), "cut.data")
				if err := os.WriteFile(cut, whole[:len(whole)*(part-1)/part], 0o644); err != nil {
					t.Fatal(err)
				}
				e := unspool(t, "", "report", cut)
				if e.status != 0 || strings.Contains(e.stderr, "panic") || !strings.Contains(e.stdout, "lost") {
					t.Errorf("status %d, stdout:\n%s\nstderr:\n%s", e.status, e.stdout, e.stderr)
				}
			}
		})
	}
}

func TestReportIntoAClosedPipe(t *testing.T) {
	needRoot(t)
	r := record(t, append(programs.Faults(), "--", "true")...)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	var stderr bytes.Buffer
	cmd := exec.Command(binary, "report", r.path)
	cmd.Stdout, cmd.Stderr = writer, &stderr
	cmd.Run()
	writer.Close()
	// As with every filter: ended by the signal, or without a message.
	if strings.Contains(stderr.String(), "panic") {
		t.Errorf("%s", &stderr)
	}
}
