package perfdata

import (
	"encoding/binary"

	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/link"
	"unspool/vmas"
)

// A Walked is a sample whose user stack was walked, on its way to the outputs. All of it is valid only
// during the call that hands it on.
//
// In a perf.data file it is a SAMPLE record with the callchain in the place of registers and stack. There is
// no field for the rest, so:
//   - Bits 8 to 11 of the header's misc say why the walk ended: the [unwind.Reason] plus one, or 0 where
//     nothing is said. The kernel leaves these bits 0 (linux/perf_event.h gives PERF_RECORD_SAMPLE bits 0 to
//     2, 14 and 15), and readers mask them out. [End] reads them.
//   - Bit 12 says that the stack was completed by what was seen of it before the sample and after it, and not
//     by its own copy alone: see package link. [IsJoined] reads it. Bit 13 says beside it that a part of what
//     was seen was read from the process: [IsRead] reads it.
//   - A [PointerStack] is a second SAMPLE record behind the first, equal except for its callchain and these bits,
//     which are 0. The last entry of its callchain is not an address: bit 0 is 1, so that the entry is not
//     zero; bits 1 to 3 are the [unwind.FrameWalkEnd], bit 4 is Kernel, bit 5 is Agrees, and bits 8 and up
//     are Reach. [DecodePair] reads it.
type Walked struct {
	Record perfring.Record        // as it was sampled
	Format *perfring.SampleFormat // of Record
	Sample *perfring.Sample       // Record, decoded
	// Chain is the callchain: the kernel's part, PERF_CONTEXT_USER, and the addresses of the walk.
	Chain []uint64
	// Result is the result of the walk; nil if there was no user stack to walk.
	Result *unwind.Result
	// Space is the address space that the walk was in; nil where none is known. Its ID was SpaceID, 0 where it
	// is not known: a sample may be handed on when the process has executed another program.
	Space   *vmas.Space
	SpaceID uint64
	// Place is the file in which an incomplete walk ended, or says why it is none.
	Place string
	// Links is what was found of the callers of a stack that the copy cuts off, if that was looked for.
	Links link.LookupOutcome
	// Pair is the stack by frame pointers if the two are to be compared, else nil.
	Pair *PointerStack

	buf []byte
}

// A PointerStack is the result of frame pointers for a sample. Recordings with pairs are temporary, and used only by
// package compare.
type PointerStack struct {
	// Chain is the callchain with the addresses that frame pointers lead to.
	Chain  []uint64
	End    unwind.FrameWalkEnd
	Kernel bool // the kernel's own chain; otherwise its walk was repeated on the copy
	Agrees bool // with Kernel: the repeated walk had the same result, as far as the copy went
	Reach  int  // bytes of stack, from SP up, that the walk by CFI needed; 0 if unknown
}

// NotCode takes the place in a pair of a word that frame pointers led to and that is not an address of code,
// as that word is data of the sampled process.
const NotCode = 1

const (
	endShift = 8
	endMask  = 0xf

	joinedBit = 1 << 12
	readBit   = 1 << 13
)

// All reasons fit into the bits.
const _ = uint(endMask - unwind.NumReasons)

// Records calls write with the records of the sample, one after the other. The error is that of write, or
// [perfring.ErrTooLarge] for a callchain that does not fit into a record.
func (w *Walked) Records(write func(rec []byte) error) error {
	rec, err := w.encode(w.Chain)
	if err != nil {
		return err
	}
	if w.Result != nil {
		setEnd(rec, w.Result.End)
		setJoined(rec, w.Links)
	}
	if err := write(rec); err != nil || w.Pair == nil {
		return err
	}
	rec, err = w.encode(append(w.Pair.Chain, w.Pair.encode()))
	if err != nil {
		return nil // it is counted as a sample without its pair
	}
	return write(rec)
}

// encode returns the record with a callchain in the place of registers and stack.
func (w *Walked) encode(chain []uint64) ([]byte, error) {
	rec, err := w.Format.AppendUnwound(w.buf[:0], w.Record, w.Sample, chain)
	if err == nil {
		w.buf = rec
	}
	return rec, err
}

// setEnd stores in a sample's record why its walk ended.
func setEnd(rec []byte, r unwind.Reason) {
	misc := binary.LittleEndian.Uint16(rec[4:]) &^ (endMask << endShift)
	binary.LittleEndian.PutUint16(rec[4:], misc|uint16(r+1)<<endShift)
}

// setJoined stores in a sample's record whether its stack was completed from others, and from which.
func setJoined(rec []byte, o link.LookupOutcome) {
	misc := binary.LittleEndian.Uint16(rec[4:]) &^ (joinedBit | readBit)
	switch o {
	case link.Joined:
		misc |= joinedBit
	case link.Read:
		misc |= joinedBit | readBit
	}
	binary.LittleEndian.PutUint16(rec[4:], misc)
}

// IsJoined reads from a sample's misc whether its stack was completed from others.
func IsJoined(misc uint16) bool {
	_, walked := End(misc)
	return walked && misc&joinedBit != 0
}

// IsRead reads from the misc of a sample that is joined whether what it was completed from was partly read
// from the process.
func IsRead(misc uint16) bool { return IsJoined(misc) && misc&readBit != 0 }

// End reads from a sample's misc why its walk ended. It is false if that is not there, as in the recordings
// of other programs.
func End(misc uint16) (unwind.Reason, bool) {
	n := misc >> endShift & endMask
	return unwind.Reason(n - 1), n > 0 && n <= unwind.NumReasons
}

// encode is the last entry of the callchain.
func (p *PointerStack) encode() uint64 {
	w := uint64(1) | uint64(p.End)<<1 | uint64(p.Reach)<<8
	if p.Kernel {
		w |= 1 << 4
	}
	if p.Agrees {
		w |= 1 << 5
	}
	return w
}

// DecodePair reads the last entry of a pair's callchain.
func DecodePair(w uint64) PointerStack {
	return PointerStack{End: unwind.FrameWalkEnd(w >> 1 & 7), Kernel: w>>4&1 != 0, Agrees: w>>5&1 != 0,
		Reach: int(w >> 8)}
}
