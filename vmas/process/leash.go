package process

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Leash ends a process later, also when this process has no right to send it signals any more. It is a pair of
// sockets that the kernel reports input of by a signal: to a process, and with the rights of who asked for that
// (fcntl(2), F_SETOWN), which is decided now. The kernel remembers the process, not its PID. The end of one socket is
// no input of the other: of a stream it would be, and a recording that is killed is to leave the process alone.
type Leash struct{ ours, watched int }

// NewLeash prepares a signal to a process.
func NewLeash(pid int, s syscall.Signal) (*Leash, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	l := &Leash{pair[0], pair[1]}
	for _, set := range []struct{ command, value int }{
		{unix.F_SETOWN, pid}, {unix.F_SETSIG, int(s)}, {unix.F_SETFL, unix.O_NONBLOCK | unix.O_ASYNC},
	} {
		if _, err := unix.FcntlInt(uintptr(l.watched), set.command, set.value); err != nil {
			l.Close()
			return nil, fmt.Errorf("fcntl: %w", err)
		}
	}
	return l, nil
}

// Pull sends the signal.
func (l *Leash) Pull() { _, _ = unix.Write(l.ours, []byte{0}) }

// Close lets go of the process. l may be nil.
func (l *Leash) Close() {
	if l == nil {
		return
	}
	unix.Close(l.ours)
	unix.Close(l.watched)
}
