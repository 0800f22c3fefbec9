package unwind

import "encoding/binary"

// Stack is a bounded view of a sample's copy of the user stack.
type Stack struct {
	// Base is the address of the first byte: the sampled SP. The red zone
	// below it is not in the copy.
	Base uint64
	// Data is the copy, already cut to dyn_size. It points into the ring.
	Data []byte
	// Asked is how many bytes the kernel was to copy. It stops earlier at the
	// top of the stack, and at a page that is not there yet.
	Asked uint64
	// Thread is the TID of the thread whose stack it is, 0 when that is not known. The walk
	// makes use of the one before of the same thread.
	Thread uint32

	// What was read from the process of another stack, that the sampled one
	// had interrupted.
	live     []byte
	liveBase uint64
}

// holds says whether the copy has the byte at addr.
func (s *Stack) holds(addr uint64) bool { return addr-s.Base < uint64(len(s.Data)) }

// word reads the eight bytes at addr.
func (s *Stack) word(addr uint64) (uint64, bool) {
	off := addr - s.Base
	if uint64(len(s.Data)) < 8 || off > uint64(len(s.Data))-8 {
		return s.uint(addr, 8)
	}
	return binary.LittleEndian.Uint64(s.Data[off:]), true
}

// uint reads size bytes, 1 to 8, at addr as an unsigned integer.
func (s *Stack) uint(addr uint64, size int) (uint64, bool) {
	data, off := s.Data, addr-s.Base
	if !s.holds(addr) {
		data, off = s.live, addr-s.liveBase
	}
	if len(data) < size || off > uint64(len(data)-size) {
		return 0, false
	}
	var b [8]byte
	copy(b[:size], data[off:])
	return binary.LittleEndian.Uint64(b[:]), true
}

// miss says why a word at addr could not be read: the dump was too short, or
// no sane frame would have it there.
func (s *Stack) miss(addr uint64) Reason {
	const (
		farthest  = 1 << 30 // beyond the largest stacks in use
		nextFrame = 8 << 20 // the usual limit of a stack, and so of a frame: where a copy ended early
	)
	if addr < s.Base {
		// In the red zone, which is on the stack but not in the copy.
		if s.Base-addr <= 128 {
			return DumpTooShort
		}
		return BadCFI
	}
	off := addr - s.Base
	if off <= nextFrame || uint64(len(s.Data)) >= s.Asked && off <= farthest {
		return DumpTooShort
	}
	return BadCFI
}
