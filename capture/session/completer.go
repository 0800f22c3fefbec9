package session

import (
	"unspool/capture/counts"
	"unspool/perfring"
	"unspool/unwind"
)

// A completer is what completes stacks that copies cut off: with what is read of them when they are sampled, with
// links from samples before and after, and for later samples by touching pages that no copy holds.
type completer struct {
	open   bool        // stacks are completed, by the joiner or by the sink behind the session
	joiner *Joiner     // nil where nothing is joined here
	gaps   *gaps       // nil where no process is there to be read
	rest   *restReader // nil where stacks are not read when they are sampled
}

// readRest begins to read stacks when they are sampled, and reports whether that is possible.
func (c *completer) readRest(source *perfring.Source, from RingReader) bool {
	if c.joiner != nil && c.gaps != nil {
		c.rest = newRestReader(source, from)
	}
	return c.rest != nil
}

// walked notes the walk of a sample, and whether what was read of its stack has completed it.
func (c *completer) walked(w *work) {
	if c.rest != nil {
		w.Links = c.rest.walked(w)
	}
}

// completes reports whether a stack that was cut off may still be completed.
func (c *completer) completes(w *work) bool {
	return c.open && isOpen(&w.Walked) && !c.rest.completes(w.SpaceID)
}

// noteGap asks for the gap to be closed at which the copy of a sample's stack has ended.
func (c *completer) noteGap(w *work) {
	sm := &w.sample
	if c.gaps == nil || w.result.End != unwind.DumpTooShort || sm.DynSize >= sm.StackSize {
		return
	}
	sp := w.stack.Base
	c.gaps.note(stackGap{pid: sm.PID, start: sp + sm.DynSize, end: sp + sm.StackSize, sp: sp}, sm.Time)
}

// sawGaps is [Session.SawGaps].
func (c *completer) sawGaps() bool {
	if c.gaps == nil {
		return false
	}
	saw := c.gaps.isNew
	c.gaps.isNew = false
	if c.rest != nil {
		saw = saw || c.rest.newWishes
		c.rest.newWishes = false
	}
	return saw
}

// settle hands on what need not wait any more at a time, where there is a joiner.
func (c *completer) settle(time uint64, trouble *counts.Trouble) error {
	if c.rest != nil {
		if c.rest.hangs(time) {
			trouble.NoteMemory(errRestHangs)
		}
		if err := c.rest.settle(); err != nil {
			return err
		}
	}
	return c.joiner.settle(time)
}

// flush hands on all that waits.
func (c *completer) flush() error {
	if c.joiner == nil {
		return nil
	}
	return c.joiner.Flush()
}
