package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/testdata/lane"
)

// TestTopWritesTables has top write to a pipe, as root and confined.
func TestTopWritesTables(t *testing.T) {
	t.Parallel()
	needRoot(t)
	p := startToucher(t)
	for _, option := range []string{"--sandbox", "--no-sandbox"} {
		t.Run(option, func(t *testing.T) {
			tables, err := os.Create(filepath.Join(t.TempDir(), "tables"))
			if err != nil {
				t.Fatal(err)
			}
			defer tables.Close()
			r := start(t, "", func(cmd *exec.Cmd) { cmd.Stdout = tables },
				append([]string{"top", option, "--delay", "0.2"}, faultsOf(p)...)...)
			read := func() string { return string(mustRead(t, tables.Name())) }
			p.touchUntil("tables with samples", func() bool {
				time.Sleep(10 * time.Millisecond)
				all, full := fullTables(t, read())
				return all >= 4 && full >= 3
			})
			r.Process.Signal(syscall.SIGINT)
			if e := r.finish(t, time.Minute); e.status != 0 || e.stderr != "" {
				t.Fatalf("status %d: %s", e.status, e.stderr)
			}
			if text := read(); !strings.HasSuffix(text, "\n\n") {
				t.Errorf("the last table is not whole:\n%s", text)
			}
			fullTables(t, read())
		})
	}
	t.Run("ends", func(t *testing.T) {
		e := unspool(t, "", append([]string{"top", "--delay", "0.1", "-d", "0.3"}, faultsOf(p)...)...)
		if all, _ := fullTables(t, e.stdout); e.status != 0 || all == 0 || e.took < 300*time.Millisecond {
			t.Errorf("status %d, after %v: %s\n%s", e.status, e.took, e.stderr, e.stdout)
		}
	})
}

// fullTables checks the tables of a toucher that are whole, and returns how many there are, and have samples.
func fullTables(t *testing.T, stdout string) (all, full int) {
	t.Helper()
	tables := strings.Split(stdout, "\n\n")
	head := regexp.MustCompile(`^\S+T\S+  (\d+ samples?) in [\d.]+ m?s(, \d\.\d of \d+ CPUs? busy)?$`)
	for _, table := range tables[:len(tables)-1] {
		all++
		lines := strings.Split(table, "\n")
		m := head.FindStringSubmatch(lines[0])
		if m == nil || strings.Join(strings.Fields(lines[1]), " ") != "self total function image program" {
			t.Fatalf("a table begins with %q, %q", lines[0], lines[1])
		}
		if m[1] == "0 samples" { // names were being looked up
			continue
		}
		full++
		f := strings.Fields(lines[2])
		if len(f) != 5 || f[2] != "touches_leaf" || f[4] != "touches" || len(f[0]) < 5 {
			t.Errorf("the first function is %q", lines[2])
		}
	}
	return all, full
}

// A pane is a terminal of tmux with a shell.
type pane struct {
	t      *testing.T
	socket string
}

func newPane(t *testing.T) *pane {
	need(t, "tmux")
	p := &pane{t, filepath.Join(t.TempDir(), "tmux")}
	p.tmux("-f", os.DevNull, "new-session", "-d", "-x", "90", "-y", "20", "env", "PS1=$ ", "sh")
	t.Cleanup(func() { exec.Command("tmux", "-S", p.socket, "kill-server").Run() })
	return p
}

// tmux runs a command of tmux's.
func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", p.socket}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func (p *pane) keys(keys ...string)   { p.tmux(append([]string{"send-keys"}, keys...)...) }
func (p *pane) lines() (all []string) { return strings.Split(p.tmux("capture-pane", "-p"), "\n") }

// until waits until the pane's lines match.
func (p *pane) until(what string, match func(lines []string) bool) {
	p.t.Helper()
	for range 600 {
		if match(p.lines()) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.t.Fatalf("waited in vain for %s:\n%s", what, strings.Join(p.lines(), "\n"))
}

// state is the terminal's: the alternate screen, the cursor, wrapping.
func (p *pane) state() string {
	return p.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag} #{wrap_flag}")
}

