package vmas

// end says how a PID came to be remembered.
type end uint8

const (
	endExit   end = iota + 1 // its last thread's EXIT was seen: nothing can follow
	endAbsent                // /proc does not have it: records of it may still be on their way
)

// maxEnded is how many PIDs are remembered.
const maxEnded = 4096

// ended remembers the PIDs that ended last, so that late records do not bring them back and late
// samples do not send anybody to /proc again and again.
type ended struct {
	state map[uint32]end
	queue []uint32 // in order of arrival, from head on; may name PIDs that state has no more
	head  int
}

func (e *ended) add(pid uint32, how end) {
	if _, ok := e.state[pid]; ok {
		if how == endExit {
			e.state[pid] = how
		}
		return
	}
	if len(e.queue) < maxEnded {
		e.queue = append(e.queue, pid)
	} else {
		delete(e.state, e.queue[e.head])
		e.queue[e.head] = pid
		e.head = (e.head + 1) % maxEnded
	}
	e.state[pid] = how
}

// remove forgets a PID that lives again. Its place in the queue stays: when that comes up, the PID
// may be forgotten a little early if it has ended once more.
func (e *ended) remove(pid uint32) { delete(e.state, pid) }

func (e *ended) exited(pid uint32) bool { return e.state[pid] == endExit }

func (e *ended) known(pid uint32) bool { return e.state[pid] != 0 }

func (e *ended) clear() {
	clear(e.state)
	e.queue, e.head = e.queue[:0], 0
}
