package top

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// Control sequences of xterm and its relatives (Xterm Control Sequences, "Private Modes").
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l" // the alternate screen, no cursor, no wrapping
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	clearLine   = "\x1b[K" // to the right
)

// A terminal is that of the user while the screen has it.
type terminal struct {
	in, out *os.File
	before  *term.State
	once    sync.Once
}

// takeTerminal takes the terminal over. It must be restored on every way out.
func takeTerminal(in, out *os.File) (*terminal, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	t := &terminal{in: in, out: out, before: before}
	if _, err := out.WriteString(enterScreen); err != nil {
		t.restore()
		return nil, err
	}
	return t, nil
}

// restore gives the terminal back as it was. It may be called more than once, from any goroutine.
func (t *terminal) restore() {
	t.once.Do(func() {
		_, _ = t.out.WriteString(leaveScreen)
		_ = term.Restore(int(t.in.Fd()), t.before)
	})
}

// restoreOnPanic is deferred by goroutines: a panic of theirs would end the process with the terminal taken.
func (t *terminal) restoreOnPanic() {
	if cause := recover(); cause != nil {
		t.restore()
		panic(cause)
	}
}

// size is how many columns and lines the terminal has.
func (t *terminal) size() (columns, lines int) {
	columns, lines, err := term.GetSize(int(t.out.Fd()))
	if err != nil || columns <= 0 || lines <= 0 {
		return 80, 24
	}
	return columns, lines
}

// draw replaces what the terminal shows. A line is cleared before it is written: behind one that is as wide
// as the terminal, clearing would take its last character.
func (t *terminal) draw(lines []string) error {
	_, err := t.out.WriteString(toTop + clearLine + strings.Join(lines, "\r\n"+clearLine))
	return err
}

// read passes on the keys that are typed, until the terminal is gone.
func (t *terminal) read(to chan<- []key) {
	defer t.restoreOnPanic()
	defer close(to)
	var b [256]byte
	for {
		n, err := t.in.Read(b[:])
		if err != nil || n == 0 {
			return
		}
		to <- keys(b[:n])
	}
}
