package perfdata

import (
	"bytes"
	"fmt"
	"io"

	"unspool/perfring"
)

// scanner cuts a stream into records. It reads blocks, and never waits for more than the record that is asked
// for, because a pipe may stall. A record is not copied: it is in its block, which is reused when no record
// in it is held any more.
type scanner struct {
	in      io.Reader
	block   *block
	pool    *pool
	lo, hi  int    // what has been read into the block and not used
	at      int64  // offset in the recording of block.data[lo]
	left    int64  // bytes of the data section from there on; negative: to the end of the stream
	pending uint64 // bytes to skip before the next record
}

// maxType is far above the types that the kernel (22) and perf (84) have come to; they begin with 1. What has
// another one is no record: the size of the one before was wrong, and these bytes may be those of a stack.
const maxType = 1023

// checkHeader refuses what cannot be the header of a record.
func checkHeader(head perfring.Record) error {
	if size := head.Size(); size < recordHeader {
		return fmt.Errorf("%s record of %d bytes", head.Type(), size)
	}
	if t := head.Type(); t == 0 || t > maxType {
		return fmt.Errorf("record of an unknown type, %#x", uint32(t))
	}
	return nil
}

func newScanner(p *pool, in io.Reader, at, length int64) scanner {
	return scanner{in: in, pool: p, block: p.take(), at: at, left: length}
}

// close gives up the block: no record follows. Those that are held stay valid as long as the pool.
func (s *scanner) close() {
	if b := s.block; b.filling {
		b.filling = false
		if b.holds == 0 {
			s.pool.free = append(s.pool.free, b)
		}
	}
	s.block, s.lo, s.hi, s.left, s.pending = new(block), 0, 0, 0, 0
}

// offset returns the offset of the next record.
func (s *scanner) offset() int64 { return s.at }

// hold keeps the records of the block that was last read from until release.
func (s *scanner) hold() *block {
	s.block.holds++
	return s.block
}

// release gives a block back, once for each hold. It may be one of another scanner with the same pool.
func (s *scanner) release(b *block) {
	if b.holds--; b.holds == 0 && !b.filling {
		s.pool.free = append(s.pool.free, b)
	}
}

// compact moves what has not been used to the beginning of a block that nobody holds.
func (s *scanner) compact() {
	rest := s.block.data[s.lo:s.hi]
	if s.block.holds > 0 {
		s.block.filling = false
		s.block = s.pool.take()
	}
	s.lo, s.hi = 0, copy(s.block.data, rest)
}

// fill makes sure that n bytes are in the block; n is at most perfring.MaxRecordSize. At the end of the
// stream the error is io.EOF if no bytes are left, and errEndsEarly if there are fewer.
func (s *scanner) fill(n int) error {
	if s.left >= 0 && int64(n) > s.left {
		if s.left == 0 {
			return io.EOF
		}
		return errEndsEarly
	}
	if s.hi-s.lo >= n {
		return nil
	}
	// A read from a pipe may return few bytes, so a block is used up to its end. A file fills it.
	if s.lo+n > blockSize || s.hi == blockSize || s.lo == s.hi && s.block.holds == 0 {
		s.compact()
	}
	for idle := 0; s.hi-s.lo < n; {
		m, err := s.in.Read(s.block.data[s.hi:])
		s.hi += m
		switch {
		case s.hi-s.lo >= n:
		case err == io.EOF && s.hi == s.lo && s.left < 0:
			return io.EOF
		case err != nil:
			return noEOF(err)
		case m == 0:
			if idle++; idle == 100 {
				return io.ErrNoProgress
			}
		default:
			idle = 0
		}
	}
	return nil
}

// use returns n bytes that fill has provided, and goes on behind them.
func (s *scanner) use(n int) []byte {
	b := s.block.data[s.lo : s.lo+n : s.lo+n]
	s.lo += n
	s.at += int64(n)
	if s.left >= 0 {
		s.left -= int64(n)
	}
	return b
}

// record returns the next record, which is valid until the next call unless its block is held. The error is
// io.EOF behind the last one.
func (s *scanner) record() ([]byte, error) {
	for s.pending > 0 {
		if _, err := s.payload(); err != nil {
			return nil, err
		}
	}
	if err := s.fill(recordHeader); err != nil {
		return nil, err
	}
	head := perfring.Record(s.block.data[s.lo:s.hi])
	if err := checkHeader(head); err != nil {
		return nil, err
	}
	size := head.Size()
	if err := s.fill(size); err != nil {
		return nil, noEOF(err)
	}
	return s.use(size), nil
}

// payload returns some of the bytes that are to be skipped before the next record.
func (s *scanner) payload() ([]byte, error) {
	n := int(min(s.pending, blockSize/4))
	if err := s.fill(n); err != nil {
		return nil, noEOF(err)
	}
	s.pending -= uint64(n)
	return s.use(n), nil
}

// take returns a copy of the next n bytes. Memory is allocated as they arrive.
func (s *scanner) take(n uint64) ([]byte, error) {
	if n > maxFeature {
		return nil, fmt.Errorf("%d bytes of tracing data", n)
	}
	var b bytes.Buffer
	for n > 0 {
		part := int(min(n, blockSize/4))
		if err := s.fill(part); err != nil {
			return nil, noEOF(err)
		}
		b.Write(s.use(part))
		n -= uint64(part)
	}
	return b.Bytes(), nil
}
