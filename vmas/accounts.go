package vmas

import (
	"time"

	"unspool/vmas/credit"
)

// An account is what may be read of the processes of one user. Anybody can have any number of processes, with any
// number of mappings and threads.
type account struct {
	credit credit.Credit // for what records wait for

	lines int           // that were read of processes without regard to that; threads count as lines
	spent time.Duration // on that
}

const (
	// What records wait for takes this part of the time for one user, and for all, and at a time no more than the
	// rings have room for while it is read.
	userShare, allShare           = 8, 4
	mostUserCredit, mostAllCredit = 200 * time.Millisecond, 400 * time.Millisecond
	maxAccounts                   = 4096

	// Between two drains, so much is read of a process, and of all those of a user. More is read of those that are
	// sampled, and takes the share above.
	mostIdleLines       = 1 << 15
	mostIdleLinesOfUser = 1 << 18
	mostIdleTimeOfUser  = time.Second
)

// nobody is the user of a process that is hidden.
const nobody = ^uint32(0)

// accountOf returns the account of the user of a process.
func (t *Table) accountOf(s *Space) *account {
	if !s.owned {
		uid, err := t.proc.texts.Owner(s.PID)
		if s.owned = err == nil; !s.owned {
			uid = nobody
		}
		s.uid = uid
	}
	a := t.accounts[s.uid]
	if a == nil {
		if len(t.accounts) >= maxAccounts {
			clear(t.accounts)
		}
		a = &account{credit: credit.New(userShare, mostUserCredit)}
		t.accounts[s.uid] = a
	}
	return a
}

// mayRead reports whether a process may be read while records wait.
func (t *Table) mayRead(s *Space, now time.Time) bool {
	t.accountOf(s).credit.Left(now)
	t.all.Left(now)
	return t.affords(s, 0)
}

// affords reports whether reading may go on that has cost so much already.
func (t *Table) affords(s *Space, cost time.Duration) bool {
	return t.accountOf(s).credit.Has() > cost && t.all.Has() > cost && (t.Room == nil || t.Room())
}

// pay takes the cost of a reading.
func (t *Table) pay(s *Space, cost time.Duration) {
	t.accountOf(s).credit.Spend(cost)
	t.all.Spend(cost)
}
