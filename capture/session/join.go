package session

import (
	"runtime"
	"time"

	"unspool/capture/perfdata"
	"unspool/unwind"
	"unspool/unwind/link"
)

// A Joiner completes stacks that the copy has cut off, on the way from a session to its sink. It needs to see
// the stack again after the sample, so such a sample waits, and all records after it wait, too, to keep their
// order, unless the sink needs none. See package link.
type Joiner struct {
	sink Sink
	most int // frames of a stack
	// unordered means that the sink does without the order of time: only what may still be completed waits.
	Unordered bool

	log    link.Log
	queue  []*Held
	from   int            // where the queue begins
	bytes  int            // of the queue
	frames []link.Frame   // scratch
	wanted map[uint64]int // by address space: how many walks are to be logged for stacks that were cut
}

const (
	// joinBefore is how long before a sample its stack may have been seen.
	joinBefore = time.Second
	// JoinAfter is how long a sample waits for its stack to be seen again. JoinAfterRecorded is the same for
	// a recording, where waiting costs no time.
	JoinAfter         = 100 * time.Millisecond
	JoinAfterRecorded = 200 * time.Millisecond
	// helpersOfCut is how many walks of a process are logged for each of its stacks that is cut, and maxHelpers
	// how many at most wait to be: most processes have few such stacks, and a log of all walks would cost more
	// than these are worth.
	helpersOfCut = 24
	maxHelpers   = 10_000
	// maxLinks bounds the frames in the log, for each CPU: 4 MiB.
	maxLinks = 1 << 18
	// maxWaiting bounds the memory of the queue. Beyond it, samples wait for a shorter time.
	maxWaiting = 16 << 20
	// maxCutSpaces bounds the entries of wanted.
	maxCutSpaces = 4096
)

// NewJoiner returns a joiner in front of a sink, which is given stacks of most frames at most. A sample waits for
// another one of its stack for as long as after says.
func NewJoiner(sink Sink, most int, after time.Duration) *Joiner {
	return &Joiner{
		sink: sink, most: most,
		log: link.Log{
			Before: uint64(joinBefore), After: uint64(after), MaxFrames: maxLinks * runtime.NumCPU(),
		},
		wanted: make(map[uint64]int),
	}
}

// Write takes a record that is no sample.
func (j *Joiner) Write(rec []byte) error {
	if j.waits() && !j.Unordered {
		return j.hold(HoldRecord(rec))
	}
	return j.sink.Write(rec)
}

// WriteSample takes a sample.
func (j *Joiner) WriteSample(w *perfdata.Walked) error {
	if w.Space != nil {
		if err := j.seen(w); err != nil {
			return err
		}
	}
	if !isOpen(w) && (j.Unordered || !j.waits()) {
		return j.sink.WriteSample(w)
	}
	return j.hold(HoldSample(w))
}

// Take is Write or WriteSample for what is held already.
func (j *Joiner) Take(h *Held) error {
	if h.sample && h.walked.Space != nil {
		if err := j.seen(&h.walked); err != nil {
			return err
		}
	}
	return j.hold(h)
}

// isOpen reports whether a sample's stack was cut off and may be completed.
func isOpen(w *perfdata.Walked) bool {
	return w.Result != nil && w.Result.Open > 0 && w.Space != nil && w.Sample.Time != 0
}

// seen logs the links that the walk of a sample shows, and hands on what need not wait any more.
func (j *Joiner) seen(w *perfdata.Walked) error {
	if w.Result == nil || w.Sample.Time == 0 {
		return nil
	}
	now := w.Sample.Time
	if err := j.settle(now); err != nil { // before the links that they need are forgotten
		return err
	}
	if isOpen(w) {
		j.cut(w.SpaceID)
	}
	if j.mayHelp(w) {
		j.frames = w.Result.Links(&j.log, w.SpaceID, now, j.frames)
	}
	return nil
}

// mayHelp reports whether there may be a stack that the links of a walk complete: where stacks are cut, as
// often as they are, and where they are so deep that the next one may be. How much was copied does not say
// how deep a stack is: the copy goes on above the first frame of a thread.
func (j *Joiner) mayHelp(w *perfdata.Walked) bool {
	space := w.SpaceID
	n := j.wanted[space]
	if n > 1 {
		j.wanted[space] = n - 1
	} else if n == 1 {
		delete(j.wanted, space)
	}
	return n > 0 || 2*w.Result.Depth() >= w.Sample.StackSize
}

// cut notes that a stack of an address space was cut.
func (j *Joiner) cut(space uint64) {
	n, known := j.wanted[space]
	if !known && len(j.wanted) >= maxCutSpaces {
		clear(j.wanted)
	}
	j.wanted[space] = min(n+helpersOfCut, maxHelpers)
}

// waits reports whether something waits, so that later records have to wait, too.
func (j *Joiner) waits() bool { return j.from < len(j.queue) }

// hold puts a record into the queue, or hands it on if it need not wait.
func (j *Joiner) hold(h *Held) error {
	if !h.open && !j.waits() {
		return j.release(h)
	}
	if len(j.queue) == cap(j.queue) && j.from > len(j.queue)/2 {
		n := copy(j.queue, j.queue[j.from:])
		clear(j.queue[n:])
		j.queue, j.from = j.queue[:n], 0
	}
	j.queue = append(j.queue, h)
	j.bytes += h.size()
	if j.bytes > maxWaiting {
		return j.settle(0)
	}
	return nil
}

// settle hands on what has waited long enough at the time now, or exceeds maxWaiting.
func (j *Joiner) settle(now uint64) error {
	for j.waits() {
		h := j.queue[j.from]
		if h.open && now < h.fields.Time+j.log.After && j.bytes <= maxWaiting {
			return nil
		}
		j.queue[j.from] = nil
		j.from++
		j.bytes -= h.size()
		if err := j.release(h); err != nil {
			return err
		}
	}
	return nil
}

// Flush hands on everything, as nothing that comes later can complete it.
func (j *Joiner) Flush() error { return j.settle(^uint64(0)) }

// release hands on a record, completed if it is open and that is possible.
func (j *Joiner) release(h *Held) error {
	defer h.free()
	if !h.sample {
		return j.sink.Write(h.rec)
	}
	if h.open {
		j.complete(h)
	}
	return j.sink.WriteSample(&h.walked)
}

// complete joins the callers to a cut stack if they are known.
func (j *Joiner) complete(h *Held) {
	w, res := &h.walked, &h.result
	j.frames, w.Links = res.Join(&j.log, w.SpaceID, w.Sample.Time, j.most, j.frames)
	if w.Links.IsJoined() {
		w.Chain = unwind.Splice(w.Chain[:0], w.Sample.Callchain.Len(), w.Sample.Callchain.At, res.IPs)
	}
	res.Conclude()
}
