package main

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/testdata/programs"
)

// groupOf is the process with a PID in report --by process.
func groupOf(t *testing.T, path string, pid int) (comm, cmdline string, samples uint64) {
	t.Helper()
	for _, e := range reportJSON(t, "--by", "process", path).Events {
		for _, g := range e.Groups {
			if int(*g.PID) == pid {
				return *g.Comm, g.Cmdline, g.Self
			}
		}
	}
	t.Fatalf("%s: no process %d", path, pid)
	return "", "", 0
}

// Processes have the command lines with which they were started, or which they have given themselves, without secrets;
// however hostile these are.
func TestCommandLines(t *testing.T) {
	t.Parallel()
	path := buildToucher(t, "named")
	large := func() (args []string) {
		args = []string{"first"}
		for range 14 { // each as long as it can be
			args = append(args, strings.Repeat("x", 128<<10-1))
		}
		return args
	}
	for _, c := range []struct {
		name  string
		args  []string
		title string // that it gives itself when it has been sampled
		want  string
		text  string // of the report
	}{
		{"started", []string{path, "-O2", "dfa.cc"}, "", path + " -O2 dfa.cc", "named -O2 dfa.cc"},
		{"secret", []string{path, "--password", "correct-horse-battery", "--token=correct-horse-battery", "last"}, "",
			path + " --password *** --token=*** last", "named --password *** --token=*** last"},
		{"title", []string{path, "-D", "/var/lib/postgresql/15/main"}, "title postgres: writer", "postgres: writer",
			"postgres: writer"},
		{"cleared", []string{path, "one"}, "title ", path + " one", "named one"},
		{"control characters", []string{path, "\x1b[31m", "a\nb", "\x80\xff"}, "", path + "  [31m a b \uFFFD\uFFFD",
			"named  [31m a b ??"},
		{"2 MB", append([]string{path}, large()...), "", path + " first …", "named first …"},
		{"no arguments", []string{""}, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(path)
			cmd.Args = c.args
			p := runToucher(t, cmd)
			s := startRecording(t, faultsOf(p)...)
			p.touch(counted)
			s.drained()
			if c.title != "" {
				p.tell(c.title)
			}
			r := s.stop(t)
			comm, cmdline, samples := groupOf(t, r.path, p.pid)
			if comm != "named" || cmdline != c.want || samples < counted {
				t.Errorf("%s of %d samples: %.200q, want %q", comm, samples, cmdline, c.want)
			}
			line := fmt.Sprintf(" named (%d)  %s\n", p.pid, c.text)
			if c.text == "" {
				line = fmt.Sprintf(" named (%d)\n", p.pid)
			}
			if out := unspool(t, "", "report", "--by", "process", r.path).stdout; !strings.Contains(out, line) {
				t.Errorf("no %q in\n%s", line, out)
			}
			if content := mustRead(t, r.path); bytes.Contains(content, []byte("correct-horse-battery")) {
				t.Error("the recording has a secret")
			}
			if st, err := os.Stat(r.path); err != nil || st.Mode() != 0o600 {
				t.Errorf("%v, %v", st.Mode(), err)
			}
		})
	}
}

// A command that is recorded from its exec on has one, also if it has ended when the recording does, and the
// recording's own command line has no secret.
func TestCommandLineOfACommand(t *testing.T) {
	t.Parallel()
	path := buildCase(t, "stays.c")
	for _, sandbox := range []string{"--sandbox", "--no-sandbox"} {
		fifo := programs.FIFO(t)
		s := startUnsampled(t, slices.Concat(programs.Faults(), []string{sandbox, "-D", "0", "--", path,
			programs.Times(counted), fifo.Name(), "--password", "correct-horse-battery"})...)
		s.goOn(t, fifo)
		r := s.end(t)
		want := strings.Join([]string{path, programs.Times(counted), fifo.Name(), "--password ***"}, " ")
		found := false
		for _, g := range reportJSON(t, "--by", "process", r.path).Events[0].Groups {
			found = found || g.Cmdline == want
		}
		if !found {
			t.Errorf("%s: no process %q in\n%s", sandbox, want, unspool(t, "", "report", "--by", "process", r.path).stdout)
		}
		if bytes.Contains(mustRead(t, r.path), []byte("correct-horse-battery")) {
			t.Errorf("%s: the recording has a secret", sandbox)
		}
	}
}

// A process that ended before it could be read keeps its name, and so do all with --no-cmdline. Pieces of a recording
// have command lines each.
func TestCommandLinesLeftOut(t *testing.T) {
	t.Parallel()
	t.Run("ended", func(t *testing.T) {
		t.Parallel()
		p := startToucher(t, "unmistakable")
		s := startRecording(t, faultsOf(p)...)
		s.Process.Signal(unix.SIGSTOP)
		p.touch(counted)
		p.end()
		untilGone(t, p.pid)
		s.Process.Signal(unix.SIGCONT)
		r := s.end(t)
		comm, cmdline, samples := groupOf(t, r.path, p.pid)
		if comm != "touches" || cmdline != "" || samples < counted || r.stats.CommandLines.Unread != 1 {
			t.Errorf("%s of %d samples: %q; %+v", comm, samples, cmdline, r.stats.CommandLines)
		}
	})
	t.Run("no-cmdline", func(t *testing.T) {
		t.Parallel()
		p := startToucher(t, "unmistakable")
		s := startRecording(t, append(faultsOf(p), "--no-cmdline")...)
		p.touch(counted)
		s.drained()
		r := s.stop(t)
		comm, cmdline, samples := groupOf(t, r.path, p.pid)
		if comm != "touches" || cmdline != "" || samples < counted || r.stats.CommandLines.Kept != 0 {
			t.Errorf("%s of %d samples: %q", comm, samples, cmdline)
		}
		if bytes.Contains(mustRead(t, r.path), []byte("touches unmistakable")) {
			t.Error("the recording has a command line")
		}
	})
}

