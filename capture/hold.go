package capture

import (
	"sync"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind"
)

// A held is a record, or a sample with the result of its walk, that waits to be written. It is a copy, as
// what a session hands on is valid for the call only.
type held struct {
	rec    []byte // for a sample without its registers and stack
	sample bool
	open   bool // the stack may still be completed

	walked perfdata.Walked
	fields perfring.Sample
	result unwind.Result
	pair   perfdata.Pair
}

var heldPool = sync.Pool{New: func() any { return new(held) }}

// holdRecord copies a record.
func holdRecord(rec []byte) *held {
	h := heldPool.Get().(*held)
	h.sample, h.open = false, false
	h.rec = append(h.rec[:0], rec...)
	return h
}

// holdSample copies a sample. The callchain of its pair has room for the entry that encodes the pair.
func holdSample(w *perfdata.Walked) *held {
	h := heldPool.Get().(*held)
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

// free returns the memory to the pool.
func (h *held) free() {
	h.walked.Space = nil
	heldPool.Put(h)
}

// size is roughly how much memory it takes.
func (h *held) size() int {
	n := len(h.rec)
	if h.sample {
		n += 8*len(h.walked.Chain) + 48*len(h.result.IPs)
	}
	return n
}
