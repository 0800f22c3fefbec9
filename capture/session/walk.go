package session

import (
	"unspool/unwind"
	"unspool/unwind/rule"
	"unspool/vmas"

	"golang.org/x/sys/unix"
)

// walk unwinds the user stack of a sample. The copy is empty if SP is on a page that was never touched: the
// kernel does not fault it in. ok is false if the task is inside execve and the stack does not belong to the
// registers.
func (s *Session) walk(w *work) (ok bool) {
	sm := &w.sample
	w.regs.SetPerf(rule.AMD64, sm.RegsMask, sm.Regs)
	if sm.CPUMode() == unix.PERF_RECORD_MISC_KERNEL {
		w.regs.DropUnsaved()
	}
	sp, _ := w.regs.Get(unwind.SP)
	w.stack = unwind.Stack{Base: sp, Data: sm.Stack, Asked: sm.StackSize, Wished: w.stack.Wished[:0]}
	s.completer.rest.add(sm, &w.stack)
	if sm.DynSize > 0 {
		w.stack.Thread = sm.TID // an empty copy has nothing to compare with the last walk
	}

	s.images.Walks(sm.PID)

	if w.space == nil {
		w.result = s.walker.SampledOnly(&w.regs, unwind.Unmapped)
	} else {
		s.walkIn(w)
	}
	// This comes before /proc is read, which may show the next program.
	if s.isReplaced(w) {
		s.Stats.Exec++
		return false
	}
	if sm.DynSize == 0 && s.execve.unseen(sm) {
		return false
	}
	if w.space == nil {
		return true
	}
	if s.doubtful(w) && s.refresh(sm.PID) {
		s.walkIn(w)
	}
	return true
}

// isReplaced reports whether the memory of a sample is not, or may not be, what its registers belong to, because
// the task is inside execve.
func (s *Session) isReplaced(w *work) bool {
	isOther := w.sample.DynSize == 0 || !isStack(&w.result)
	mayBeParents := w.space != nil && w.space.Forked()
	if !isOther && !mayBeParents {
		return false
	}
	loading, replacing := s.execve.loading(&w.sample)
	return isOther && loading || mayBeParents && replacing
}

// walkIn unwinds the user stack of a sample whose registers are known, in its space.
//
// The ABI is the mode that the processor was in, 32-bit for i386 code. It is 64-bit for x32 programs too,
// which use 64-bit registers and 32-bit pointers; they have no walk of their own.
func (s *Session) walkIn(w *work) {
	switch sm := &w.sample; sm.RegsABI {
	case unix.PERF_SAMPLE_REGS_ABI_64:
		res := s.walker.Unwind(w.space, &w.regs, &w.stack)
		w.result = s.walker.Continue(w.space, &w.regs, &w.stack, res, sm.Callchain.Len(), sm.Callchain.At)
	case unix.PERF_SAMPLE_REGS_ABI_32:
		w.regs32.SetPerf(rule.I386, sm.RegsMask, sm.Regs)
		w.result = s.walker.UnwindByRows(rule.I386, w.space, &w.regs32, &w.stack)
	default:
		w.result = s.walker.SampledOnly(&w.regs, unwind.NoCFI)
	}
}

// space is the address space of a process. It is read from /proc if no record told of the process, and read
// again if records about it may have been lost.
func (s *Session) space(pid uint32) *vmas.Space {
	space := s.table.Space(pid)
	switch {
	case s.isRecorded():
		return space
	case space == nil && pid == 0:
		return nil // the idle task, or outside of the PID namespace
	case space == nil || s.table.IsUnread(pid):
		space, _ = s.table.SeedNow(pid)
	case space.Doubted() && s.table.Reread(pid):
		space = s.table.Space(pid)
	}
	if s.table.IsUnread(pid) {
		s.Stats.Early++
	}
	return space
}

// refresh reads the mappings of a process again, but not too often, and reports whether they have changed.
func (s *Session) refresh(pid uint32) bool {
	s.teller.describeCopied()
	return s.table.Refresh(pid)
}