// TestTopInATerminal looks at a program that burns CPU time, opens its tree, and quits in several ways: the
// terminal is as before each time.
func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	needRoot(t)
	pid := burner(t)
	p := newPane(t)
	before := p.state()
	p.keys("stty -g > "+p.socket+".before", "Enter")
	for name, end := range map[string]func(){
		"q":       func() { p.keys("q") },
		"Ctrl-C":  func() { p.keys("C-c") },
		"SIGTERM": func() { p.keys("/"); terminate(t, fmt.Sprintf("top\x00--delay\x000.2\x00-p\x00%d\x00", pid)) },
	} {
		p.keys(fmt.Sprintf("%s top --delay 0.2 -p %d; echo ended $?", binary, pid), "Enter")
		p.until("the function at the top", func(lines []string) bool {
			f := strings.Fields(lines[2])
			return len(f) == 5 && f[2] == "burn_inner" && strings.HasSuffix(lines[0], " busy")
		})
		if p.state() == before {
			t.Errorf("%s: top is not on the alternate screen", name)
		}
		p.keys("t")
		p.until("the tree", func(lines []string) bool { return strings.HasSuffix(lines[2], "▸ burn") })
		p.keys("Enter")
		p.until("an open tree", func(lines []string) bool {
			text := strings.Join(lines, "\n")
			return strings.Contains(text, "▾ burn\n") && strings.Contains(text, "▾ main  burn\n") &&
				strings.Contains(text, "burn_outer\n")
		})
		end()
		p.until("the end by "+name, func(lines []string) bool {
			return strings.Contains(strings.Join(lines, "\n"), "ended 0\n")
		})
		if now := p.state(); now != before {
			t.Errorf("%s: the terminal's state is %q, and was %q", name, now, before)
		}
		// What was before top is on the screen again, of the last time, too.
		p.keys("clear; stty -g > "+p.socket+".after; echo mode after "+name, "Enter")
		p.until("stty", func(lines []string) bool { return lines[0] == "mode after "+name })
		was, _ := os.ReadFile(p.socket + ".before")
		if now, _ := os.ReadFile(p.socket + ".after"); len(now) == 0 || !bytes.Equal(now, was) {
			t.Errorf("%s: the terminal's mode is %s, and was %s", name, now, was)
		}
	}
}

// terminate ends the program under test that runs with these arguments.
func terminate(t *testing.T, args string) {
	t.Helper()
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if text, _ := os.ReadFile(path); string(text) == binary+"\x00"+args {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			return
		}
	}
	t.Error("top does not run")
}

// TestMachineTopWaits has top show a process that sleeps: it takes no CPU time then, but for what it takes to start.
func TestMachineTopWaits(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	e := unspool(t, "", "top", "-p", sleeper(t), "-d", "5")
	if e.status != 0 {
		t.Fatalf("status %d: %s", e.status, e.stderr)
	}
	if lane.Figure(t, "%v of CPU time in 5 s", e.cpu); e.cpu > time.Second { // it takes 0.1 s, half of it to start
		t.Errorf("it took %v of CPU time in 5 s", e.cpu)
	}
}

// TestTopHelp has top show, where record has options of the same names that record.
func TestTopHelp(t *testing.T) {
	t.Parallel()
	help := unspool(t, "", "top", "--help").stdout
	for _, option := range []string{"-a, --all-cpus", "-p, --pid PID", "-t, --tid TID", "-u, --uid USER",
		"-C, --cpu CPUS", "-G, --cgroup DIRECTORY"} {
		if !regexp.MustCompile(`(?m)^  ` + option + ` +show `).MatchString(help) {
			t.Errorf("%s does not show:\n%s", option, help)
		}
	}
}

func TestTopRefuses(t *testing.T) {
	t.Parallel()
	const see = " (see 'unspool top --help')"
	for args, want := range map[string]string{
		"true":                     `unexpected argument "true": top runs no command` + see,
		"--delay 0.01":             "--delay 0.01: must be 0.1 to 100,000,000 seconds" + see,
		"-e cpu-clock,task-clock":  "-e: top shows one event" + see,
		"-a -p 1":                  "-a and -p cannot be used together: -a already records every process" + see,
		"-F 0":                     "-F 0: must be at least 1" + see,
		"-p no-process-called-so":  "",
		"--delay soon":             "",
		"-e no-event-called-so -d": "",
	} {
		e := unspool(t, "", append([]string{"top"}, strings.Fields(args)...)...)
		if e.status == 0 || e.stdout != "" || len(e.lines()) != 1 {
			t.Errorf("top %s: status %d, %q, %q", args, e.status, e.stdout, e.stderr)
		}
		if want != "" && e.stderr != "unspool: "+want+"\n" {
			t.Errorf("top %s: %q, want %q", args, e.stderr, want)
		}
	}
}
