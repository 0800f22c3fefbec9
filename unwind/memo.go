package unwind

import "unspool/vmas"

// A memo is the last walk of a thread. The outer frames of a thread rarely
// change from one sample to the next: where a frame of the new walk is one of the
// last one, with the same PC, SP and BP, all that follows is the same too, as
// long as the words that it was read from are. To compare these is quicker than to
// find rules.
type memo struct {
	tid   uint32
	space *vmas.Space
	maps  uint32 // generation of the mappings
	// buf holds the frames from buf[from] on, the outermost last, so that those which
	// stay do not move when others are put before them.
	buf  []Frame
	from int
	// gain counts walks for which the memo was worth its price, less those for which it was
	// not. Well below zero, some walks go without.
	gain  int8
	pause uint8
}

const (
	// maxMemo is how many frames a memo holds at most.
	maxMemo = 1024
	// memoSlots is how many threads have one. Those with the same rest of the TID share it.
	memoSlots = 128

	maxGain   = 16
	minGain   = -8
	memoPause = 100 // walks
)

// memos are found by TID.
type memos [memoSlots]memo

// of gives the memo of a thread, empty if it is of another one or from another time, and nil
// if the thread is better off without.
func (t *memos) of(tid uint32, space *vmas.Space) *memo {
	if tid == 0 {
		return nil
	}
	m := &t[tid%memoSlots]
	if m.tid != tid || m.space != space || m.maps != space.Generation() {
		*m = memo{tid: tid, space: space, maps: space.Generation(), buf: m.buf, from: len(m.buf)}
	}
	if m.pause > 0 {
		m.pause--
		return nil
	}
	return m
}

// frames are those of the last walk, leaf first.
func (m *memo) frames() []Frame {
	if m == nil {
		return nil
	}
	return m.buf[m.from:]
}

// keep takes in a walk.
func (m *memo) keep(c *climb) {
	if m == nil {
		return
	}
	if 3*c.recalled >= len(c.frames) {
		m.gain = min(m.gain+1, maxGain)
	} else if m.gain--; m.gain < minGain {
		m.from, m.gain, m.pause = len(m.buf), 0, memoPause
		return
	}
	fresh, at := c.frames, len(m.buf) // where what is known begins
	if len(fresh) > maxMemo {
		m.from = at
		return
	}
	if c.whole {
		fresh, at = fresh[:c.kept], m.from+c.at
		m.buf[at].Source = c.frames[c.kept].Source
	}
	if at < len(fresh) {
		buf := make([]Frame, max(32, 2*len(c.frames)))
		at = len(buf) - copy(buf[len(buf)-(len(m.buf)-at):], m.buf[at:])
		m.buf = buf
	}
	m.from = at - len(fresh)
	copy(m.buf[m.from:], fresh)
}