// Whatever a recording is written into has the command lines, and perf reads it: a pipe, compressed records, each file
// of a rotation, and the last of a recording.
func TestCommandLinesInEveryLayout(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]string{
		"pipe": {"-o", "-"}, "compressed": {"-z"}, "rotation": {"--switch-output"}, "last": {"--last", "1h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, p := t.TempDir(), startToucher(t, "unmistakable")
			r, control := startControlled(t, dir, slices.Concat([]string{"record"}, options, faultsOf(p))...)
			control("enable")
			p.touch(counted)
			control("ping")
			files := []string{"perf.data"}
			switch name {
			case "rotation":
				r.Process.Signal(unix.SIGUSR2)
				rotatedPath(t, dir, 2)
				p.touch(counted)
				control("ping")
			}
			control("stop")
			e := r.finish(t, time.Minute)
			if options[0] != "-o" && options[0] != "-z" {
				files = rotatedPaths(dir)
			}
			if name == "pipe" {
				if err := os.WriteFile(filepath.Join(dir, "perf.data"), []byte(e.stdout), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, file := range files {
				path := filepath.Join(dir, filepath.Base(file))
				comm, cmdline, samples := groupOf(t, path, p.pid)
				if comm != "touches" || !strings.HasSuffix(cmdline, "touches unmistakable") || samples < counted {
					t.Errorf("%s: %s of %d samples: %q\n%s", file, comm, samples, cmdline, e.stderr)
				}
				if n := len(touching(perfScript(t, path))); n != counted {
					t.Errorf("%s: perf has %d samples", file, n)
				}
			}
		})
	}
}

var base64Text = regexp.MustCompile(`[A-Za-z0-9+/=]{64,}`)

// unpacked is what is in a file, however it is compressed: gzip, and DEFLATE in base64.
func unpacked(t *testing.T, content []byte) []byte {
	t.Helper()
	if z, err := gzip.NewReader(bytes.NewReader(content)); err == nil {
		if content, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	all := slices.Clone(content)
	for _, text := range base64Text.FindAll(content, -1) {
		if packed, err := base64.StdEncoding.DecodeString(string(text)); err == nil {
			data, _ := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
			all = append(all, data...)
		}
	}
	return all
}

// No other file has a command line unless it is asked for, and none that was asked for has a secret.
func TestNoCommandLinesInExports(t *testing.T) {
	t.Parallel()
	const argument = "unmistakable-argument-dfa.cc"
	p := startToucher(t, argument, "--password=correct-horse-battery")
	dir := t.TempDir()
	has := func(file string) bool {
		content := unpacked(t, mustRead(t, filepath.Join(dir, file)))
		if bytes.Contains(content, []byte("correct-horse-battery")) {
			t.Errorf("%s has a secret", file)
		}
		if !bytes.Contains(content, []byte("touches_leaf")) && filepath.Ext(file) != ".data" {
			t.Errorf("%s was not unpacked", file)
		}
		return bytes.Contains(content, []byte(argument))
	}
	recorded := func(file string, options ...string) {
		t.Helper()
		args := slices.Concat([]string{"record", "-q", "-o", file}, options, faultsOf(p))
		r, control := startControlled(t, dir, args...)
		control("enable")
		p.touch(counted)
		control("ping")
		control("stop")
		if e := r.finish(t, time.Minute); e.status != 0 {
			t.Fatalf("record -o %s: status %d\n%s", file, e.status, e.stderr)
		}
	}
	recorded("two.data")
	if !has("two.data") {
		t.Fatal("the recording has no command line")
	}
	for file, holds := range map[string]bool{"copy.data": true, "x.pb.gz": true, "x.json.gz": true, "x.syscap": true,
		"x.speedscope.json": false, "x.html": false, "x.svg": false, "x.folded": false} {
		converted(t, dir, file)
		if has(file) {
			t.Errorf("%s has a command line", file)
		}
		os.Remove(filepath.Join(dir, file))
		if !holds {
			e := unspool(t, dir, "convert", "two.data", "-o", file, "--cmdline")
			if e.status != statusFailure || !strings.Contains(e.stderr, "--cmdline: ") {
				t.Errorf("%s --cmdline: status %d\n%s", file, e.status, e.stderr)
			}
			continue
		}
		converted(t, dir, file, "--cmdline")
		if !has(file) {
			t.Errorf("%s has no command line with --cmdline", file)
		}
		if filepath.Ext(file) == ".data" {
			if _, line, _ := groupOf(t, filepath.Join(dir, file), p.pid); !strings.HasSuffix(line, argument+" --password=***") {
				t.Errorf("%s: %q", file, line)
			}
		}
	}
	recorded("live.pb.gz")
	if has("live.pb.gz") {
		t.Error("a recording in another format has a command line")
	}
	recorded("live.pb.gz", "--cmdline")
	if !has("live.pb.gz") {
		t.Error("a recording in another format has no command line with --cmdline")
	}
}

// untilGone waits until a child that was started by this process has ended.
func untilGone(t *testing.T, pid int) {
	t.Helper()
	for {
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED, nil); err != unix.EINTR {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}
