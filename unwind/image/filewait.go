package image

import (
	"time"

	"unspool/vmas/credit"
)

// A fileWait bounds how long the goroutine that walks waits for files. Most are read within microseconds, and
// waiting for these costs less than a sample without them. But meanwhile the rings fill, and processes end
// whose files are not open yet. So waiting takes a part of the time.
//
// On a busy machine a file also comes late because whoever reads it waits for a CPU. It is waited for longer
// as long as the rings have room. Time for which this goroutine has no CPU itself does not count as waiting.
type fileWait struct {
	limited bool            // otherwise a wait takes as long as it takes
	room    func() bool     // reports whether the rings have room; nil: they are not known to have any
	waits   func()          // is called before a wait and every few milliseconds of it; may be nil
	stop    <-chan struct{} // ends every wait
	credit  credit.Credit
	timer   *time.Timer
}

const (
	waitShare  = 4                     // waiting takes one in so many of the time
	mostCredit = 50 * time.Millisecond // the most at a time while the rings have no room
	leastWait  = time.Millisecond      // a timer's resolution
	// mostForOne is how long one file may be waited for in vain, in all.
	mostForOne = 30 * time.Millisecond
	// mostForOneWithRoom is the same as long as the rings have room, and mostWithRoom the most credit then.
	mostForOneWithRoom = 200 * time.Millisecond
	mostWithRoom       = mostForOneWithRoom + mostCredit
	// firstCredit is for the beginning, when the files of all processes that run are read, all of it for one of them
	// if need be: whoever reads it may have to wait for a CPU.
	firstCredit = 2 * time.Second
	// longTurn is how long a wait takes before the rings are looked at again.
	longTurn = 10 * time.Millisecond
	// shortLived is how long programs last at least that are opened while another file is waited for.
	shortLived = 2 * time.Millisecond
	// ordinary is the time within which a file that comes costs no credit, with room, and all that it is waited
	// for at a time if the rings have none.
	ordinary = 2 * time.Millisecond
	// Waiting for build IDs takes one in shareForIDs of the time, and mostForIDs at a time.
	mostForIDs  = 20 * time.Millisecond
	shareForIDs = 20
)

func newFileWait(c *Config, room func() bool) fileWait {
	w := fileWait{limited: c.Hurried, room: room, waits: c.Waits, stop: c.Stop,
		credit: credit.New(waitShare, mostWithRoom)}
	if w.hasRoom() {
		w.credit.Add(firstCredit - mostWithRoom)
	}
	if w.limited {
		w.timer = time.NewTimer(time.Hour)
		w.timer.Stop()
	}
	return w
}

// A lateness is how long a file was waited for in vain.
type lateness struct {
	waited time.Duration
	told   bool // it was reported that the file does not come
}

// wait waits for done to be closed, and reports whether it is.
func (w *fileWait) wait(done <-chan struct{}, late *lateness) bool {
	if !w.limited {
		select {
		case <-done:
			return true
		case <-w.stop:
			return false
		}
	}
	w.credit.Left(time.Now())
	for {
		left := w.allowed(late)
		if left < leastWait {
			return false
		}
		took, came := w.take(done, min(left, w.turn()))
		if !came || took > ordinary || !w.hasRoom() {
			w.credit.Spend(took)
		}
		if came {
			late.waited = 0
			return true
		}
		late.waited += took
		if rest := mostForOne - late.waited; rest > 0 && rest < leastWait {
			late.waited = mostForOne // as nothing can wait for the rest, the file would never be reported
		}
		if w.room != nil && !w.room() {
			return false // the rings come first
		}
		select {
		case <-w.stop:
			return false
		default:
		}
	}
}

// allowed is how long a file may be waited for now. What exceeds mostForOne leaves mostCredit to other files; what is
// left of firstCredit is for rings with room.
func (w *fileWait) allowed(late *lateness) time.Duration {
	has := w.credit.Has()
	switch {
	case !w.hasRoom():
		return min(mostForOne-late.waited, min(has, mostWithRoom)-(mostWithRoom-mostCredit))
	case late.waited < mostForOne:
		return min(mostForOne-late.waited, has)
	}
	return min(max(mostForOneWithRoom-late.waited, has-mostWithRoom), has-mostCredit)
}

// turn is how long to wait before the rings are looked at again.
func (w *fileWait) turn() time.Duration {
	if w.room != nil && !w.room() {
		return ordinary
	}
	return longTurn
}

// take waits for a turn. What it took is not more than that: where the end of the turn is noticed later, this
// goroutine had no CPU, and whoever reads the file may not have had one either.
func (w *fileWait) take(done <-chan struct{}, turn time.Duration) (took time.Duration, came bool) {
	defer w.timer.Stop()
	for took < turn {
		piece := turn - took
		if w.waits != nil {
			w.waits()
			piece = min(piece, shortLived)
		}
		began := time.Now()
		w.timer.Reset(piece)
		select {
		case <-done:
			return took + min(time.Since(began), piece), true
		case <-w.timer.C:
			took += piece
		case <-w.stop:
			return took + min(time.Since(began), piece), false
		}
	}
	return took, false
}

func (w *fileWait) hasRoom() bool { return w.room != nil && w.room() }
