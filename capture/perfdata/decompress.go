package perfdata

import (
	"errors"
	"fmt"
	"iter"

	"unspool/perfring"

	"github.com/klauspost/compress/zstd"
)

// decompressor takes records out of the payloads of COMPRESSED records. perf opens one zstd frame
// that spans all of them and never ends; each payload then is a run of blocks that need those before.
// Independent frames are the simple case of the same stream. A record may begin in one payload and
// end in the next.
//
// The zstd decoder reads its input itself. But here each payload has to be used up before the next record of
// the file is read, as that record need not be a compressed one. So the decoder runs as a coroutine, which
// either hands out a block or asks for a payload. Memory is bounded by zstd's window, however much a payload
// expands to.
type decompressor struct {
	payload []byte // what the decoder has not taken yet
	at      int64  // offset of the record that it came from
	block   []byte // decompressed, in the decoder's window: valid until the next block
	rest    []byte // the beginning of a record whose end has not been seen
	given   bool   // rest is a whole record and has been returned
	inUse   bool   // the record that the reader returned last came from here
	next    func() ([]byte, bool)
	stop    func()
	err     error // of the decoder
}

var errClosed = errors.New("closed")

// newDecompressor returns a decompressor for data of a compression level, 0 if that is not known, one of so many
// that are in use together. Only levels above 19 need a window of more than 8 MiB, and the usual one needs
// half a MiB.
func newDecompressor(level uint32, together int) (*decompressor, error) {
	window := uint64(8 << 20)
	if level > 19 {
		window = 128 << 20
	}
	window = min(window, maxWindows/uint64(max(1, together)))
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	d := &decompressor{}
	d.next, d.stop = iter.Pull(func(yield func([]byte) bool) {
		defer dec.Close()
		// A nil block means that the decoder needs a payload.
		in := readerFunc(func(p []byte) (int, error) {
			for len(d.payload) == 0 {
				if !yield(nil) {
					return 0, errClosed
				}
			}
			n := copy(p, d.payload)
			d.payload = d.payload[n:]
			return n, nil
		})
		out := writerFunc(func(p []byte) (int, error) {
			if !yield(p) {
				return 0, errClosed
			}
			return len(p), nil
		})
		if d.err = dec.Reset(in); d.err == nil {
			// WriteTo passes each block on before it reads the next.
			_, d.err = dec.WriteTo(out)
		}
	})
	return d, nil
}

// maxWindows bounds the windows of all decompressors of a directory together.
const maxWindows = 1 << 30

// close ends the coroutine.
func (d *decompressor) close() { d.stop() }

// record returns the next record, nil when the payload is used up. It is valid until the next call.
func (d *decompressor) record() (perfring.Record, error) {
	if d.given {
		d.rest, d.given = d.rest[:0], false
	}
	for {
		if len(d.rest) == 0 {
			size, err := recordSize(d.block)
			if err != nil {
				return nil, err
			}
			if size <= len(d.block) {
				rec := perfring.Record(d.block[:size:size])
				d.block = d.block[size:]
				return rec, nil
			}
		}
		// The record goes on in the next block, or it came from the last one.
		for len(d.block) > 0 {
			size, err := recordSize(d.rest)
			if err != nil {
				return nil, err
			}
			if size > len(d.rest) {
				n := min(len(d.block), size-len(d.rest))
				d.rest = append(d.rest, d.block[:n]...)
				d.block = d.block[n:]
				continue
			}
			break
		}
		if size, err := recordSize(d.rest); err != nil {
			return nil, err
		} else if size <= len(d.rest) {
			d.given = true
			return perfring.Record(d.rest), nil
		}
		block, ok := d.next()
		if !ok {
			return nil, fmt.Errorf("zstd: %w", d.end())
		}
		if block == nil {
			return nil, nil
		}
		d.block = block
	}
}

// recordSize returns the size of the record at the beginning of b; as long as its header is not complete, the
// size of a header.
func recordSize(b []byte) (int, error) {
	if len(b) < recordHeader {
		return recordHeader, nil
	}
	head := perfring.Record(b)
	if err := checkHeader(head); err != nil {
		return 0, fmt.Errorf("%w, in compressed data", err)
	}
	switch t := head.Type(); t {
	case perfring.RecordCompressed, perfring.RecordCompressed2, perfring.RecordAuxtrace:
		// perf compresses what it reads from the rings. What these announce would not be behind them.
		return 0, fmt.Errorf("%s record in compressed data", t)
	}
	return head.Size(), nil
}

// end returns why the decoder gave up.
func (d *decompressor) end() error {
	if d.err == nil {
		return errEndsEarly
	}
	return noEOF(d.err)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
