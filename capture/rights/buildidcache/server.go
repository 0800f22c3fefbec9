package buildidcache

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/passing"
	"unspool/capture/rights/sandbox"
	"unspool/vmas/process"
)

// serverName is argv[0] of the process that writes to the cache.
const serverName = "unspool (build-ID cache)"

// serverSocket is the descriptor of its socket.
const serverSocket = 3

// Any program that imports this package can be that process.
func init() {
	if len(os.Args) == 1 && os.Args[0] == serverName {
		process.Rename("unspool-cache")
		// It ends with the recording.
		signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR2)
		process.CloseInherited(serverSocket)
		serve(serverSocket)
		os.Exit(0)
	}
}

// What the first byte of a message says. Each is one message of a socket of type SOCK_SEQPACKET.
const (
	aFile     = 1 // to the server, with a descriptor: uid, length of the build ID, build ID, name
	theEnd    = 2 // to the server
	aProgress = 3 // to the client
	aReport   = 4 // to the client: a Summary as JSON
)

const (
	headSize = 1 + 4 + 1
	mostName = unix.PathMax + len(gone)
	mostID   = 255
)

// serve becomes one of the user's own processes, takes files, and reports at the end.
func serve(socket int) {
	raised := sandbox.Lowered() || os.Geteuid() == 0
	err := sandbox.Renounce()
	if err == nil {
		err = sandbox.BecomeUser()
	}
	raised = raised && os.Geteuid() != 0
	c := newCache(raised)
	if err != nil {
		c.refuse(err)
	}
	buf := make([]byte, headSize+mostID+mostName+1)
	for {
		n, fd, err := passing.Receive(socket, buf)
		switch {
		case err != nil || n == 0:
			return // the recording was killed
		case buf[0] == theEnd:
			if text, err := json.Marshal(&c.report); err == nil {
				_ = passing.Send(socket, append([]byte{aReport}, text...), -1)
			}
			return
		}
		if fd < 0 {
			continue
		}
		file := os.NewFile(uintptr(fd), "sampled file")
		if s, ok := parse(buf[:n], file); ok {
			c.add(&s)
		}
		file.Close()
		// Whoever waits for the end sees that it goes on. Before that nobody does, and the socket may be full.
		_ = passing.SendNow(socket, []byte{aProgress}, -1)
	}
}

// refuse notes an error; nothing is written then.
func (c *cache) refuse(err error) { c.err = err }

// parse reads a message about an open file.
func parse(message []byte, file *os.File) (s sampled, ok bool) {
	if len(message) < headSize || message[0] != aFile {
		return s, false
	}
	uid, n := binary.NativeEndian.Uint32(message[1:]), int(message[5])
	rest := message[headSize:]
	if len(rest) < n {
		return s, false
	}
	var id []byte
	if n > 0 {
		id = append(id, rest[:n]...)
	}
	return look(file, string(rest[n:]), id, uid)
}

// message is the message about a file.
func message(name string, id []byte, uid uint32) []byte {
	if len(id) > mostID || len(name) > mostName {
		return nil
	}
	m := binary.NativeEndian.AppendUint32([]byte{aFile}, uid)
	m = append(append(m, byte(len(id))), id...)
	return append(m, name...)
}
