package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/testdata/programs"
)

// openTerminal opens a pseudo-terminal of the given width. What is written to
// the terminal is collected until it is closed on both sides.
func openTerminal(t *testing.T, columns uint16) (terminal *os.File, written func() string) {
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
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: columns}); err != nil {
		t.Fatal(err)
	}
	if terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Skip(err)
	}
	var b bytes.Buffer
	var g sync.WaitGroup
	g.Go(func() { b.ReadFrom(master) }) // ends with EIO when nobody has the terminal open
	return terminal, func() string { g.Wait(); return b.String() }
}

// TestTerminalShowsOneLine looks at what a person sees while a recording runs.
func TestTerminalShowsOneLine(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, width := range []uint16{120, 40} {
		t.Run(fmt.Sprintf("%d columns", width), func(t *testing.T) {
			t.Parallel()
			terminal, written := openTerminal(t, width)
			r := start(t, t.TempDir(), func(cmd *exec.Cmd) { cmd.Stderr = terminal },
				"record", "-F", "999", "-d", "1.4", "--", programs.Build(t, "burn"), "0")
			e := r.finish(t, 10*time.Second)
			terminal.Close()
			out := written()
			if e.status != 0 {
				t.Fatalf("status %d: %q", e.status, out)
			}
			line := regexp.MustCompile(`^ +\d+\.\d s +\d+ samples/s  (\d|- )`)
			lines := 0
			for _, part := range strings.Split(out, "\r\x1b[K")[1:] {
				text, _, _ := strings.Cut(part, "\r\n")
				if line.MatchString(text) {
					lines++
					if len(text) >= int(width) {
						t.Errorf("%q is wider than the terminal", text)
					}
				}
			}
			if lines < 2 {
				t.Errorf("%d updates of the status line: %q", lines, out)
			}
			if width == 120 && !regexp.MustCompile(
				`samples/s  [\d.]+ % complete  0 lost  unspool [\d.]+ % CPU`).MatchString(out) {
				t.Errorf("the status line does not say all: %q", out)
			}
			// Nothing of it stays; the summary does.
			_, last, _ := strings.Cut(out[strings.LastIndex(out, "\r\x1b[K"):], "K")
			if !strings.Contains(last, " samples in ") || strings.Contains(last, "samples/s") {
				t.Errorf("at the end: %q", last)
			}
		})
	}
	t.Run("quiet", func(t *testing.T) {
		t.Parallel()
		terminal, written := openTerminal(t, 80)
		r := start(t, t.TempDir(), func(cmd *exec.Cmd) { cmd.Stderr = terminal },
			"record", "-q", "-d", "0.8", "--", programs.Build(t, "burn"), "0")
		r.finish(t, 10*time.Second)
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
			e := r.finish(t, 20*time.Second)
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
