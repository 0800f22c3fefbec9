package opener

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// An operation is what a request asks for.
type operation uint32

const (
	readText operation = iota + 1
	listNumbers
	readMemory
	openPath
	openMapped
	openWithin
	openPerfMap
	statPath
	readFile
	askOwner

	openEvent
	createOutput
	keepOutput
	keepOldOutput
	keepDatedOutput
	discardOutput
	removeOutput
	removeFolders
	raisePriority
	changePriority
	askCPU
	openLine
	awaitCommand
	reapCommand

	// Before the process is confined.
	grantEvent
	grantOutput
	grantFolder
	grantRing
	seal
)

// opens reports whether the answer has a descriptor.
func (o operation) opens() bool {
	switch o {
	case openPath, openMapped, openWithin, openPerfMap, openEvent, createOutput, grantRing, openLine:
		return true
	}
	return false
}

// grantsFile reports whether a descriptor comes with the request for what is to be granted.
func (o operation) grantsFile() bool { return o == grantOutput || o == grantFolder || o == grantRing }

// What goes with some operations.
const (
	keptBefore  = 1 // the end of grantOutput: a file was kept in the place
	forNames    = 1 // the start of seal: only names of generated code are asked for
	forFiles    = 2 // likewise: only files of this machine, by their paths
	confinedToo = 1 // the end of seal for files and for processes: whoever asks is confined
)

// A request is sent as its fields, little-endian, and then the text.
type request struct {
	op       operation
	pid, tid uint32
	// Of a mapping, or of memory; start is the number of an output, or of a perf map.
	start, end uint64
	text       []byte // a path, an event's attributes, a name
}

const (
	requestHead = 3*4 + 2*8
	mostText    = 2 * unix.PathMax // of a path and a name
	// pieceSize is how many bytes a message of an answer has at most: longer answers are sent in pieces.
	pieceSize  = 32 << 10
	answerHead = 2*4 + 8
	// mostAnswered bounds the bytes of all pieces.
	mostAnswered = 64 << 20
)

var errMessage = errors.New("not a message of the opener's")

func (r *request) append(b []byte) []byte {
	for _, n := range []uint32{uint32(r.op), r.pid, r.tid} {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	b = binary.LittleEndian.AppendUint64(b, r.start)
	b = binary.LittleEndian.AppendUint64(b, r.end)
	return append(b, r.text...)
}

func parseRequest(b []byte) (r request, err error) {
	if len(b) < requestHead || len(b) > requestHead+mostText {
		return r, errMessage
	}
	n := binary.LittleEndian
	r.op, r.pid, r.tid = operation(n.Uint32(b)), n.Uint32(b[4:]), n.Uint32(b[8:])
	r.start, r.end = n.Uint64(b[12:]), n.Uint64(b[20:])
	r.text = b[requestHead:]
	return r, nil
}

// An answer is sent as its fields, little-endian, and then the bytes. The descriptor goes along.
type answer struct {
	errno unix.Errno // 0 for none; errOther for an error whose text is in bytes
	more  uint32     // anotherPiece if that follows
	value uint64
	bytes []byte
	fd    int // -1 for none
}

func (a *answer) append(b []byte) []byte {
	for _, n := range []uint32{uint32(a.errno), a.more} {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return append(binary.LittleEndian.AppendUint64(b, a.value), a.bytes...)
}

func parseAnswer(b []byte) (a answer, err error) {
	if len(b) < answerHead {
		return a, errMessage
	}
	n := binary.LittleEndian
	a.errno, a.more = unix.Errno(n.Uint32(b)), n.Uint32(b[4:])
	a.value, a.bytes, a.fd = n.Uint64(b[8:]), b[answerHead:], -1
	return a, nil
}

// anotherPiece follows a message of an answer.
const anotherPiece = 1

// errOther is the errno of an error that is not from the kernel.
const errOther unix.Errno = 0xffff

// err is the error of an answer.
func (a *answer) err() error {
	switch a.errno {
	case 0:
		return nil
	case errOther:
		return errors.New(string(a.bytes))
	}
	return a.errno
}

// fail puts an error into an answer.
func (a *answer) fail(err error) {
	var errno unix.Errno
	if errors.As(err, &errno) && errno != 0 {
		a.errno = errno
		return
	}
	a.errno, a.bytes = errOther, []byte(err.Error())
}
