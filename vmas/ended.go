package vmas

// end is why a PID is remembered as ended.
type end uint8

const (
	endExit   end = iota + 1 // the EXIT of its last thread was seen: nothing can follow
	endAbsent                // it is not in /proc: records of it may still come
)

// maxEnded is how many PIDs are remembered.
const maxEnded = 4096

// ended remembers the PIDs that ended last, so that late records do not make spaces for them and late
// samples do not cause reads of /proc again and again.
type ended struct {
	state map[uint32]end
	queue []uint32 // in order of arrival, from head on; may hold PIDs that are not in state any more
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

// remove forgets a PID that is in use again. Its place in the queue stays: when it is reached, the PID
// is forgotten, a little too early if it has ended once more.
func (e *ended) remove(pid uint32) { delete(e.state, pid) }

func (e *ended) exited(pid uint32) bool { return e.state[pid] == endExit }

func (e *ended) known(pid uint32) bool { return e.state[pid] != 0 }

func (e *ended) clear() {
	clear(e.state)
	e.queue, e.head = e.queue[:0], 0
}
