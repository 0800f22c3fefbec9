package vmas

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// This file is about when processes are read that run already. Records wait meanwhile, so it is done a piece at a
// time; the processes with few threads and mappings come first, and those that are sampled before the others. A process
// that would take too much is left until it is sampled.

// An unread is a process that is still to be read, or of which only a part was read.
type unread struct {
	pid   uint32
	state unreadState
	most  int      // bytes of maps that are read in this pass
	lines int      // that this pass has read
	under *reading // the one that goes on
	tries int      // that have failed
	child bool     // of a process that is unread: it has ended otherwise, or executes another program, soon
}

type unreadState uint8

const (
	queued unreadState = iota
	wanted             // it was sampled
	left               // until it is sampled
)

const (
	// firstPass is how many bytes of a process's maps are read before others are looked at, and passGrowth how many
	// times more in each further pass.
	firstPass  = 64 << 10
	passGrowth = 8
	mostTries  = 3
)

// unreads are the unread processes.
type unreads struct {
	of    map[uint32]*unread
	idle  []*unread // those with least to be read first; may have some that are no longer queued
	wants []*unread
	now   *unread // the one that has a reading
}

// SeedLater leaves processes, all that there are if pids is nil, to SeedSome, and to SeedNow when they are sampled.
func (t *Table) SeedLater(pids []uint32) (err error) {
	if t.proc.texts == nil {
		return fmt.Errorf("seed processes: %w", errNoProc)
	}
	if pids == nil {
		if pids, err = t.proc.numbers(0); err != nil {
			return fmt.Errorf("seed all processes: %w", err)
		}
	}
	for _, pid := range pids {
		if _, known := t.unread.of[pid]; !known && isProcess(pid) {
			u := &unread{pid: pid, most: firstPass}
			t.unread.of[pid] = u
			t.unread.idle = append(t.unread.idle, u)
		}
	}
	return nil
}

// IsUnread reports whether a process is still to be read, or was read only in part.
func (t *Table) IsUnread(pid uint32) bool { return t.unread.of[pid] != nil }

// LeftOut is how many processes are not read as they, or those of their user, have too many mappings and threads.
func (t *Table) LeftOut() (n uint64) {
	for _, u := range t.unread.of {
		if u.state == left && !u.child {
			n++
		}
	}
	return n
}

// isRead notes that nothing is left to be read of a process, or that it is another one.
func (t *Table) isRead(pid uint32) {
	u := t.unread.of[pid]
	if u == nil {
		return
	}
	delete(t.unread.of, pid)
	t.stopReading(u)
	u.state = left // for the queues
}

// stopReading gives up the reading that goes on of a process, if there is one.
func (t *Table) stopReading(u *unread) {
	if u.under != nil {
		u.under.close()
		u.under = nil
	}
	if t.unread.now == u {
		t.unread.now = nil
	}
}

// want queues a process to be read before those that were not sampled.
func (t *Table) want(pid uint32) {
	u := t.unread.of[pid]
	if u == nil {
		u = &unread{pid: pid}
		t.unread.of[pid] = u
	}
	if u.state != wanted {
		t.stopReading(u)
		u.state, u.most = wanted, 0
		t.unread.wants = append(t.unread.wants, u)
	}
}

// SeedNow reads a process for a sample, as far as that may take: see account. The rest is read by SeedSome, and
// IsUnread says so until then. The space is what is known of the process, nil if it has ended.
func (t *Table) SeedNow(pid uint32) (*Space, error) {
	if u := t.unread.of[pid]; u != nil && u.state == wanted {
		return t.spaces[pid], nil
	}
	if err := t.canRead(pid); err != nil {
		t.isRead(pid)
		return nil, err
	}
	if t.isToCome(pid) { // what /proc shows is not what was sampled
		return t.spaces[pid], nil
	}
	r := t.beginReading(pid)
	began, all := t.now(), false
	var err error
	if t.mayRead(r.space, began) {
		all, err = t.readWithin(r, began)
		t.pay(r.space, charge(t.now().Sub(began), r.lines))
	}
	if t.isToCome(pid) {
		t.remove(pid)
		return nil, nil
	}
	if !all && err == nil {
		t.want(pid)
		return r.space, nil
	}
	t.isRead(pid)
	return t.seeded(r, err)
}

