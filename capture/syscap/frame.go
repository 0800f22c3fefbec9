package syscap

import (
	"encoding/binary"
	"math"
	"strings"
	"time"
	"unicode"

	"unspool/capture/perfdata"
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

	logWarning = 1 << 4 // G_LOG_LEVEL_WARNING
)

// frameHeader is the beginning of every frame, SysprofCaptureFrame.
type frameHeader struct {
	cpu  int16 // -1 for none
	pid  int32 // -1 for none
	time uint64
}

// open begins a frame, which lies in w.buf from the offset that is returned.
func (w *Writer) open(kind uint32, h frameHeader) int {
	at := len(w.buf)
	if w.began {
		h.time = min(max(h.time, w.start), math.MaxInt64)
		w.end = max(w.end, h.time)
	}
	w.buf = le.AppendUint16(w.buf, 0) // size
	w.buf = le.AppendUint16(w.buf, uint16(h.cpu))
	w.buf = le.AppendUint32(w.buf, uint32(h.pid))
	w.buf = le.AppendUint64(w.buf, h.time)
	w.buf = le.AppendUint32(w.buf, kind)
	w.buf = le.AppendUint32(w.buf, 0)
	return at
}

// close ends a frame. The output gets whole frames, so that a capture that is cut short ends with one.
func (w *Writer) close(at int) {
	for (len(w.buf)-at)%frameAlign != 0 {
		w.buf = append(w.buf, 0)
	}
	size := len(w.buf) - at
	if size > maxFrame {
		w.buf = w.buf[:at]
		w.refused++
		return
	}
	le.PutUint16(w.buf[at:], uint16(size))
	if w.began && len(w.buf) >= 1<<18 {
		w.flush()
	}
}

func (w *Writer) flush() {
	if w.err == nil {
		_, w.err = w.out.Write(w.buf)
	}
	w.buf = w.buf[:0]
}

// text appends a text that ends in a zero.
func (w *Writer) text(s string) { w.buf = append(append(w.buf, printable(s)...), 0) }

// field appends a text of a fixed length, zeros behind it.
func (w *Writer) field(size int, s string) {
	at := len(w.buf)
	w.buf = append(w.buf, make([]byte, size)...)
	copy(w.buf[at:at+size-1], s)
}

// printable is a text without zeros, which would end it, and in valid UTF-8, as GTK demands.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// header writes the file's header. The recording may have the time of its last sample. Readers search for
// the end of a capture whose end is 0, before its start.
func (w *Writer) header() {
	w.buf = le.AppendUint32(w.buf, magic)
	w.buf = le.AppendUint32(w.buf, version|littleByte)
	var clock string
	if at := w.reader.WallClock(w.start); !at.IsZero() {
		clock = at.UTC().Format(time.RFC3339Nano)
	}
	w.field(headerClock, clock)
	w.buf = le.AppendUint64(w.buf, w.start)
	var end uint64
	if b := w.reader.Feature(perfdata.SampleTime); len(b) == 16 { // of the first and the last
		end = le.Uint64(b[8:])
	}
	w.buf = le.AppendUint64(w.buf, end)
	w.buf = append(w.buf, make([]byte, headerSize-headerEnd-8)...)
}
