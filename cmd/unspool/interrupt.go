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
	context.AfterFunc(ctx, func() {
		quit := make(chan os.Signal, 1)
		signal.Notify(quit, syscall.SIGQUIT) // by default, Go's runtime prints where all goroutines are
		stop()
		<-quit
		os.Exit(128 + int(syscall.SIGQUIT))
	})
	return ctx, stop
}

// endingSignals are the signals that end a recording. SIGHUP stays ignored if it was when unspool began, as with nohup.
// SIGINT does not: a shell has it ignored in whatever a script starts in the background, which is to end by it all the
// same when it is sent, as perf does.
func endingSignals() []os.Signal {
	s := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		s = append(s, syscall.SIGHUP)
	}
	return s
}
