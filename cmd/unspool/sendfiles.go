package main

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A process that records for another one sends it the files whose names are wanted, which may be gone, over
// the socket between them: a byte for each, with its descriptor, before the byte that means that there is a
// recording.

// fileComes is the byte that a descriptor comes with.
const fileComes = 2

// mostReceived bounds how many files are taken.
const mostReceived = 2048

// sendFiles sends files and closes them. Those that cannot be sent have no names if they are gone.
func sendFiles(socket int, files []*os.File) {
	for _, file := range files {
		for {
			err := unix.Sendmsg(socket, []byte{fileComes}, unix.UnixRights(int(file.Fd())), nil, unix.MSG_NOSIGNAL)
			if err != unix.EINTR {
				break
			}
		}
		file.Close()
	}
}

// receiveFiles receives files until another byte comes, which it returns, or the end.
func receiveFiles(socket *os.File) (files []*os.File, last byte, err error) {
	control := make([]byte, unix.CmsgSpace(4))
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, 0, err
	}
	for {
		var b [1]byte
		var n, controls int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, controls, _, _, failed = unix.Recvmsg(int(fd), b[:], control, unix.MSG_CMSG_CLOEXEC)
			return failed != unix.EAGAIN && failed != unix.EINTR
		})
		switch err = errors.Join(err, failed); {
		case err != nil:
			return files, 0, err
		case n == 0:
			return files, 0, io.EOF
		}
		for _, fd := range rights(control[:controls]) {
			if len(files) == mostReceived {
				unix.Close(fd)
				continue
			}
			files = append(files, os.NewFile(uintptr(fd), "recorded file"))
		}
		if b[0] != fileComes {
			return files, b[0], nil
		}
	}
}

// rights are the descriptors in a control message.
func rights(control []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for i := range messages {
		if some, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, some...)
		}
	}
	return fds
}