// HasUnread reports whether SeedSome would read anything.
func (t *Table) HasUnread() bool { return t.nextUnread() != nil }

// nextUnread returns the process that is to be read next, nil if there is none.
func (t *Table) nextUnread() (next *unread) {
	q := &t.unread
	if u := t.nextWanted(); u != nil {
		return u
	}
	if q.now != nil && q.now.state == queued {
		return q.now
	}
	for len(q.idle) > 0 && q.idle[0].state != queued {
		q.idle = q.idle[1:]
	}
	if len(q.idle) == 0 {
		return nil
	}
	return q.idle[0]
}

// nextWanted returns the first process that was sampled and may be read now, nil if there is none. Mostly it is the
// first of all: those before it were read.
func (t *Table) nextWanted() *unread {
	q := &t.unread
	for len(q.wants) > 0 && q.wants[0].state != wanted {
		q.wants = q.wants[1:]
	}
	if len(q.wants) == 0 {
		return nil
	}
	now, looked, room := t.now(), false, false
	for _, u := range q.wants {
		s := t.spaces[u.pid]
		switch {
		case u.state != wanted || s == nil:
			continue
		case t.isIdleWork(u, s):
			return u
		case !looked: // for all of them: there are two rings for each CPU
			looked, room = true, t.Room == nil || t.Room()
		}
		if room && t.mayRead(s, now) {
			return u
		}
	}
	return nil
}

// isIdleWork reports whether a process, or the next part of it, is read without regard to whether records wait.
func (t *Table) isIdleWork(u *unread, s *Space) bool {
	a := t.accountOf(s)
	return u.lines < mostIdleLines && a.lines < mostIdleLinesOfUser && a.spent < mostIdleTimeOfUser
}

// SeedSome reads the processes that SeedLater was given, and those that SeedNow has read in part. It stops when all
// are read, or when more returns false, which is asked before each step. found, if not nil, is called with each
// process that is read, and with the error if it cannot be read. Then the next one is read.
func (t *Table) SeedSome(more func() bool, found func(*Space, error)) {
	for more() {
		u := t.nextUnread()
		if u == nil {
			return
		}
		t.readSome(u, more, found)
	}
}

// readSome goes on reading a process.
func (t *Table) readSome(u *unread, more func() bool, found func(*Space, error)) {
	if !t.take(u) {
		return
	}
	r, began, before := u.under, t.now(), u.under.lines
	idle := t.isIdleWork(u, r.space)
	var done bool
	var err error
	defer t.proc.use(t.IdleTexts)()
	for !done && err == nil && t.spaces[u.pid] == r.space && r.id == r.space.id {
		done, err = t.step(r)
		if u.state == queued && r.lines >= mostIdleLines && !done && err == nil {
			err = errCut
		}
		if !more() {
			break
		}
	}
	u.lines = r.lines
	cost := charge(t.now().Sub(began), r.lines-before)
	if a := t.accountOf(r.space); idle {
		a.lines += r.lines - before
		a.spent += cost
	} else {
		t.pay(r.space, cost)
	}
	switch {
	case t.unread.of[u.pid] != u:
	case t.spaces[u.pid] != r.space, r.id != r.space.id:
		t.isRead(u.pid)
	case done || gone(err) || errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrEnded):
		t.finish(u, err, found)
	case err != nil:
		t.nextPass(u, err)
	}
}

// take makes a process the one that is read, and begins that unless it goes on. It returns false if there is no such
// process any more.
func (t *Table) take(u *unread) bool {
	q := &t.unread
	if now := q.now; now != nil && now != u { // it begins again later, as one is open at a time
		t.stopReading(now)
		if now.state == queued {
			q.idle = slices.Insert(q.idle, 0, now)
		}
	}
	if u.under != nil {
		return true
	}
	if u.state == queued {
		q.idle = q.idle[1:]
	}
	if t.canRead(u.pid) != nil {
		t.isRead(u.pid)
		return false
	}
	r := t.beginReading(u.pid)
	r.most, u.lines = u.most, 0
	u.under, q.now = r, u
	if !t.isIdleWork(u, r.space) && u.state == queued {
		t.stopReading(u)
		u.state = left
		if !r.known {
			t.remove(u.pid)
			t.unread.of[u.pid] = u
		}
		return false
	}
	return true
}

