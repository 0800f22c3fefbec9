package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilInterrupted returns a context that is done at the first signal that asks unspool to end, so that its
// work is finished in good order. A second signal ends unspool at once. stop restores the default handling of
// signals, and must be called.
func untilInterrupted() (ctx context.Context, stop func()) {
	ctx, stop = signal.NotifyContext(context.Background(), endingSignals()...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// endingSignals are the signals that end a recording. A signal that was ignored when unspool began, as with
// nohup, stays ignored.
func endingSignals() []os.Signal {
	var s []os.Signal
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			s = append(s, sig)
		}
	}
	return s
}
