package capture

import "unspool/unwind/link"

// A readAccount says how long the stacks of a process may be read. A process is read in bursts, as a stack
// has to be read a dozen times before that completes anything: see package link. A stack that the copy cut
// off and that samples do not complete adds a little to the credit for the next burst, as reads may complete
// it, and one that reads have completed prolongs the burst. With the second burst that has not completed what
// it was worth, and with each further one, stacks are worth an eighth of what they were.
type readAccount struct {
	credit int64 // for bursts, in ns
	left   int64 // of the burst; there is none if it is not positive
	vain   vain
	futile int  // readings one after the other
	asked  int  // for bursts of a new process
	given  bool // there is one of these under way
	size   int  // bytes that reads of its stacks need
}

// A vain is how much of the last bursts was spent in vain, in ns.
type vain int64

// spend notes that a burst is over.
func (v *vain) spend() { *v = min(*v+vain(burstPrice), mostVain*vain(burstPrice)) }

// earn notes that so many stacks were completed.
func (v *vain) earn(stacks int64) { *v = max(*v-vain(stacks*worthwhile), 0) }

// bursts is how many.
func (v vain) bursts() int { return int(v / vain(burstPrice)) }

const (
	missWorth  = int64(100_000)
	readWorth  = 3 * missWorth
	burstPrice = int64(5_000_000)
	worthwhile = burstPrice / 5 // may be spent to complete a stack
	mostBursts = 4              // that credit is kept for
	mostVain   = 3              // bursts that were in vain count

	// A reading is futile if its thread was sampled since the one before, and the copy held the stack, or the
	// frame where it was cut off last has gone: nothing that is read completes what ends at such frames. After
	// mostFutile in a row a burst is over. Each completed stack makes up for some, but not for more than that.
	mostFutile = 8
	madeUpFor  = 4

	// A new process has a burst at once, as a short-lived one has not cut stacks enough to earn one, and another
	// one when that is spent before it is known what it has completed, as where threads begin one after the
	// other and each is read by itself. Together these may take 1/reserveShare of all time, and a quarter as
	// much for each of the last ones, up to mostVain, that were in vain.
	newBursts    = 2
	reserveShare = 100
	mostReserve  = 2 * burstPrice
)

// settled counts the stacks of a process that the copy had cut off and samples alone did not complete.
type settled struct{ missed, read int64 }

func (s *settled) count(outcome link.Outcome) {
	if outcome == link.JoinedByRead {
		s.read++
	} else {
		s.missed++
	}
}

// earn adds what stacks are worth.
func (a *readAccount) earn(s settled) {
	a.vain.earn(s.read)
	if s.read > 0 {
		a.asked = newBursts
		a.left = min(a.left+s.read*readWorth, 2*burstPrice)
		a.futile = int(max(int64(a.futile)-s.read*madeUpFor, -mostFutile))
	}
	a.credit = min(a.credit+s.missed*missWorth>>(3*max(a.vain.bursts()-1, 0)), mostBursts*burstPrice)
}

// mayRead reports whether there is a burst, or credit for one, which begins then.
func (a *readAccount) mayRead() bool {
	for a.left <= 0 && a.credit >= burstPrice {
		a.left, a.credit = a.left+burstPrice, a.credit-burstPrice
	}
	return a.left > 0
}

// worth is what may be spent: on the burst, and on those that there is credit for.
func (a *readAccount) worth() int64 { return a.left + a.credit/burstPrice*burstPrice }

// spend takes the price of a read from what is left of the burst, and reports whether that ends it.
func (a *readAccount) spend(ns uint64) (over bool) {
	if a.left <= 0 {
		return false
	}
	if a.left -= int64(ns); a.left > 0 {
		return false
	}
	a.vain.spend()
	return true
}

// see counts a futile reading, or one that was not, and reports whether that ends the burst.
func (a *readAccount) see(futile bool) (over bool) {
	switch {
	case !futile:
		a.futile = max(min(a.futile, 0)-1, -mostFutile)
		return false
	case a.left <= 0: // planned before the burst was over
		return false
	}
	if a.futile++; a.futile < mostFutile {
		return false
	}
	a.left, a.futile = 0, 0
	a.vain.spend()
	return true
}

// isOfUse reports whether the last reading was not futile, or completed stacks make up for those that were.
func (a *readAccount) isOfUse() bool { return a.futile < 0 }

// readAccounts are those of the processes whose stacks were cut off, by address space.
type readAccounts struct {
	of      map[uint64]*readAccount
	reserve int64
	grown   uint64 // when the reserve was looked at last
	vain    vain   // of the bursts of new processes
}

// open returns the account of an address space.
func (r *readAccounts) open(space uint64) *readAccount {
	if a := r.of[space]; a != nil {
		return a
	}
	if r.of == nil || len(r.of) >= maxCutSpaces {
		r.of = make(map[uint64]*readAccount)
	}
	a := &readAccount{size: firstReadSize}
	r.of[space] = a
	return a
}

// earn is readAccount.earn.
func (r *readAccounts) earn(space uint64, s settled) {
	r.vain.earn(s.read)
	r.open(space).earn(s)
}

// mayRead is readAccount.mayRead. A new process has a burst if that is in reserve.
func (r *readAccounts) mayRead(space, now uint64) bool {
	a := r.open(space)
	if a.mayRead() {
		return true
	}
	if a.asked < newBursts {
		a.asked++
		r.grow(now)
		if r.reserve >= burstPrice {
			a.left, r.reserve, a.given = burstPrice, r.reserve-burstPrice, true
		}
	}
	return a.left > 0
}

// grow adds to the reserve what has come since the last time.
func (r *readAccounts) grow(now uint64) {
	if r.grown == 0 {
		r.reserve, r.grown = mostReserve, now
	}
	share := int64((now - min(now, r.grown)) / reserveShare)
	r.reserve, r.grown = min(r.reserve+share>>(2*r.vain.bursts()), mostReserve), now
}

// spend is readAccount.spend.
func (r *readAccounts) spend(space, ns uint64) {
	a := r.open(space)
	r.over(a, a.spend(ns))
}

// see is readAccount.see.
func (r *readAccounts) see(space uint64, futile bool) {
	a := r.open(space)
	r.over(a, a.see(futile))
}

// over ends a burst, if it is over.
func (r *readAccounts) over(a *readAccount, is bool) {
	if is && a.given {
		a.given = false
		r.vain.spend()
	}
}

// Reading all processes takes a share of all time at most.
const (
	budgetShare = 25
	budgetSlack = uint64(40_000_000)
)

// priceOfReading is what a reading costs beside the time that it takes: waking up who reads, and walking over
// the stack.
const priceOfReading = uint64(100_000)

// priceOfGap is what closing a gap costs: the pages that are read are new.
const priceOfGap = uint64(600_000)

// An often says how many of the last stacks were of a kind: each counts an eighth less than the one after.
type often int

const (
	oneStack   = often(32)
	manyStacks = oneStack * 8 / 4
)

func (o *often) count(is bool) {
	*o = *o * 7 / 8
	if is {
		*o += oneStack
	}
}

// isMany reports whether a quarter of them were, or the first three.
func (o often) isMany() bool { return o >= manyStacks }

// misses says by TID how many of a thread's last cut stacks were not completed with what samples show alone.
type misses map[uint32]often

func (m misses) count(tid uint32, missed bool) {
	n := m[tid]
	n.count(missed)
	if _, known := m[tid]; !known && len(m) >= maxCutSpaces {
		clear(m)
	}
	m[tid] = n
}
