package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
)

// openTerminal opens a pseudo-terminal of the given width. What is written to
// the terminal is collected until it is closed on both sides.
func openTerminal(t *testing.T, columns uint16) (terminal *os.File, written func() string) {
	t.Helper()
	terminal, screen := watchTerminal(t, columns)
	return terminal, screen.all
}

// A screen collects what is written to a terminal.
type screen struct {
	mu     sync.Mutex
	b      bytes.Buffer
	closed sync.WaitGroup // when nobody has the terminal open
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

// soFar is what was written so far.
func (s *screen) soFar() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// all is what was written when the terminal has been closed.
func (s *screen) all() string {
	s.closed.Wait()
	return s.soFar()
}

// watchTerminal is openTerminal for a terminal that is looked at while it is written to.
func watchTerminal(t *testing.T, columns uint16) (terminal *os.File, s *screen) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 32, Col: columns}); err != nil {
		t.Fatal(err)
	}
	if terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Skip(err)
	}
	s = new(screen)
	s.closed.Go(func() { io.Copy(s, master) }) // ends with EIO when nobody has the terminal open
	return terminal, s
}

// statusLines are the updates of the status line of a recording, in what was written to a terminal.
func statusLines(text string) (lines []string) {
	line := regexp.MustCompile(`^ +\d+\.\d s +\d+ samples/s  (\d|- )`)
	for _, part := range strings.Split(text, "\r\x1b[K")[1:] {
		if text, _, _ := strings.Cut(part, "\r\n"); line.MatchString(text) {
			lines = append(lines, text)
		}
	}
	return lines
}

// TestTerminalShowsOneLine looks at what a person sees while a recording runs.
func TestTerminalShowsOneLine(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, width := range []uint16{120, 40} {
		t.Run(fmt.Sprintf("%d columns", width), func(t *testing.T) {
			t.Parallel()
			p := startToucher(t)
			terminal, screen := watchTerminal(t, width)
			r := start(t, t.TempDir(), func(cmd *exec.Cmd) { cmd.Stderr = terminal },
				append([]string{"record"}, faultsOf(p)...)...)
			// Until it tells of samples, of which few are enough.
			lane.Eventually(t, "samples", func() bool {
				p.touch(1)
				time.Sleep(20 * time.Millisecond)
				return regexp.MustCompile(`samples/s  \d`).MatchString(screen.soFar())
			})
			n := len(statusLines(screen.soFar()))
			lane.Eventually(t, "updates of the status line", func() bool { return len(statusLines(screen.soFar())) > max(n, 1) })
			r.Process.Signal(syscall.SIGINT)
			e := r.finish(t, time.Minute)
			terminal.Close()
			out := screen.all()
			if e.status != 0 {
				t.Fatalf("status %d: %q", e.status, out)
			}
			for _, line := range statusLines(out) {
				if len(line) >= int(width) {
					t.Errorf("%q is wider than the terminal", line)
				}
			}
			if width == 120 && !regexp.MustCompile(
				`samples/s  [\d.]+ % complete  0 lost  unspool [\d.]+ % CPU`).MatchString(out) {
				t.Errorf("the status line does not say all: %q", out)
			}
			// Nothing of it stays; the summary does.
			_, last, _ := strings.Cut(out[strings.LastIndex(out, "\r\x1b[K"):], "K")
			if !hasSummary(last) || strings.Contains(last, "samples/s") {
				t.Errorf("at the end: %q", last)
			}
		})
	}
	t.Run("quiet", func(t *testing.T) {
		t.Parallel()
		terminal, written := openTerminal(t, 80)
		r := start(t, t.TempDir(), func(cmd *exec.Cmd) { cmd.Stderr = terminal },
			"record", "-q", "-d", "0.8", "--", "sleep", "300")
		r.finish(t, time.Minute)
		terminal.Close()
		if out := written(); out != "" {
			t.Errorf("-q wrote %q", out)
		}
	})
}

// TestTerminalShowsLookups looks at what a person sees while names are looked up.
func TestTerminalShowsLookups(t *testing.T) {
	t.Parallel()
	data := halvesRecording(t)
	for _, args := range [][]string{
		{"convert", data, "-o", filepath.Join(t.TempDir(), "page.html")},
		{"report", "--inline", "--no-pager", data},
	} {
		t.Run(args[0], func(t *testing.T) {
			terminal, written := openTerminal(t, 100)
			r := start(t, t.TempDir(), func(cmd *exec.Cmd) { cmd.Stderr = terminal }, args...)
			e := r.finish(t, time.Minute)
			terminal.Close()
			out := written()
			if e.status != 0 || !regexp.MustCompile(`\r\x1b\[K +\d+ of \d+ files  looking up inlined functions`).
				MatchString(out) {
				t.Errorf("status %d: %q", e.status, out)
			}
			if last := out[strings.LastIndex(out, "\x1b[K"):]; strings.Contains(last, "looking up") {
				t.Errorf("at the end: %q", last)
			}
		})
	}
}
