package sysprofd

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

var le = binary.LittleEndian

// Kinds of frames, enum SysprofCaptureFrameType.
const (
	Sample  = 2
	Map     = 3
	Process = 4
	Fork    = 5
	Exit    = 6
	Log     = 12
	File    = 13
)

// HeaderSize is the size of a capture's header.
const HeaderSize = 256

const frameHead = 24

// A Frame is a frame of a capture.
type Frame struct {
	Kind uint32
	CPU  int16
	PID  int32
	Time uint64
	Body []byte
}

// Text is the text at an offset of the body.
func (f *Frame) Text(at int) string {
	if at > len(f.Body) {
		return ""
	}
	s, _, _ := bytes.Cut(f.Body[at:], []byte{0})
	return string(s)
}

// Name is that of a process, a mapped file, a file of which this is a chunk, or the message of a log.
func (f *Frame) Name() string {
	switch f.Kind {
	case Process:
		return f.Text(0)
	case Map:
		return f.Text(32)
	case File:
		return f.Text(4)
	case Log:
		return f.Text(40)
	}
	return ""
}

// Chunk is the part of the file that a chunk holds. last means that it is the end of the file.
func (f *Frame) Chunk() (data []byte, last bool) {
	return f.Body[260:][:le.Uint16(f.Body[2:])], le.Uint16(f.Body) == 1
}

// Addrs are those of a sample, markers among them.
func (f *Frame) Addrs() []uint64 {
	all := make([]uint64, le.Uint16(f.Body))
	for i := range all {
		all[i] = le.Uint64(f.Body[8+8*i:])
	}
	return all
}

// TID is that of a sample.
func (f *Frame) TID() int32 { return int32(le.Uint32(f.Body[4:])) }

// Child is the process or thread that a FORK has made.
func (f *Frame) Child() int32 { return int32(le.Uint32(f.Body)) }

// A Header is a capture's header.
type Header struct {
	Clock      string // the time of day at the start, in ISO 8601
	Start, End uint64 // CLOCK_MONOTONIC in ns
}

// ParseHeader reads a capture's header.
func ParseHeader(b []byte) (h Header, err error) {
	if len(b) != HeaderSize || le.Uint32(b) != 0xFDCA975E || le.Uint32(b[4:]) != 1|1<<8 {
		return h, fmt.Errorf("header of %d bytes: % x", len(b), b[:min(len(b), 8)])
	}
	clock, _, _ := bytes.Cut(b[8:72], []byte{0})
	return Header{string(clock), le.Uint64(b[72:]), le.Uint64(b[80:])}, nil
}

// next reads the frame at the beginning of b. ok is false if it is not whole. Its body is a copy.
func next(b []byte) (f Frame, size int, ok bool, err error) {
	if len(b) < frameHead {
		return f, 0, false, nil
	}
	size = int(le.Uint16(b))
	if size < frameHead || size%8 != 0 {
		return f, 0, false, fmt.Errorf("frame of %d bytes", size)
	}
	if size > len(b) {
		return f, size, false, nil
	}
	f = Frame{Kind: le.Uint32(b[16:]), CPU: int16(le.Uint16(b[2:])), PID: int32(le.Uint32(b[4:])),
		Time: le.Uint64(b[8:]), Body: bytes.Clone(b[frameHead:size])}
	return f, size, true, f.check()
}

// least is how large the body of a frame is at least.
var least = map[uint32]int{Sample: 8, Map: 33, Process: 1, Fork: 4, Exit: 0, Log: 41, File: 260}

func (f *Frame) check() error {
	n, known := least[f.Kind]
	switch {
	case !known || len(f.Body) < n:
		return fmt.Errorf("frame of kind %d with %d bytes", f.Kind, len(f.Body))
	case f.Kind == Sample && 8+8*int(le.Uint16(f.Body)) != len(f.Body):
		return fmt.Errorf("sample of %d addresses in %d bytes", le.Uint16(f.Body), len(f.Body))
	case f.Kind == File && 260+int(le.Uint16(f.Body[2:])) > len(f.Body):
		return fmt.Errorf("chunk of %d bytes in %d", le.Uint16(f.Body[2:]), len(f.Body))
	}
	return nil
}

// Parse reads a capture.
func Parse(b []byte) (h Header, frames []Frame, err error) {
	if h, err = ParseHeader(b[:min(len(b), HeaderSize)]); err != nil {
		return h, nil, err
	}
	for at := HeaderSize; at < len(b); {
		f, size, ok, err := next(b[at:])
		if err != nil || !ok {
			return h, frames, fmt.Errorf("offset %d: %d bytes are left: %w", at, len(b)-at, err)
		}
		frames = append(frames, f)
		at += size
	}
	return h, frames, nil
}
