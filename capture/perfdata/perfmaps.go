package perfdata

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"unspool/unwind/jit/perfmap"

	"github.com/klauspost/compress/zstd"
)

// A recording keeps the perf maps of processes that were sampled: names of generated code are nowhere else when such a
// process and its root are gone. They are at the end of the file, behind everything that the header tells of, where
// other readers do not look. They are no feature: perf inject ends by SIGSEGV at one that it does not know (feat_ops in
// tools/perf/util/header.c has no entry for it). A pipe does not have them. Of each perf map there are
//
//	u64 time    ns; the process lived then, and had its PID
//	u32 pid     as the records have it
//	u32 number  the PID that the process saw, which is in the name of the file
//	u64 size    of what follows
//	            the map: lines, in a zstd frame
//
// and behind all of them
//
//	u64 size    of them all
//	            perfMapsMagic
const (
	perfMapsMagic = "unspool perfmaps"
	perfMapsTail  = 8 + len(perfMapsMagic)
	perfMapHead   = 8 + 4 + 4 + 8
	// mostPerfMaps and maxPerfMaps bound how many are read, and their bytes; maxPerfMap is for one, not compressed.
	mostPerfMaps = 1 << 12
	maxPerfMaps  = 64 << 20
	maxPerfMap   = 64 << 20
	perfMapLevel = zstd.SpeedDefault
)

// A PerfMap is a perf map that a recording keeps.
type PerfMap struct {
	Time        uint64
	PID, Number uint32
	Packed      []byte // see PackPerfMap
}

// appendPerfMaps encodes perf maps, if there are any.
func appendPerfMaps(b []byte, maps []PerfMap) []byte {
	if len(maps) == 0 {
		return b
	}
	before := len(b)
	for i := range maps {
		m := &maps[i]
		b = le.AppendUint64(b, m.Time)
		b = le.AppendUint32(b, m.PID)
		b = le.AppendUint32(b, m.Number)
		b = le.AppendUint64(b, uint64(len(m.Packed)))
		b = append(b, m.Packed...)
	}
	b = le.AppendUint64(b, uint64(len(b)-before))
	return append(b, perfMapsMagic...)
}

// PerfMaps returns the perf maps that the recording keeps, nil for none.
func (r *Reader) PerfMaps() (maps []PerfMap) {
	tail := make([]byte, perfMapsTail)
	if r.at == nil || r.at.Size() < headerSize+int64(len(tail)) {
		return nil
	}
	end := r.at.Size() - int64(len(tail))
	if _, err := r.at.ReadAt(tail, end); err != nil || string(tail[8:]) != perfMapsMagic {
		return nil
	}
	size := le.Uint64(tail)
	if size > maxPerfMaps || size > uint64(end) {
		return nil
	}
	b := make([]byte, size)
	if n, _ := r.at.ReadAt(b, end-int64(size)); n < len(b) {
		return nil
	}
	for len(b) >= perfMapHead && len(maps) < mostPerfMaps {
		m := PerfMap{Time: le.Uint64(b), PID: le.Uint32(b[8:]), Number: le.Uint32(b[12:])}
		size := le.Uint64(b[16:])
		if b = b[perfMapHead:]; size > uint64(len(b)) {
			break
		}
		m.Packed, b = b[:size:size], b[size:]
		maps = append(maps, m)
	}
	return maps
}

// ErrLongPerfMap is about a perf map of which not everything is kept.
var ErrLongPerfMap = fmt.Errorf("more than %d MiB", maxPerfMap>>20)

// PackPerfMap compresses the lines of a perf map, and nothing else that a file of its name may hold. With an error,
// what it returns are the lines before. most bounds the result.
func PackPerfMap(r io.Reader, most int) (packed []byte, err error) {
	var b bytes.Buffer
	enc, err := zstd.NewWriter(&b, zstd.WithEncoderLevel(perfMapLevel), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	const atOnce = 128 << 10
	lines, size := make([]byte, 0, 2*atOnce), 0
	put := func() error {
		_, err := enc.Write(lines)
		lines = lines[:0]
		return err
	}
	err = perfmap.Read(r, func(addr, length uint64, name []byte) error {
		before := len(lines)
		lines = perfmap.Append(lines, addr, length, name)
		if size += len(lines) - before; size > maxPerfMap || b.Len() > most {
			lines = lines[:before]
			return ErrLongPerfMap
		}
		if len(lines) < atOnce {
			return nil
		}
		return put()
	})
	err = errors.Join(err, put(), enc.Close())
	if size == 0 || b.Len() > most {
		return nil, err
	}
	return b.Bytes(), err
}

// Open decompresses the map. The caller closes it.
func (m *PerfMap) Open() (io.ReadCloser, error) {
	dec, err := zstd.NewReader(bytes.NewReader(m.Packed), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(dec, maxPerfMap), dec.IOReadCloser()}, nil
}
