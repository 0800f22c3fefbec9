// Package passing sends messages between two processes of this program, each with one open file at most. All that the
// processes of a recording have to say to each other with files goes this way: requests and answers of the opener, and
// the sampled files that are handed on.
package passing

import (
	"bytes"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// Sockets returns the two ends of a connection, which are closed on exec (unix(7), SOCK_SEQPACKET). The caller closes
// both.
func Sockets() (ours, theirs int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	return pair[0], pair[1], nil
}

// room is for control messages with some descriptors more than the one that there may be.
const room = 64

// Send sends a message, and with it a descriptor unless that is negative, which stays the caller's. Where there is no
// room for it, Send waits as the socket's options say.
func Send(socket int, message []byte, fd int) error {
	err := SendNow(socket, message, fd)
	if err == unix.EAGAIN {
		for err = unix.EINTR; err == unix.EINTR; {
			err = send(socket, message, fd, unix.MSG_NOSIGNAL)
		}
	}
	return err
}

// SendNow is Send for a message for which there is room already: the error is [unix.EAGAIN] otherwise.
func SendNow(socket int, message []byte, fd int) error {
	return send(socket, message, fd, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}

func send(socket int, message []byte, fd int, how int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	if how&unix.MSG_DONTWAIT != 0 {
		return sys.Sendmsg(socket, message, rights, how)
	}
	return unix.Sendmsg(socket, message, rights, nil, how)
}

// Receive waits for a message as long as the socket's options say, and for its descriptor, which is the caller's then,
// -1 for none. None of 0 bytes is ever sent: n is 0 where the other end was closed.
func Receive(socket int, message []byte) (n, fd int, err error) {
	return receive(socket, message, unix.MSG_CMSG_CLOEXEC)
}

// ReceiveNow is Receive for a message that is there already: the error is [unix.EAGAIN] otherwise.
func ReceiveNow(socket int, message []byte) (n, fd int, err error) {
	return receive(socket, message, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
}

func receive(socket int, message []byte, how int) (n, fd int, err error) {
	var rights [room]byte
	for {
		var controls int
		if how&unix.MSG_DONTWAIT != 0 {
			n, controls, err = sys.Recvmsg(socket, message, rights[:], how)
		} else {
			n, controls, _, _, err = unix.Recvmsg(socket, message, rights[:], how)
		}
		switch err {
		case nil:
			return n, descriptor(bytes.Clone(rights[:controls])), nil // most have none
		case unix.EINTR:
		default:
			return 0, -1, err
		}
	}
}

// descriptor takes the descriptor out of a control message, -1 for none. More than one are closed.
func descriptor(control []byte) (fd int) {
	fd = -1
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return fd
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, n := range fds {
			if fd < 0 {
				fd = n
			} else {
				unix.Close(n)
			}
		}
	}
	return fd
}
