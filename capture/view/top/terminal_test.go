package top

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// openTerminal opens a pseudo-terminal; written waits until it is closed and returns what was written to it.
func openTerminal(t *testing.T) (terminal *os.File, written func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	if terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Skip(err)
	}
	var b bytes.Buffer
	var g sync.WaitGroup
	g.Go(func() { b.ReadFrom(master) })
	return terminal, func() string { terminal.Close(); g.Wait(); return b.String() }
}

// TestPanicRestoresTheTerminal has a goroutine panic that has the terminal.
func TestPanicRestoresTheTerminal(t *testing.T) {
	tty, written := openTerminal(t)
	before, err := term.GetState(int(tty.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	taken, err := takeTerminal(tty, tty)
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := term.GetState(int(tty.Fd())); *raw == *before {
		t.Fatal("the terminal is not in raw mode")
	}
	var cause any
	func() {
		defer func() { cause = recover() }()
		defer taken.restoreOnPanic()
		panic("broken")
	}()
	if cause != "broken" {
		t.Errorf("the panic became %v", cause)
	}
	if after, _ := term.GetState(int(tty.Fd())); *after != *before {
		t.Errorf("the terminal's mode is %+v, and was %+v", after, before)
	}
	taken.restore() // does nothing any more
	if text := written(); strings.Count(text, leaveScreen) != 1 || !strings.HasSuffix(text, leaveScreen) {
		t.Errorf("written: %q", text)
	}
}
