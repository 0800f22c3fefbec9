package capture

import "time"

// A pace bounds how often new mappings wake a recording: at once as long as there are few, with one wake-up
// for all that a program maps when it starts, and every 5 ms if there are many. Where all of the last second
// were of files that are known, as in a program that loads its plug-ins again and again, it is every 20 ms:
// these files need not be opened before their processes end. A flood that would fill the rings by then, as
// that of a program that renames its threads all the time, is taken up to every 2 ms.
type pace struct {
	at      time.Time
	credit  time.Duration
	found   time.Time     // when a file was new
	longest time.Duration // that a wake-up waits, as far as the rings have room
}

const (
	wakePrice  = 5 * time.Millisecond
	vainPrice  = 20 * time.Millisecond // of a wake-up where no file was new lately
	lately     = time.Second
	mostCredit = 100 * time.Millisecond
	wakeLeast  = 2 * time.Millisecond // between two wake-ups
)

func newPace() pace { return pace{longest: vainPrice} }

// due takes the price of a wake-up at a time from the credit, and returns how long to wait until the credit
// suffices.
func (p *pace) due(now time.Time) time.Duration {
	price, since := wakePrice, now.Sub(p.at)
	if !p.findsNew(now) {
		price = vainPrice
	}
	p.credit = max(min(p.credit+since, mostCredit)-price, -min(price, p.longest))
	p.at = now
	return max(-p.credit, wakeLeast-since, 0)
}

// waited reports whether the rings were crowded when a wake-up had waited for as long as the pace said.
func (p *pace) waited(crowded bool) {
	if crowded {
		p.longest = max(p.longest/2, wakeLeast)
	} else {
		p.longest = min(p.longest*2, vainPrice)
	}
}

// findsNew reports whether a file was new lately.
func (p *pace) findsNew(now time.Time) bool { return now.Sub(p.found) <= lately }

// foundNew says that a wake-up has found a file that was not known. Others may follow soon.
func (p *pace) foundNew(now time.Time) {
	p.found = now
	p.credit = max(p.credit, 0)
}
