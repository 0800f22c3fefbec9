package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilInterrupted returns a context that is done with the first signal that asks unspool to end: what it
// does is finished in good order then. A second one ends unspool itself. stop returns to that, and must be
// called.
func untilInterrupted() (ctx context.Context, stop func()) {
	ctx, stop = signal.NotifyContext(context.Background(), endingSignals()...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// endingSignals end a recording. A signal that was ignored when unspool
// began, as nohup does it, stays ignored.
func endingSignals() []os.Signal {
	var s []os.Signal
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			s = append(s, sig)
		}
	}
	return s
}
