package session

import (
	"errors"
	"time"

	"unspool/capture/rights/rest"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/link"
)

// A restReader completes stacks that the copy cuts off with what was read of them when they were sampled: see
// package rest. Each sample of the machine wakes a thread for that, so it is done only as long as many stacks
// are cut off; otherwise, package link completes what it can.
type restReader struct {
	source *perfring.Source
	stacks map[int]*rest.Stacks // by CPU

	every time.Duration // the rings have to be drained while it is on, 0 if they wake whoever waits
	on    bool

	programs cutShares

	newWishes bool // something is to be read that was not, since the session was last asked
}

const (
	// smallCopy is how many bytes are copied at most for the rest to be read from the beginning: of larger copies few
	// are cut off.
	smallCopy = 48 << 10

	// A frame of so many bytes is not read, but for the savedRegs bytes below its CFA, where the registers of its caller
	// are.
	skippedFrame = 64 << 10
	savedRegs    = 256

	// leastQuiet is how long the rings have to take to be a quarter full for them to be looked at by the clock.
	leastQuiet = 20 * time.Millisecond
)

// A RingReader reads stacks when they are sampled: the opener.
type RingReader interface {
	ReadRing(ring *perfring.SampleRing) (stacks *rest.Stacks, tid int, err error)
}

// newRestReader begins to read the stacks of the samples in all rings. It returns nil where that is not possible.
func newRestReader(source *perfring.Source, from RingReader) *restReader {
	r := &restReader{source: source, stacks: make(map[int]*rest.Stacks)}
	rings := source.SampleRings()
	for i := range rings {
		ring := &rings[i]
		if r.stacks[ring.CPU] != nil {
			continue // events of tasks that somebody else has opened besides those of CPUs
		}
		stacks, tid, err := from.ReadRing(ring)
		if err == nil {
			err = source.SignalTo(ring.CPU, tid, rest.Signal)
		}
		if err == nil {
			r.stacks[ring.CPU] = stacks
		}
	}
	if len(r.stacks) == 0 {
		return nil
	}
	if every := source.QuarterFull(); every >= leastQuiet {
		r.every = every
	}
	if err := r.turn(source.StackSize() <= smallCopy); err != nil {
		return nil
	}
	return r
}

func (r *restReader) turn(on bool) error {
	r.on = on
	return r.source.Signal(on, r.every > 0)
}

// readNow begins to read at once, which ends as ever where few stacks are cut off.
func (r *restReader) readNow() {
	if r == nil || r.on {
		return
	}
	r.programs = cutShares{}
	if err := r.turn(true); err != nil {
		r.on = false
	}
}

// drainEvery is how often the rings have to be drained, at least: otherwise as often as told.
func (r *restReader) drainEvery(usual time.Duration) time.Duration {
	if r == nil || !r.on || r.every == 0 {
		return usual
	}
	return min(usual, r.every)
}

// completes reports whether the stacks of a program are completed by reading: then nothing waits for links. Without
// real-time priority, a part is not read.
func (r *restReader) completes(space uint64) bool {
	return r != nil && r.on && r.programs.by[space] != nil && r.programs.by[space].isRead()
}

// errRestHangs is about stacks that somebody keeps from being read.
var errRestHangs = errors.New("memory: a read hangs, and until it ends, no other stacks are read " +
	"when they are sampled on the same CPU")

// hangs reports whether any read hangs at a time.
func (r *restReader) hangs(now uint64) bool {
	for _, s := range r.stacks {
		if s.Hangs(now) {
			return true
		}
	}
	return false
}

// settle ends a drain, and turns it on or off.
func (r *restReader) settle() (err error) {
	for _, s := range r.stacks {
		s.Release()
	}
	if on := r.programs.want(r.on); on != r.on {
		err = r.turn(on)
	}
	return err
}

// add adds to the stack of the sample that was taken from the rings last what was read of it beyond its copy.
func (r *restReader) add(sm *perfring.Sample, stack *unwind.Stack) {
	if r == nil {
		return
	}
	if stacks := r.stacks[r.source.CPU()]; stacks != nil {
		rest := stacks.Find(sm.TID, sm.Time, stack.Base+sm.DynSize)
		stack.Rest, stack.Above = rest.Memory, unwind.Piece{Addr: rest.At, Data: rest.Above}
		stack.Growth = unwind.GrownStack{At: rest.Morestack, G: rest.G}
		for _, p := range rest.Wished {
			stack.Wished = append(stack.Wished, unwind.Piece{Addr: p.At, Data: p.Memory})
		}
	}
}

// walked notes the walk over that stack, and reports whether what was read has completed it.
func (r *restReader) walked(w *work) link.LookupOutcome {
	sm, stack, res := &w.sample, &w.stack, &w.result
	share := r.programs.sampled(w.SpaceID, sm.Time)
	stacks, n := r.stacks[r.source.CPU()], len(res.Frames)
	if stacks == nil || n == 0 {
		return link.NotSought
	}
	outcome, last := link.NotSought, res.Frames[n-1].SP
	isRest := res.MarkRest(stack)
	leftGo := res.End == unwind.NotCopied && res.LeftGo()
	wish, wishes := res.Wish(stack)
	if wishes && stacks.Wishes(sm.TID, stack.Base, wish) {
		r.newWishes = true
	}
	switch {
	case res.End == unwind.Root:
		if isRest {
			outcome = link.Read
			share.read++
		}
		if !res.HasGrown() && !res.HasSwitched() { // otherwise it is another stack that ends there
			stacks.Ends(sm.TID, last)
		}
	case res.Open > 0:
		stacks.Ends(sm.TID, 0)
	}
	if (res.End == unwind.Root || leftGo) && !stacks.RunsGo(sm.TID) {
		if g, ok := res.Growth(); ok {
			stacks.Grows(sm.TID, rest.GrowthOffsets(g))
		}
	}
	if isRest || res.Open > 0 || leftGo || wishes {
		share.cut++
		if sp, cfa := res.LargestFrame(stack, skippedFrame); cfa != 0 {
			stacks.Skips(sm.TID, sp, cfa-savedRegs)
		}
	}
	return outcome
}
