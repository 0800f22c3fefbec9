package perfdata

import (
	"encoding/binary"

	"unspool/perfring"
	"unspool/unwind"
)

// A Walked is a sample on its way from the walk over its user stack to where it is written. All of it is
// valid during the call that hands it on only.
//
// A perf.data file has it as a SAMPLE record with the callchain in the place of registers and stack. What
// else is known has no field there, so:
//   - Bits 8 to 11 of the header's misc say why the walk ended: the [unwind.Reason] plus one, or 0 where
//     nothing is said. The kernel leaves these bits 0 (linux/perf_event.h gives PERF_RECORD_SAMPLE bits 0 to
//     2, 14 and 15), and readers mask them out. [End] reads them.
//   - A [Pair] is a second SAMPLE record behind the first, equal but for its callchain and these bits, which
//     are 0. The last entry of its callchain is no address: bit 0 is 1, so that it is no zero; bits 1 to 3
//     are the [unwind.FrameWalkEnd], bit 4 is Kernel, bit 5 is Agrees, and bits 8 and up are Reach.
//     [DecodePair] reads it.
type Walked struct {
	Record perfring.Record  // as it was sampled
	Format *perfring.Format // of Record
	Sample *perfring.Sample // what Record says
	// Chain is the callchain: what the kernel gave, PERF_CONTEXT_USER, and the addresses of the walk.
	Chain []uint64
	// Result is what the walk came to; nil where there was no user stack to walk.
	Result *unwind.Result
	// Pair is the other answer about this sample, where recordings are compared, else nil.
	Pair *Pair

	buf []byte
}

// A Pair is what frame pointers give for a sample. Recordings with pairs are for package compare alone, and
// temporary.
type Pair struct {
	// Chain is the callchain with the addresses that frame pointers lead to.
	Chain  []uint64
	End    unwind.FrameWalkEnd
	Kernel bool // the kernel's own chain; otherwise its walk was repeated on the copy
	Agrees bool // with Kernel: the repeated walk came to the same, as far as the copy went
	Reach  int  // bytes of stack, from SP up, in which the walk by CFI found everything; 0 when unknown
}

// NotCode stands in a pair for a word that frame pointers led to and that is no address of code: it is a
// piece of somebody's memory.
const NotCode = 1

const (
	endShift = 8
	endMask  = 0xf
)

// The reasons fit.
const _ = uint(endMask - unwind.NumReasons)

// Records hands the records of the sample to write, one after the other. The error is that of write, or
// [perfring.ErrTooLarge] for a callchain that fits no record.
func (w *Walked) Records(write func(rec []byte) error) error {
	rec, err := w.encode(w.Chain)
	if err != nil {
		return err
	}
	if w.Result != nil {
		setEnd(rec, w.Result.End)
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
	misc := binary.LittleEndian.Uint16(rec[4:])
	binary.LittleEndian.PutUint16(rec[4:], misc&^(endMask<<endShift)|uint16(r+1)<<endShift)
}

// End reads from a sample's misc why its walk ended. It is false where nothing is said, as in the recordings
// of other programs.
func End(misc uint16) (unwind.Reason, bool) {
	n := misc >> endShift & endMask
	return unwind.Reason(n - 1), n > 0 && n <= unwind.NumReasons
}

// encode is the last entry of the callchain.
func (p *Pair) encode() uint64 {
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
func DecodePair(w uint64) Pair {
	return Pair{End: unwind.FrameWalkEnd(w >> 1 & 7), Kernel: w>>4&1 != 0, Agrees: w>>5&1 != 0,
		Reach: int(w >> 8)}
}
