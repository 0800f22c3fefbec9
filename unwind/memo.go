package unwind

import "unspool/vmas"

// A memo is the last walk of a thread. The outer frames of a thread rarely change from one sample to the
// next: where a frame of the new walk is one of the last one, with the same PC, SP and BP, all that follows
// is the same too, as long as the words that it was read from are. Comparing these words is quicker than
// finding rules.
type memo struct {
	tid   uint32
	space *vmas.Space
	maps  uint32 // generation of the mappings
	// buf[from:] are the frames, the outermost last, so that frames which stay need not move when others are
	// put before them.
	buf  []Frame
	from int
	// score counts walks for which the memo saved more than it cost, less those for which it did not. Below
	// minScore the memo pauses for some walks.
	score int8
	pause uint8
}

const (
	// maxMemo is how many frames a memo holds at most.
	maxMemo = 1024
	// memoSlots is how many memos there are. Threads whose TIDs have the same remainder share one.
	memoSlots = 128

	maxScore  = 16
	minScore  = -8
	memoPause = 100 // walks
)

// memos are found by TID.
type memos [memoSlots]memo

// lookup returns the memo of a thread, emptied if it is of another thread or the mappings have changed, and
// nil while it pauses.
func (t *memos) lookup(tid uint32, space *vmas.Space) *memo {
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

// keep replaces the frames of the memo by those of a walk.
func (m *memo) keep(c *climb) {
	if m == nil {
		return
	}
	if 3*c.copied >= len(c.frames) {
		m.score = min(m.score+1, maxScore)
	} else if m.score--; m.score < minScore {
		m.from, m.score, m.pause = len(m.buf), 0, memoPause
		return
	}
	fresh, at := c.frames, len(m.buf) // at is where the frames begin that stay
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
