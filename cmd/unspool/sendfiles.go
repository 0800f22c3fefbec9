package main

import (
	"io"
	"os"

	"unspool/capture/rights/passing"
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
		_ = passing.Send(socket, []byte{fileComes}, int(file.Fd()))
		file.Close()
	}
}

// receiveFiles receives files until another byte comes, which it returns, or the end.
func receiveFiles(socket *os.File) (files []*os.File, last byte, err error) {
	for {
		var b [1]byte
		n, fd, err := passing.Receive(int(socket.Fd()), b[:])
		switch {
		case err != nil:
			return files, 0, err
		case n == 0:
			return files, 0, io.EOF
		}
		if fd >= 0 {
			file := os.NewFile(uintptr(fd), "recorded file")
			if len(files) < mostReceived {
				files = append(files, file)
			} else {
				file.Close()
			}
		}
		if b[0] != fileComes {
			return files, b[0], nil
		}
	}
}
