package vmas

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"unspool/vmas/process"
)

// A reading reads a process from /proc into its space, a piece at a time: its threads first, then its mappings.
type reading struct {
	space  *Space
	id     uint64 // of the space when the reading began
	losses uint64 // so far: see Table.Lost
	known  bool   // the space was there before
	most   int    // bytes of maps to read; 0 for all

	listed  bool
	listErr error
	tids    []uint32 // that are still to be read
	living  uint32   // a thread that has the address space: a leader that has exited has none

	maps   *mapsText // nil until it is open
	opened uint32    // Table.seq then
	ahead  bool      // of the records: the process executes something else by now
	within *layout   // what is known, of which the space gets what maps shows; nil where it may show more
	before Map       // the line before
	name   []byte    // that before has, as maps reuses it

	lines     int // and threads, so far
	different bool
}

const (
	// threadsAtOnce is how many threads are a piece.
	threadsAtOnce = 16
	// workAtOnce is how many lines and threads are read before it is looked how long that took.
	workAtOnce = 512
)

func newReading(s *Space, known bool) *reading {
	return &reading{space: s, id: s.id, known: known}
}

// step reads the next piece into the space, and reports whether that was all. The error is errCut if as many bytes of
// maps were read as were asked for.
func (t *Table) step(r *reading) (done bool, err error) {
	s := r.space
	switch {
	case !r.listed:
		r.listed = true
		r.tids, r.listErr = t.proc.numbers(s.PID)
	case len(r.tids) > 0:
		n := min(len(r.tids), threadsAtOnce)
		living, ahead := t.readThreads(s, r.tids[:n])
		if r.ahead = ahead; ahead {
			return true, nil
		}
		if r.living == 0 {
			r.living = living
		}
		r.tids = r.tids[n:]
		r.lines += n
	case r.maps == nil:
		if r.living == 0 { // no thread, or none that still has the address space
			err := r.listErr
			if err == nil && s.threads.len() == 0 {
				err = ErrEnded
			}
			if err != nil {
				return false, err
			}
		}
		if r.listErr == nil {
			s.hasThreads()
		}
		if s.kernel {
			return true, nil
		}
		r.opened = t.seq
		text, err := t.proc.texts.Text(s.PID, r.living, process.Maps, r.most)
		s.denied = errors.Is(err, fs.ErrPermission)
		if err != nil {
			return false, err
		}
		r.maps = &mapsText{text: text, most: r.most}
	default:
		return t.stepMaps(r)
	}
	return false, nil
}

// stepMaps reads the next piece of maps.
func (t *Table) stepMaps(r *reading) (done bool, err error) {
	s, different, looked := r.space, false, false
	lines, err := r.maps.next(t.proc.buf, func(m *Map) {
		if r.within != nil {
			t.keepShown(r.within, s, m)
			return
		}
		if !looked { // only now: what maps shows is not younger
			r.ahead = r.ahead || t.isToCome(s.PID)
			looked = true
		}
		if s.isYounger(m, r.opened) {
			return
		}
		if r.ahead = r.ahead || t.isAhead(s, m); r.ahead {
			return
		}
		if !s.Doubted() && (s.hidesCode(m) || t.isToldLater(s.PID, m)) {
			return
		}
		if !s.holds(m) {
			different = t.insert(s, m, &r.before) || different
		}
		r.name = append(r.name[:0], m.Name...)
		r.before = *m
		r.before.Name = r.name
	})
	r.lines += lines
	if different {
		r.different = true
		s.changed()
		s.told = 0
	}
	s.denied = errors.Is(err, fs.ErrPermission)
	if err == io.EOF || err == nil && s.layout.n >= maxLimit {
		return true, nil
	}
	return false, err
}

// keepShown puts into a space the mappings that are known of a range that maps shows as code. What maps shows there may
// be other code, or a part of the range may be none: a record of that is still to come, and older samples ran what is
// known.
func (t *Table) keepShown(known *layout, s *Space, m *Map) {
	if m.Prot&ProtExec == 0 {
		return
	}
	for e := range known.from(m.Addr) {
		if e.Start >= m.Addr+m.Len {
			return
		}
		s.layout.insert(&t.files, *e)
	}
}

// close closes what is open.
func (r *reading) close() {
	if r.maps != nil {
		_ = r.maps.text.Close() // it was only read
	}
}

// readThreads adds threads that /proc lists to the thread list of s and returns one that is alive. It removes
// none: a thread whose EXIT is still to come may have left /proc already. ahead reports whether /proc is ahead of the
// records: the names are of the program that the process executes next, or of the next process of the PID, and none is
// added.
func (t *Table) readThreads(s *Space, tids []uint32) (living uint32, ahead bool) {
	type listed struct {
		tid uint32
		stat
	}
	var few [threadsAtOnce]listed
	all := few[:0]
	for _, tid := range tids {
		is := listed{tid: tid}
		if t.proc.stat(s.PID, tid, &is.stat) == nil { // else it ended
			all = append(all, is)
		}
	}
	if len(all) > 0 && t.isToCome(s.PID) { // only now: what was read is not younger
		return 0, true
	}
	for i := range all {
		is := &all[i]
		if is.tid == s.PID {
			s.comm = is.comm
			s.PPID = is.ppid
			s.start = is.start
			s.kernel = is.flags&pfKthread != 0
		}
		if !is.alive() {
			continue
		}
		if s.comm == "" {
			s.comm = is.comm
		}
		if living == 0 {
			living = is.tid
		}
		if known, ok := s.threads.get(is.tid); !ok || known != is.comm {
			t.name(s, is.tid, is.comm)
			s.told = 0
		}
	}
	return living, false
}

// seeded is the result of a reading that is over.
func (t *Table) seeded(r *reading, err error) (*Space, error) {
	s := r.space
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, fs.ErrPermission):
		s.denied, err = true, fs.ErrPermission
	case gone(err) || errors.Is(err, ErrEnded):
		// If it ended between two reads, its records follow, if there are any.
		err = ErrEnded
		if !r.known {
			t.remove(s.PID)
			t.ended.add(s.PID, endAbsent)
			s = nil
		}
	case r.maps == nil && !r.known:
		t.remove(s.PID)
		s = nil
	}
	return s, fmt.Errorf("seed process %d: %w", r.space.PID, err)
}

// readAll reads until all is read.
func (t *Table) readAll(r *reading) (err error) {
	defer r.close()
	for done := false; !done && err == nil; {
		done, err = t.step(r)
	}
	return err
}

// readWithin reads as long as the credit of the process's user allows, and the rings, where records wait for that. all
// reports whether it was all.
func (t *Table) readWithin(r *reading, began time.Time) (all bool, err error) {
	defer r.close()
	for looked := 0; ; {
		if all, err = t.step(r); all || err != nil {
			return all, err
		}
		if r.lines >= looked+workAtOnce {
			looked = r.lines
			if !t.affords(r.space, charge(t.now().Sub(began), r.lines)) {
				return false, nil
			}
		}
	}
}
