package image

import "time"

// A patience bounds how long the goroutine that walks waits for files. Most are read within microseconds, and
// waiting for these costs less than a sample without them. But meanwhile the rings fill, and processes end
// whose files are not open yet. So there is a credit of time to wait, which grows with time.
//
// On a busy machine a file also comes late because whoever reads it waits for a CPU. It is waited for longer
// as long as the rings have room. Time for which this goroutine has no CPU itself does not count as waiting.
type patience struct {
	limited bool            // otherwise a wait takes as long as it takes
	room    func() bool     // reports whether the rings have room; nil: they are not known to have any
	waits   func()          // is called before a wait and every few milliseconds of it; may be nil
	stop    <-chan struct{} // ends every wait
	credit  time.Duration
	at      time.Time // when the credit was that
	timer   *time.Timer
}

const (
	creditShare = 4                     // the credit grows by this part of the time
	mostCredit  = 50 * time.Millisecond // and is never more while the rings have no room
	leastWait   = time.Millisecond      // a timer's resolution
	// patienceForOne is how long one file may be waited for in vain, in all.
	patienceForOne = 30 * time.Millisecond
	// patienceWithRoom is the same as long as the rings have room, and mostWithRoom the most credit then.
	patienceWithRoom = 200 * time.Millisecond
	mostWithRoom     = patienceWithRoom + mostCredit
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
	// mostForIDs is the most credit of time to wait for build IDs, which grows by shareForIDs of the time.
	mostForIDs  = 20 * time.Millisecond
	shareForIDs = 20
)

func newPatience(c *Config, room func() bool) patience {
	limited := c.Hurried
	p := patience{limited: limited, room: room, waits: c.Waits, stop: c.Stop, credit: mostWithRoom,
		at: time.Now()}
	if p.hasRoom() {
		p.credit = firstCredit
	}
	if limited {
		p.timer = time.NewTimer(time.Hour)
		p.timer.Stop()
	}
	return p
}

// A lateness is how long a file was waited for in vain.
type lateness struct {
	waited time.Duration
	told   bool // it was reported that the file does not come
}

// wait waits for done to be closed, and reports whether it is.
func (p *patience) wait(done <-chan struct{}, late *lateness) bool {
	if !p.limited {
		select {
		case <-done:
			return true
		case <-p.stop:
			return false
		}
	}
	now := time.Now()
	if p.credit < mostWithRoom || !p.hasRoom() { // what is left of firstCredit is for rings with room
		p.credit = min(p.credit+now.Sub(p.at)/creditShare, mostWithRoom)
	}
	p.at = now
	for {
		left := p.left(late)
		if left < leastWait {
			return false
		}
		took, came := p.take(done, min(left, p.turn()))
		if !came || took > ordinary || !p.hasRoom() {
			p.credit -= took
		}
		if came {
			late.waited = 0
			return true
		}
		late.waited += took
		if rest := patienceForOne - late.waited; rest > 0 && rest < leastWait {
			late.waited = patienceForOne // as nothing can wait for the rest, the file would never be reported
		}
		if p.room != nil && !p.room() {
			return false // the rings come first
		}
		select {
		case <-p.stop:
			return false
		default:
		}
	}
}

// left is how long a file may be waited for now. What exceeds patienceForOne leaves mostCredit to other
// files.
func (p *patience) left(late *lateness) time.Duration {
	switch {
	case !p.hasRoom():
		return min(patienceForOne-late.waited, p.credit-(mostWithRoom-mostCredit))
	case late.waited < patienceForOne:
		return min(patienceForOne-late.waited, p.credit)
	}
	return min(max(patienceWithRoom-late.waited, p.credit-mostWithRoom), p.credit-mostCredit)
}

// turn is how long to wait before the rings are looked at again.
func (p *patience) turn() time.Duration {
	if p.room != nil && !p.room() {
		return ordinary
	}
	return longTurn
}

// take waits for a turn. What it took is not more than that: where the end of the turn is noticed later, this
// goroutine had no CPU, and whoever reads the file may not have had one either.
func (p *patience) take(done <-chan struct{}, turn time.Duration) (took time.Duration, came bool) {
	defer p.timer.Stop()
	for took < turn {
		piece := turn - took
		if p.waits != nil {
			p.waits()
			piece = min(piece, shortLived)
		}
		began := time.Now()
		p.timer.Reset(piece)
		select {
		case <-done:
			return took + min(time.Since(began), piece), true
		case <-p.timer.C:
			took += piece
		case <-p.stop:
			return took + min(time.Since(began), piece), false
		}
	}
	return took, false
}

func (p *patience) hasRoom() bool { return p.room != nil && p.room() }
