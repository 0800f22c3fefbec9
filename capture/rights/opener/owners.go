package opener

import (
	"sync"
	"time"
)

const (
	// ownerLasts is how long the user of a process is remembered: PIDs and users change.
	ownerLasts = 100 * time.Millisecond
	mostOwners = 256
)

// owners are the users of processes that were asked for lately.
type owners struct {
	mu  sync.Mutex
	all map[uint32]owner
}

type owner struct {
	uid uint32
	at  time.Time
}

func (o *owners) find(pid uint32, now time.Time) (uid uint32, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	is, ok := o.all[pid]
	return is.uid, ok && now.Sub(is.at) < ownerLasts
}

func (o *owners) note(pid, uid uint32, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = make(map[uint32]owner)
	}
	if len(o.all) >= mostOwners {
		clear(o.all)
	}
	o.all[pid] = owner{uid, now}
}
