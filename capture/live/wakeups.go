package live

import (
	"time"

	"unspool/vmas/credit"
)

// wakeups bounds how often new mappings wake a recording: at once as long as there are few, with one wake-up
// for all that a program maps when it starts, and every 5 ms if there are many. Where all of the last second
// were of files that are known, as in a program that loads its plug-ins again and again, it is every 20 ms:
// these files need not be opened before their processes end. A flood that would fill the rings by then, as
// that of a program that renames its threads all the time, is taken up to every 2 ms.
type wakeups struct {
	last    time.Time
	credit  credit.Credit // of the time, and each wake-up has a price
	found   time.Time     // when a file was new
	longest time.Duration // that a wake-up waits, as far as the rings have room
}

const (
	wakePrice  = 5 * time.Millisecond
	knownPrice = 20 * time.Millisecond // of a wake-up while all files are known
	lately     = time.Second
	mostCredit = 100 * time.Millisecond
	wakeLeast  = 2 * time.Millisecond // between two wake-ups
)

func newWakeups() wakeups { return wakeups{credit: credit.New(1, mostCredit), longest: knownPrice} }

// due takes the price of a wake-up at a time from the credit, and returns how long to wait until the credit
// suffices.
func (w *wakeups) due(now time.Time) time.Duration {
	price, since := wakePrice, now.Sub(w.last)
	if !w.findsNew(now) {
		price = knownPrice
	}
	w.last = now
	w.credit.Left(now)
	w.credit.Spend(price)
	w.credit.Forgive(min(price, w.longest))
	return max(w.credit.Wait(), wakeLeast-since)
}

// waited reports whether the rings were crowded when a wake-up had waited for as long as due said.
func (w *wakeups) waited(crowded bool) {
	if crowded {
		w.longest = max(w.longest/2, wakeLeast)
	} else {
		w.longest = min(w.longest*2, knownPrice)
	}
}

// findsNew reports whether a file was new lately.
func (w *wakeups) findsNew(now time.Time) bool { return now.Sub(w.found) <= lately }

// foundNew notes that a wake-up has found a file that was not known. Others may follow soon.
func (w *wakeups) foundNew(now time.Time) {
	w.found = now
	w.credit.Forgive(0)
}
