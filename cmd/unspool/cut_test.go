package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

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

func TestKilledRecordingIsReadable(t *testing.T) {
	needRoot(t)
	need(t, "perf")
	for _, c := range []struct {
		name string
		args []string
	}{
		{"plain", nil},
		{"compressed", []string{"-z"}},
		{"tracepoint", []string{"-e", "cpu-clock,irq:softirq_entry"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "tracepoint" {
				needTracepoints(t)
			}
			var killed []killedRecording
			dir := t.TempDir()
			t.Run("recording", func(t *testing.T) { killed = recordAndKill(t, dir, c.args) })
			for _, k := range killed {
				t.Run("after "+k.after.String(), func(t *testing.T) {
					t.Parallel()
					samples := readableBy(t, k.path)
					last := samples[0].time
					for _, s := range samples {
						last = max(last, s.time)
					}
					if gap := k.at - last; gap > 500*time.Millisecond {
						t.Errorf("the last sample is from %v before the kill", gap)
					}
				})
			}
		})
	}
}

// killedRecording is one that was killed.
type killedRecording struct {
	path  string
	after time.Duration
	at    time.Duration // by CLOCK_MONOTONIC
}

// recordAndKill makes several recordings of one process at once, and kills one after the other.
func recordAndKill(t *testing.T, dir string, args []string) (killed []killedRecording) {
	t.Helper()
	pid := strconv.Itoa(burner(t))
	var rs []*running
	for i, after := range []time.Duration{230 * time.Millisecond, 410 * time.Millisecond,
		590 * time.Millisecond} {
		path := filepath.Join(dir, fmt.Sprintf("%d.data", i))
		rs = append(rs, start(t, dir, nil, append([]string{"record", "-F", "999", "-p", pid, "-o", path},
			args...)...))
		killed = append(killed, killedRecording{path: path, after: after})
	}
	for _, k := range killed {
		recordsInto(t, k.path)
	}
	began := time.Now()
	for i := range killed {
		k := &killed[i]
		time.Sleep(time.Until(began.Add(k.after)))
		rs[i].Process.Kill()
		k.at = monotonic(t)
		if e := rs[i].wait(); e.status != 128+9 {
			t.Fatalf("status %d\n%s", e.status, e.stderr)
		}
	}
	return killed
}

// mountTmpfs mounts a file system of the given size that nobody else sees, and
// returns a directory in it. It is gone when the test ends.
func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	needRoot(t)
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

// Not beside other tests: on a busy machine all that has come is written at once, and taken back at once, up
// to 256 KiB.
func TestFullDisk(t *testing.T) {
	need(t, "perf")
	for _, c := range []struct {
		name string
		size uint64 // KiB
		most uint64 // that are taken back
		args []string
	}{
		{"plain", 1024, 256 + 16, nil},
		{"compressed", 64, 32, []string{"-z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(mountTmpfs(t, fmt.Sprintf("size=%dk", c.size)), "perf.data")
			args := append([]string{"record", "-q", "-F", "9999", "-d", "20", "-o", path}, c.args...)
			e := unspool(t, t.TempDir(), append(args, "--", programs.Build(t, "pulse"), "20")...)
			e.fails(t, statusFailure, "no space left on device")
			if e.took > 15*time.Second {
				t.Errorf("it went on for %v", e.took)
			}
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
		e := unspool(t, t.TempDir(), "record", "-q", "-o", path, "--", programs.Build(t, "burn"), "50")
		e.fails(t, statusFailure, "no space left on device|not a regular file|device")
		st, err := os.Stat(path)
		if err != nil || st.Mode()&os.ModeCharDevice == 0 {
			t.Errorf("the device is no longer there: %v %v", st, err)
		}
	})
	t.Run("stats", func(t *testing.T) {
		needRoot(t)
		dir := t.TempDir()
		e := unspool(t, dir, "record", "-q", "--stats", "/dev/full", "--", programs.Build(t, "burn"), "50")
		e.fails(t, statusFailure, "no space left on device")
		readableBy(t, filepath.Join(dir, "perf.data"))
	})
}

func TestClosedPipe(t *testing.T) {
	t.Parallel()
	needRoot(t)
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
				"record", "-q", "-F", "999", "-o", "-", "-p", strconv.Itoa(burner(t)))
			writer.Close()
			if n, err := io.CopyN(io.Discard, reader, c.read); err != nil {
				t.Fatalf("after %d bytes: %v", n, err)
			}
			reader.Close()
			r.finish(t, 10*time.Second).fails(t, statusFailure, "broken pipe|closed")
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
	cmd := exec.Command(programs.Build(t, "burn"), "0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	dir := t.TempDir()
	r := start(t, dir, nil, "record", "-p", strconv.Itoa(cmd.Process.Pid), "-o", "perf.data")
	path := filepath.Join(dir, "perf.data")
	recordsInto(t, path)
	time.Sleep(300 * time.Millisecond)
	cmd.Process.Kill()
	cmd.Wait()
	if e := r.finish(t, 3*time.Second); e.status != 0 {
		t.Errorf("status %d\n%s", e.status, e.stderr)
	}
	readableBy(t, path)
}

func TestReportOfACutRecording(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, flag := range []string{"-v", "-z"} {
		t.Run(flag, func(t *testing.T) {
			r := record(t, flag, "-F", "999", "--", programs.Build(t, "burn"), "400")
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
	r := record(t, "--", programs.Build(t, "burn"), "50")
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
