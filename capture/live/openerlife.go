package live

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"unspool/capture/counts"
	"unspool/capture/rights/opener"
	"unspool/vmas/process"
)

// An openerLife is that of the opener, as far as it concerns the recording: which ends when the opener is gone, and
// does not wait for it for ever. Without an opener there is nothing to it.
type openerLife struct {
	client *opener.Client // nil for none
	kill   *process.Leash
	gone   atomic.Bool
	cpu    time.Duration // its CPU time, as last known
}

// graceToOpen is how long the opener may take for an answer when the recording is to end.
const graceToOpen = 5 * time.Second

// errOpenerGone is why a recording ends by itself.
var errOpenerGone = errors.New("the process that opens files for this one was killed, so the recording ends here")

// begin prepares the end of an opener, which may be nil.
func (l *openerLife) begin(client *opener.Client) (err error) {
	if client == nil {
		return nil
	}
	l.client = client
	if l.kill, err = process.NewLeash(client.PID(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("prepare the end of the process that opens files: %w", err)
	}
	return nil
}

// watch wakes the recording when the opener is gone, and bounds what is waited for of it when the recording is to
// end, until stop is called.
func (l *openerLife) watch(ending <-chan struct{}, wake func()) (stop func()) {
	if l.client == nil {
		return func() {}
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-l.client.Gone():
			l.gone.Store(true)
			wake()
		case <-ending:
			l.bound()
		case <-over:
		}
	}()
	return func() { close(over) }
}

// bound gives the opener up when it has not answered for a while: it may be stopped, or hang. It is killed, as a
// stopped one would stay for ever.
func (l *openerLife) bound() {
	if l.client != nil {
		l.client.Bound(graceToOpen, l.kill.Pull)
	}
}

// release lets go of the opener: whoever asks it from now on waits as long as it takes, and does not kill it.
func (l *openerLife) release() {
	if l.client != nil {
		l.client.Bound(0, nil)
	}
	l.kill.Close()
}

// cpuTime is the CPU time of this process and of its opener.
func (l *openerLife) cpuTime() time.Duration {
	if l.client != nil {
		l.cpu = max(l.cpu, l.client.CPU())
	}
	return counts.CPUTime() + l.cpu
}
