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

// A work is a sample in work, on its way from a record to the sink, with all that belongs to it alone. It is used
// again for the next one, so that samples take no memory.
type work struct {
	perfdata.Walked // what is handed on

	sample perfring.Sample
	space  *vmas.Space // of its process, nil if it is not known
	regs   unwind.Regs
	regs32 unwind.Regs // of i386 code
	stack  unwind.Stack
	result unwind.Result
	pairing
}

// begin begins with what is handed on.
func (w *work) begin(rec perfring.Record, f *perfring.SampleFormat) {
	w.Record, w.Format, w.Sample = rec, f, &w.sample
	w.Result, w.Space, w.SpaceID, w.Place, w.Pair, w.Links = nil, nil, 0, "", nil, link.NotSought
	w.Chain = w.Chain[:0]
}

// sampled hands a sample on with its callchain completed and its registers and stack left out.
func (s *Session) sampled(rec perfring.Record, f *perfring.SampleFormat) error {
	w := &s.work
	sm := &w.sample
	if err := f.Sample(rec, sm); err != nil || sm.Len() != len(rec) {
		// Nothing of it may be handed on: where its stack is in it is unknown.
		s.Stats.Malformed++
		return nil
	}
	s.teller.now = sm.Time
	if s.config.CPU != nil {
		sm.CPU = uint32(s.config.CPU())
	}
	exclusion := counts.ExclusionOf(sm)
	if !s.isRecorded() && exclusion != counts.Included {
		s.Stats.Excluded[exclusion]++
		return nil
	}
	s.Stats.Samples++
	w.space = s.space(sm.PID)
	s.commandLines.Sampled(sm)
	w.begin(rec, f)
	if !f.HasUser() {
		s.tell(w)
		return s.sink.Write(rec)
	}
	s.Stats.StackCopied += sm.DynSize
	var user []uint64
	switch {
	case !f.HasStack(), sm.RegsABI == unix.PERF_SAMPLE_REGS_ABI_NONE, exclusion == counts.Guest:
	case s.user(w):
		user = w.result.IPs
	}
	w.Chain = unwind.Splice(w.Chain[:0], sm.Callchain.Len(), sm.Callchain.At, user)
	if s.config.Pairs && w.Result != nil {
		w.pairUp(s.walker)
	}
	s.tell(w)
	if s.teller.listener != nil && w.Space != nil {
		if err := s.teller.listener.Sampled(sm.PID, w.Space); err != nil {
			return err
		}
	}
	return s.sink.WriteSample(&w.Walked)
}

// user unwinds the user stack of a sample into its result. It returns false if the stack does not belong to the
// registers.
func (s *Session) user(w *work) (ok bool) {
	ok = s.walk(w)
	s.teller.describeCopied()
	if !ok {
		return false
	}
	sm := &w.sample
	w.Result, w.Space = &w.result, s.table.Space(sm.PID)
	if w.Space != nil {
		w.SpaceID = w.Space.ID()
	}
	if s.config.Generators != nil && w.Space != nil {
		s.config.Generators.Sampled(w.Space, sm, &w.result)
	}
	s.completer.walked(w)
	if w.result.End != unwind.Root {
		w.Place = endPlace(w)
	}
	if !s.completer.completes(w) {
		w.result.Open = 0 // nothing completes it any more
		w.result.Conclude()
	}
	s.completer.noteGap(w)
	return true
}

// endPlace is the path of the file in which a walk ended, as in [counts.WalkEnd].
func endPlace(w *work) string {
	switch at := w.result.At; {
	case at != nil:
		return counts.PathOf(at)
	case w.Space != nil && w.Space.Denied():
		return counts.DeniedPlace
	case w.sample.PID == 0:
		return counts.OutsidePlace
	}
	return ""
}
