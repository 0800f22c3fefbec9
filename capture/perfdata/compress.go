package perfdata

import (
	"fmt"

	"unspool/perfring"

	"github.com/klauspost/compress/zstd"
)

// compressor packs records into COMPRESSED records. Each payload is a zstd frame of its own that
// holds whole records, so that every one of them can be read without those before it.
//
// perf record instead keeps one frame open from the first record to the last. perf reads
// both, as its decompressor goes on with the next frame when one has ended.
type compressor struct {
	enc     *zstd.Encoder
	level   int
	frame   []byte // reused
	in, out int64  // bytes before and after
}

// compressChunk is how many bytes a payload holds at most after decompression. perf allocates a buffer
// of the length in the COMPRESSED feature (perf record writes the ring's length there) for each payload,
// and keeps it until the end.
const compressChunk = 256 << 10

// maxLevel is zstd's highest level.
const maxLevel = 22

func newCompressor(level int) (*compressor, error) {
	if level < 1 || level > maxLevel {
		return nil, fmt.Errorf("compression level %d is not between 1 and %d", level, maxLevel)
	}
	enc, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)),
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), // nor does perf
		zstd.WithWindowSize(compressChunk),
		zstd.WithSingleSegment(true))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return &compressor{enc: enc, level: level}, nil
}

// append packs records, whole and at most compressChunk bytes of them, and appends the result to b.
func (c *compressor) append(b, records []byte) []byte {
	if len(records) == 0 {
		return b
	}
	c.frame = c.enc.EncodeAll(records, c.frame[:0])
	if recordHeader+len(c.frame) <= perfring.MaxRecordSize {
		b = appendHeader(b, perfring.RecordCompressed, 0, recordHeader+len(c.frame))
		c.in += int64(len(records))
		c.out += int64(recordHeader + len(c.frame))
		return append(b, c.frame...)
	}
	// The result is too long for the size field: compress two halves, or append a single record as it is.
	mid := 0
	for mid < len(records)/2 {
		mid += int(le.Uint16(records[mid+6:]))
	}
	if mid == len(records) {
		mid -= c.lastSize(records)
	}
	if mid == 0 {
		c.in += int64(len(records))
		c.out += int64(len(records))
		return append(b, records...)
	}
	return c.append(c.append(b, records[:mid]), records[mid:])
}

// lastSize returns the size of the last of the records.
func (c *compressor) lastSize(records []byte) (size int) {
	for at := 0; at < len(records); at += size {
		size = int(le.Uint16(records[at+6:]))
	}
	return size
}

// feature encodes the COMPRESSED feature, without which perf does not read compressed records.
func (c *compressor) feature() feature {
	ratio := int64(1)
	if c.out > 0 {
		ratio = max(1, c.in/c.out)
	}
	const version, typeZstd = 0, 1 // perf writes version 0, and Hotspot knows no other
	var b []byte
	for _, x := range []uint32{version, typeZstd, uint32(c.level), uint32(ratio), compressChunk} {
		b = le.AppendUint32(b, x)
	}
	return feature{Compressed, b}
}
