package syscap

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"time"

	"unspool/capture/output/human"
)

var le = binary.LittleEndian

// The header, SysprofCaptureFileHeader.
const (
	magic       = 0xFDCA975E
	version     = 1
	littleByte  = 1 << 8 // little_endian: the bit behind the version
	headerSize  = 256
	headerClock = 64 // length of capture_time
	headerEnd   = 80 // offset of end_time
)

// Frame types, enum SysprofCaptureFrameType.
const (
	frameSample   = 2
	frameMap      = 3
	frameProcess  = 4
	frameFork     = 5
	frameExit     = 6
	frameMark     = 10
	frameMetadata = 11
	frameLog      = 12
	frameFile     = 13
)

// Frames begin at multiples of frameAlign, and have a size field of 16 bits.
const (
	frameAlign = 8
	maxFrame   = math.MaxUint16 &^ (frameAlign - 1)
	frameTime  = 8 // offset of the time

	sampleSize = 32  // SysprofCaptureSample, without addresses
	fileSize   = 284 // SysprofCaptureFileChunk, without data

	markGroup, markName   = 24, 40 // lengths of fields
	metadataID, logDomain = 40, 32
	filePath              = 256

	logCritical = 1 << 3 // G_LOG_LEVEL_CRITICAL
	logWarning  = 1 << 4 // G_LOG_LEVEL_WARNING
)

// frameHeader is the beginning of every frame, SysprofCaptureFrame.
type frameHeader struct {
	cpu  int16 // -1 for none
	pid  int32 // -1 for none
	time uint64
}

// frames are whole frames, one after the other, and at their end perhaps one that is not whole yet.
type frames struct{ buf []byte }

// open begins a frame and returns its offset.
func (f *frames) open(kind uint32, h frameHeader) (at int) {
	at = len(f.buf)
	f.buf = le.AppendUint16(f.buf, 0) // size
	f.buf = le.AppendUint16(f.buf, uint16(h.cpu))
	f.buf = le.AppendUint32(f.buf, uint32(h.pid))
	f.buf = le.AppendUint64(f.buf, h.time)
	f.buf = le.AppendUint32(f.buf, kind)
	f.buf = le.AppendUint32(f.buf, 0)
	return at
}

// close ends a frame. One that is too large is removed, and ok is false.
func (f *frames) close(at int) (ok bool) {
	for (len(f.buf)-at)%frameAlign != 0 {
		f.buf = append(f.buf, 0)
	}
	size := len(f.buf) - at
	if size > maxFrame {
		f.buf = f.buf[:at]
		return false
	}
	le.PutUint16(f.buf[at:], uint16(size))
	return true
}

// text appends a text that ends in a zero.
func (f *frames) text(s string) { f.buf = append(append(f.buf, human.Printable(s)...), 0) }

// field appends a text of a fixed length, zeros behind it.
func (f *frames) field(size int, s string) {
	at := len(f.buf)
	f.buf = append(f.buf, make([]byte, size)...)
	copy(f.buf[at:at+size-1], s)
}

// mapped appends the contents of a MAP frame. A build ID is written behind the file's name: "file\0@hex\0".
func (f *frames) mapped(start, end, offset, inode uint64, name string, buildID []byte) {
	for _, n := range []uint64{start, end, offset, inode} {
		f.buf = le.AppendUint64(f.buf, n)
	}
	f.text(name)
	if len(buildID) > 0 {
		f.buf = append(f.buf, '@')
		f.buf = append(hex.AppendEncode(f.buf, buildID), 0)
	}
}

// sampled appends the contents of a SAMPLE frame.
func (f *frames) sampled(tid uint32, addrs []uint64) {
	f.buf = le.AppendUint32(f.buf, uint32(len(addrs)))
	f.buf = le.AppendUint32(f.buf, tid)
	for _, a := range addrs {
		f.buf = le.AppendUint64(f.buf, a)
	}
}

// logged appends the contents of a LOG frame.
func (f *frames) logged(severity uint64, domain, message string) {
	f.buf = le.AppendUint64(f.buf, severity)
	f.field(logDomain, domain)
	f.text(message[:min(len(message), maxFrame/4)]) // a byte may become three bytes
}

// chunk appends the contents of a FILE_CHUNK frame.
func (f *frames) chunk(path string, data []byte, isLast bool) {
	last := uint16(0)
	if isLast {
		last = 1
	}
	f.buf = le.AppendUint16(f.buf, last)
	f.buf = le.AppendUint16(f.buf, uint16(len(data)))
	f.field(filePath, path)
	f.buf = append(f.buf, data...)
}

// header appends the file's header. The time of day is that of the start, zero where it is not known. Readers
// search for the end of a capture whose end is 0, before its start.
func (f *frames) header(day time.Time, start, end uint64) {
	f.buf = le.AppendUint32(f.buf, magic)
	f.buf = le.AppendUint32(f.buf, version|littleByte)
	var clock string
	if !day.IsZero() {
		clock = day.UTC().Format(time.RFC3339Nano)
	}
	f.field(headerClock, clock)
	f.buf = le.AppendUint64(f.buf, start)
	f.buf = le.AppendUint64(f.buf, end)
	f.buf = append(f.buf, make([]byte, headerSize-headerEnd-8)...)
}
