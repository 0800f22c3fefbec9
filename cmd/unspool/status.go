package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/counts"
	"unspool/capture/output/human"
)

// A statusLine is the line that a terminal shows while a recording runs. If the output is not a terminal,
// only notes are printed.
type statusLine struct {
	f        *os.File
	terminal bool
	shown    bool

	samples uint64 // at the last update
	at      time.Duration
}

func newStatusLine(f *os.File) *statusLine {
	return &statusLine{f: f, terminal: isTerminal(f)}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// columns is the width of a terminal, 80 where it does not say.
func columns(f *os.File) int {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col == 0 {
		return 80
	}
	return int(ws.Col)
}

// note prints a line that stays.
func (l *statusLine) note(s string) {
	l.clear()
	fmt.Fprintf(l.f, "unspool: %s\n", human.Shorten(human.Clean(s), mostSaid))
}

// update shows the state of the recording.
func (l *statusLine) update(s *counts.Stats) {
	if !l.terminal {
		return
	}
	rate := 0.0
	if d := s.Duration - l.at; d > 0 {
		rate = float64(s.Samples-l.samples) / d.Seconds()
	}
	l.samples, l.at = s.Samples, s.Duration
	l.show(fmt.Sprintf("%6.1f s  %6.0f samples/s  %s complete  %s lost  unspool %.1f %% CPU",
		s.Duration.Seconds(), rate, completeShare(s), human.Number(s.Lost), 100*s.CPUShare()))
}

// converted shows the progress of a conversion: the share that is done, negative if that is not known.
func (l *statusLine) converted(s *counts.Stats, share float64) {
	if !l.terminal {
		return
	}
	done := ""
	if share >= 0 {
		done = fmt.Sprintf("%3.0f %%  ", 100*share)
	}
	l.show(fmt.Sprintf("%6.1f s  %s%s samples  %s complete",
		s.Duration.Seconds(), done, human.Number(s.Samples), completeShare(s)))
}

// named shows the progress of an export, which reads the recording and then looks names up.
func (l *statusLine) named(share float64) {
	switch {
	case !l.terminal:
	case share < 1:
		l.show(fmt.Sprintf("%3.0f %%  reading and naming", 100*share))
	default:
		l.show("writing")
	}
}

// looking shows in how many images source lines and inlined functions were looked up.
func (l *statusLine) looking(done, images int) {
	if l.terminal {
		l.show(fmt.Sprintf("%3d of %d files  looking up inlined functions", done, images))
	}
}

func completeShare(s *counts.Stats) string {
	if s.User == 0 {
		return "-"
	}
	return human.Percent(s.Complete(), s.User)
}

// show replaces the line.
func (l *statusLine) show(text string) {
	fmt.Fprintf(l.f, "\r\x1b[K%s", human.Beginning(text, columns(l.f)-1))
	l.shown = true
}

// clear removes the line.
func (l *statusLine) clear() {
	if l != nil && l.shown {
		fmt.Fprint(l.f, "\r\x1b[K")
		l.shown = false
	}
}
