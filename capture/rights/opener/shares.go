package opener

import "sync"

// shares are what users have of the requests that are under way: who has them hang could take up all that
// there can be.
type shares struct {
	most  int // for the processes of one user
	owner func(pid uint32) (uid uint32, err error)

	mu    sync.Mutex
	under []uint32 // the processes that are asked for
}

// begin counts a request for a process, unless its user has enough of them. As long as there are few, it
// does not matter whose they are.
func (s *shares) begin(pid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.under) >= s.most && s.of(s.user(pid)) >= s.most {
		return false
	}
	s.under = append(s.under, pid)
	return true
}

// end notes that a request has been answered.
func (s *shares) end(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.under {
		if p == pid {
			s.under[i] = s.under[len(s.under)-1]
			s.under = s.under[:len(s.under)-1]
			return
		}
	}
}

// of counts the requests that are for processes of a user.
func (s *shares) of(user uint64) (n int) {
	for _, pid := range s.under {
		if s.user(pid) == user {
			n++
		}
	}
	return n
}

// Users beside those that there are.
const (
	ourselves = 1<<32 + iota // files are opened here, not for a process
	gone                     // the process has ended
)

func (s *shares) user(pid uint32) uint64 {
	if pid == 0 {
		return ourselves
	}
	uid, err := s.owner(pid)
	if err != nil {
		return gone
	}
	return uint64(uid)
}
