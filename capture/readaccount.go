package capture

import "unspool/unwind/link"

// A readAccount says how long the stacks of a process may be read. A process is read in bursts, as a stack
// has to be read a dozen times before that completes anything: see package link. A stack that the copy cut
// off and that samples do not complete adds a little to the credit for the next burst, as reads may complete
// it, and one that reads have completed prolongs the burst. After the second burst in a row that has
// completed nothing, and after each further one, stacks are worth an eighth of what they were.
type readAccount struct {
	credit    int64 // for bursts, in ns
	left      int64 // of the burst; there is none if it is not positive
	fruitless int   // bursts since stacks were completed
	asked     int   // for bursts of a new process
	given     bool  // the last of these has completed nothing so far
	size      int   // bytes that reads of its stacks need
}

const (
	missWorth     = int64(100_000)
	readWorth     = 3 * missWorth
	burstPrice    = int64(5_000_000)
	mostBursts    = 4 // that credit is kept for
	mostFruitless = 3

	// A new process has a burst at once, as a short-lived one has not cut stacks enough to earn one, and another
	// one when that is spent before it is known what it has completed, as where threads begin one after the
	// other and each is read by itself. Together these may take 1/reserveShare of all time, and half as much
	// for each of the last ones, up to mostInVain, that have completed nothing.
	newBursts    = 2
	reserveShare = 100
	mostReserve  = 2 * burstPrice
	mostInVain   = 3
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
	if s.read > 0 {
		a.fruitless, a.given, a.asked = 0, false, newBursts
		a.left = min(a.left+s.read*readWorth, 2*burstPrice)
	}
	a.credit = min(a.credit+s.missed*missWorth>>(3*max(a.fruitless-1, 0)), mostBursts*burstPrice)
}

// mayRead says whether there is a burst, or credit for one, which begins then.
func (a *readAccount) mayRead() bool {
	for a.left <= 0 && a.credit >= burstPrice {
		a.left, a.credit = a.left+burstPrice, a.credit-burstPrice
	}
	return a.left > 0
}

// worth is what may be spent: on the burst, and on those that there is credit for.
func (a *readAccount) worth() int64 { return a.left + a.credit/burstPrice*burstPrice }

// spend takes the price of a read from what is left of the burst, and says whether that ends it.
func (a *readAccount) spend(ns uint64) (over bool) {
	if a.left <= 0 {
		return false
	}
	if a.left -= int64(ns); a.left > 0 {
		return false
	}
	a.fruitless = min(a.fruitless+1, mostFruitless)
	return true
}

// readAccounts are those of the processes whose stacks were cut off, by address space.
type readAccounts struct {
	of      map[uint64]*readAccount
	reserve int64
	grown   uint64 // when the reserve was looked at last
	inVain  int    // bursts of new processes, since reads last completed a stack
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
	if s.read > 0 {
		r.inVain = 0
	}
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
	r.reserve, r.grown = min(r.reserve+share>>r.inVain, mostReserve), now
}

// spend is readAccount.spend.
func (r *readAccounts) spend(space, ns uint64) {
	if a := r.open(space); a.spend(ns) && a.given {
		a.given = false
		r.inVain = min(r.inVain+1, mostInVain)
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

// misses says by TID how many of a thread's last cut stacks were not completed with what samples show alone:
// each counts an eighth less than the one after.
type misses map[uint32]int

const (
	missWeight = 32
	manyMisses = missWeight * 8 / 4 // a quarter of all, or the first three
)

func (m misses) count(tid uint32, missed bool) {
	n := m[tid] * 7 / 8
	if missed {
		n += missWeight
	}
	if _, known := m[tid]; !known && len(m) >= maxCutSpaces {
		clear(m)
	}
	m[tid] = n
}
