package symbols

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/mikelolasagasti/xz"
)

// maxDictionary is the size that xz uses at its highest level.
const maxDictionary = 64 << 20

// unpackXZ unpacks at most limit bytes; more is an error.
func unpackXZ(packed []byte, limit int64) ([]byte, error) {
	packed, dictionary := lowerDictionary(packed, limit)
	r, err := xz.NewReader(bytes.NewReader(packed), dictionary)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("more than %d bytes from %d: %w", limit, len(packed), errOver)
	}
	return data, nil
}

// lowerDictionary bounds the dictionary, which is allocated at once, by the data that may be unpacked. xz
// asks for as much as its level says, 64 MiB for a file of a few bytes; a dictionary that holds all of the
// data does the same. It returns a copy whose first block asks for no more, and what later blocks, which
// follow a lot of data, may ask for. The format: xz-file-format.txt of XZ Utils, 3.1 Block Header and 5.3.1
// LZMA2.
func lowerDictionary(packed []byte, limit int64) (lowered []byte, dictionary uint32) {
	const (
		header  = 12 // of the stream
		lzma2   = 0x21
		largest = 40
	)
	props := byte(0)
	size := func(props byte) int64 { return (2 | int64(props&1)) << (props/2 + 11) }
	for props < largest && size(props) < min(limit, maxDictionary) {
		props++
	}
	dictionary = uint32(min(size(props), maxDictionary))
	if len(packed) <= header || packed[header] == 0 {
		return packed, dictionary
	}
	end := header + 4*int(packed[header]) // of the block header, without its sum
	if end+4 > len(packed) {
		return packed, dictionary
	}
	flags, at := packed[header+1], header+2
	number := func() uint64 {
		n, size := binary.Uvarint(packed[at:end])
		if at += size; size <= 0 {
			at = end
		}
		return n
	}
	for _, given := range []byte{0x40, 0x80} { // the sizes of the block, packed and not
		if flags&given != 0 {
			number()
		}
	}
	for range flags&3 + 1 {
		id, n := number(), number()
		if n > uint64(end-at) {
			break
		}
		if id == lzma2 && n == 1 && packed[at] > props && packed[at] <= largest &&
			size(packed[at]) <= maxDictionary {
			sum := binary.LittleEndian.Uint32(packed[end:])
			if crc32.ChecksumIEEE(packed[header:end]) != sum {
				break // it is damaged, which is said later
			}
			packed = bytes.Clone(packed)
			packed[at] = props
			binary.LittleEndian.PutUint32(packed[end:], crc32.ChecksumIEEE(packed[header:end]))
			break
		}
		at += int(n)
	}
	return packed, dictionary
}
