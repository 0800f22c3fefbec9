package session

import (
	"unspool/capture/counts"
	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/link"
	"unspool/vmas"

	"golang.org/x/sys/unix"
)

// SizeTrials say how many stacks would be joined if less of each were copied: they walk each sample once more
// for each size, on the first bytes of its copy, and complete it as a session with these copies would. A
// recording's samples reach them as its watcher.
type SizeTrials struct {
	session *Session
	trials  []sizeTrial
}

// A sizeTrial is that for one size.
type sizeTrial struct {
	size   uint64
	stats  counts.Stats
	joiner *Joiner // nil before it begins
	result unwind.Result
}

// NewSizeTrials returns trials of copies of such sizes, in bytes, which go up.
func NewSizeTrials(sizes []int) *SizeTrials {
	t := &SizeTrials{trials: make([]sizeTrial, len(sizes))}
	for i, size := range sizes {
		t.trials[i].size = uint64(size)
	}
	return t
}

// Begin is for [Watcher].
func (t *SizeTrials) Begin(s *Session) {
	t.session = s
	for i := range t.trials {
		r := &t.trials[i]
		r.joiner = NewJoiner(NewCounter(nowhere{}, &r.stats, counts.NewTrouble()), s.config.MaxStack, JoinAfterRecorded)
	}
}

// Write is for [Watcher].
func (t *SizeTrials) Write([]byte) error { return nil }

// WriteSample is for [Watcher]. The sample's result is not valid any more after the call.
func (t *SizeTrials) WriteSample(w *perfdata.Walked) error {
	if w.Result == nil || w.Space == nil || w.Sample.RegsABI != unix.PERF_SAMPLE_REGS_ABI_64 {
		return nil
	}
	for i := range t.trials {
		r := &t.trials[i]
		sample := *w.Sample
		sample.StackSize, sample.DynSize = min(sample.StackSize, r.size), min(sample.DynSize, r.size)
		r.result = t.session.walkFirst(w.Space, &sample)
		cut := perfdata.Walked{
			Record: w.Record, Format: w.Format, Sample: &sample, Result: &r.result,
			Space: w.Space, SpaceID: w.SpaceID,
		}
		if t.session.completer.rest != nil && isOpen(&cut) && w.Result.End == unwind.Root {
			r.stats.Links[link.Read]++ // what would be read is in the larger copy
			continue
		}
		if err := r.joiner.WriteSample(&cut); err != nil {
			return err
		}
	}
	return nil
}

// Joined is how many samples were joined with copies of a size, by the size. No more samples may follow.
func (t *SizeTrials) Joined() map[int]uint64 {
	joined := make(map[int]uint64)
	for i := range t.trials {
		r := &t.trials[i]
		if r.joiner == nil || r.joiner.Flush() != nil {
			continue
		}
		joined[int(r.size)] = r.stats.Joined()
	}
	return joined
}

// walkFirst walks the stack of the sample in work on the first bytes of its copy.
func (s *Session) walkFirst(space *vmas.Space, sm *perfring.Sample) unwind.Result {
	regs := &s.work.regs
	stack := unwind.Stack{Base: s.work.stack.Base, Data: sm.Stack[:sm.DynSize], Asked: sm.StackSize}
	res := s.walker.Unwind(space, regs, &stack)
	return s.walker.Continue(space, regs, &stack, res, sm.Callchain.Len(), sm.Callchain.At)
}

// nowhere takes samples and keeps nothing.
type nowhere struct{}

func (nowhere) Write([]byte) error { return nil }

func (nowhere) WriteSample(*perfdata.Walked) error { return nil }
