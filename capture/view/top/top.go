package top

import (
	"context"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/profile"
	"unspool/perfring"
)

// Options say what is shown.
type Options struct {
	Span   time.Duration // what is shown is of the last so many seconds
	Every  time.Duration // how often it is shown anew
	Colour bool
}

// A Feed calls the function with the profile of every round of a recording, until that ends.
type Feed func(func(*profile.Profile) error) error

// Interactive shows a recording in a terminal until the user quits, ctx is done or the recording ends. The
// error is that of the feed or the terminal. The feed may go on after it returned, until the process ends.
func Interactive(ctx context.Context, in, out *os.File, feed Feed, o Options) error {
	t, err := takeTerminal(in, out)
	if err != nil {
		return err
	}
	defer t.restore()
	window, ended := NewWindow(o.Span), make(chan error, 1)
	go func() {
		defer t.restoreOnPanic()
		ended <- feed(func(p *profile.Profile) error { window.Add(p); return nil })
	}()
	typed := make(chan []key)
	go t.read(typed)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	tick := time.NewTicker(o.Every)
	defer tick.Stop()

	began, s := perfring.Now(), newScreen(o.Colour)
	for {
		columns, lines := t.size()
		if err := t.draw(s.lines(columns, lines)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-resized:
		case <-tick.C:
			p, from, until := window.Profile(perfring.Now())
			s.show(newSnapshot(p, between(max(began, from), until)))
		case all, ok := <-typed:
			if !ok { // the terminal is gone
				return nil
			}
			for _, k := range all {
				if s.press(k) {
					return nil
				}
			}
		}
	}
}

// Plain writes what a recording has seen in each interval as a table, until ctx is done or the recording
// ends, and then the rest.
func Plain(ctx context.Context, out io.Writer, feed Feed, o Options) error {
	window, ended := NewWindow(o.Every+mostLag), make(chan error, 1)
	go func() { ended <- feed(func(p *profile.Profile) error { window.Add(p); return nil }) }()
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	last := perfring.Now()
	write := func() error {
		p, from, until := window.Take(perfring.Now())
		n := newSnapshot(p, between(max(last, from), until))
		last = max(last, until)
		return writePlain(out, n, time.Now())
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			if werr := write(); err == nil {
				err = werr
			}
			return err
		case <-tick.C:
			if err := write(); err != nil {
				return err
			}
		}
	}
}

// between is the time from one time of the recording's clock to another, 0 if that is earlier.
func between(from, to uint64) time.Duration { return time.Duration(to - min(from, to)) }