// finish is for a process of which all was read.
func (t *Table) finish(u *unread, err error, found func(*Space, error)) {
	r := u.under
	t.isRead(u.pid)
	if t.isToCome(u.pid) {
		t.remove(u.pid)
		return
	}
	s, err := t.seeded(r, err)
	if s == nil {
		return
	}
	if r.losses == t.losses {
		s.trust()
	}
	if found != nil {
		found(s, err)
	}
}

// nextPass decides whether a process is read further that has more than was to be read of it in this pass, or that
// could not be read now.
func (t *Table) nextPass(u *unread, err error) {
	r := u.under
	t.stopReading(u)
	if !errors.Is(err, errCut) {
		u.tries++
	} else if u.most *= passGrowth; !t.isIdleWork(u, r.space) {
		u.state = left
	}
	switch {
	case u.tries >= mostTries:
		u.state = left
	case u.state == queued:
		t.unread.idle = append(t.unread.idle, u)
	}
}

// ToCome announces an exec or a fork: the record waits in a ring, and HasCome is called when it is applied. time is
// that of the record, in ns of the records' clock. Meanwhile /proc may show another program than the one that is
// sampled, so what it shows is not used.
func (t *Table) ToCome(pid uint32, time uint64) {
	if len(t.toCome) >= maxEnded {
		clear(t.toCome)
	}
	t.toCome[pid] = max(t.toCome[pid], time)
}

// HasCome ends what ToCome has announced of a process, for the records up to time.
func (t *Table) HasCome(pid uint32, time uint64) {
	if t.toCome[pid] <= time {
		delete(t.toCome, pid)
	}
}

// mostToCome is how many mappings are remembered of a process whose records are to come, the latest ones.
const mostToCome = 64

// MappingToCome announces a mapping whose record waits in a ring: what /proc shows there is not taken for something
// that no record tells of. m is copied. The same record may be announced several times.
func (t *Table) MappingToCome(pid uint32, m *Mapping) {
	if len(t.mappingsToCome) >= maxEnded {
		clear(t.mappingsToCome)
	}
	all := t.mappingsToCome[pid]
	if slices.ContainsFunc(all, func(o Mapping) bool { return o.Time == m.Time && o.Start == m.Start }) {
		return
	}
	if len(all) >= mostToCome {
		all = slices.Delete(all, 0, 1)
	}
	t.mappingsToCome[pid] = append(all, *m)
}

// MappingHasCome ends what MappingToCome has announced of a process, for the records up to time.
func (t *Table) MappingHasCome(pid uint32, time uint64) {
	all := t.mappingsToCome[pid]
	if len(all) == 0 {
		return
	}
	all = slices.DeleteFunc(all, func(m Mapping) bool { return m.Time <= time })
	if t.mappingsToCome[pid] = all; len(all) == 0 {
		delete(t.mappingsToCome, pid)
	}
}

// IsMappingToCome reports whether a mapping of a process was announced whose record is not applied yet.
func (t *Table) IsMappingToCome(pid uint32) bool {
	t.look()
	return len(t.mappingsToCome[pid]) > 0
}

// isToldLater reports whether such a record tells of a mapping that maps shows: older samples did not run its code.
func (t *Table) isToldLater(pid uint32, m *Map) bool {
	return slices.ContainsFunc(t.mappingsToCome[pid], func(o Mapping) bool {
		return o.Start < m.Addr+m.Len && m.Addr < o.End && o.File.Path == pathOf(m)
	})
}

// isToCome reports whether there is such a record.
func (t *Table) isToCome(pid uint32) bool {
	t.look()
	_, ok := t.toCome[pid]
	return ok
}

// look looks at the records that have come meanwhile.
func (t *Table) look() {
	if t.Look != nil {
		t.Look()
	}
}
