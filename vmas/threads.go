package vmas

import "iter"

// threads are the threads of a space, by TID. Most processes have one, which takes no map.
type threads struct {
	only Thread            // TID 0 if there is none
	all  map[uint32]string // nil as long as there is one at most
}

func (ts *threads) len() int {
	switch {
	case ts.all != nil:
		return len(ts.all)
	case ts.only.TID != 0:
		return 1
	}
	return 0
}

func (ts *threads) get(tid uint32) (comm string, ok bool) {
	if ts.all != nil {
		comm, ok = ts.all[tid]
		return comm, ok
	}
	return ts.only.Comm, tid != 0 && ts.only.TID == tid
}

// set adds a thread or gives it another name.
func (ts *threads) set(tid uint32, comm string) {
	switch {
	case ts.all != nil:
	case ts.only.TID == 0, ts.only.TID == tid:
		ts.only = Thread{tid, comm}
		return
	default:
		ts.all = map[uint32]string{ts.only.TID: ts.only.Comm}
		ts.only = Thread{}
	}
	ts.all[tid] = comm
}

func (ts *threads) remove(tid uint32) {
	if ts.all != nil {
		delete(ts.all, tid)
	} else if ts.only.TID == tid {
		ts.only = Thread{}
	}
}

func (ts *threads) each() iter.Seq2[uint32, string] {
	return func(yield func(uint32, string) bool) {
		if ts.only.TID != 0 && !yield(ts.only.TID, ts.only.Comm) {
			return
		}
		for tid, comm := range ts.all {
			if !yield(tid, comm) {
				return
			}
		}
	}
}
