package session

import (
	"math/bits"
	"sync"
	"unsafe"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind"
)

// A Held is a record, or a sample with the result of its walk, that waits to be written. It is a copy, as
// what a session hands on is valid for the call only.
type Held struct {
	rec    []byte // for a sample without its registers and stack
	sample bool
	open   bool // the stack may still be completed
	class  int  // of heldPools

	walked perfdata.Walked
	fields perfring.Sample
	result unwind.Result
	pair   perfdata.PointerStack
}

// heldPools keep the memory for others of about the same size: less than 4, 16 and 64 KiB, and more. What had room for
// a deep stack would count as that, whatever it holds.
var heldPools [4]sync.Pool

// newHeld returns one that will take about size bytes.
func newHeld(size int) *Held {
	class := min((bits.Len(uint(size)>>12)+1)/2, len(heldPools)-1)
	if h, ok := heldPools[class].Get().(*Held); ok {
		return h
	}
	return &Held{class: class}
}

// HoldRecord copies a record.
func HoldRecord(rec []byte) *Held {
	h := newHeld(heldSize(len(rec), 0, 0))
	h.sample, h.open = false, false
	h.rec = append(h.rec[:0], rec...)
	return h
}

// HoldSample copies a sample. The callchain of its pair has room for the entry that encodes the pair.
func HoldSample(w *perfdata.Walked) *Held {
	frames := 0
	if w.Result != nil {
		frames = len(w.Result.Frames)
	}
	h := newHeld(heldSize(len(w.Record)-int(w.Sample.StackSize), len(w.Chain)+frames, frames))
	h.sample, h.open = true, isOpen(w)
	h.fields = *w.Sample
	h.rec = perfring.AppendWithoutUser(h.rec[:0], w.Record, &h.fields)
	t := &h.walked
	t.Record, t.Format, t.Sample = h.rec, w.Format, &h.fields
	t.Space, t.SpaceID, t.Place, t.Links = w.Space, w.SpaceID, w.Place, w.Links
	t.Chain = append(t.Chain[:0], w.Chain...)
	t.Result, t.Pair = nil, nil
	if w.Result != nil {
		h.result.IPs = append(h.result.IPs[:0], w.Result.IPs...)
		h.result.Frames = append(h.result.Frames[:0], w.Result.Frames...)
		h.result.End, h.result.Open = w.Result.End, w.Result.Open // At does not outlive changes of the table
		h.result.Within, h.result.CFA = w.Result.Within, w.Result.CFA
		h.result.Elsewhere = w.Result.Elsewhere
		t.Result = &h.result
	}
	if w.Pair != nil {
		chain := append(h.pair.Chain[:0], w.Pair.Chain...)
		h.pair = *w.Pair
		h.pair.Chain = append(chain, 0)[:len(chain)]
		t.Pair = &h.pair
	}
	return h
}

// free returns the memory to its pool, unless it has become much more.
func (h *Held) free() {
	h.walked.Space = nil
	if h.class == len(heldPools)-1 || h.size() < 4*(4<<10)<<(2*h.class) {
		heldPools[h.class].Put(h)
	}
}

// size is how much memory it takes, used or not.
func (h *Held) size() int {
	return heldSize(cap(h.rec), cap(h.walked.Chain)+cap(h.result.IPs)+cap(h.pair.Chain), cap(h.result.Frames))
}

// heldSize is how much memory something held takes, with room for so many bytes of a record, words of callchains and
// frames.
func heldSize(record, words, frames int) int {
	return int(unsafe.Sizeof(Held{})) + record + 8*words + int(unsafe.Sizeof(unwind.Frame{}))*frames
}
