package image

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// A reader does what can block for the goroutine that walks: it opens, reads and closes files. A file on a
// server that does not answer keeps one of its goroutines busy and delays only files on the same device.
// Goroutines are started when there is work: an idle reader has none.
type reader struct {
	owner  func(pid uint32) (uid uint32) // nil: it does not matter whose they are
	beside bool                          // long jobs do not take the processor of whoever walks

	mu      sync.Mutex
	queue   []*job
	running []*job // each has a goroutine
}

const (
	maxAtWork  = 4                      // jobs at a time, without those that hang
	maxRunning = 64                     // jobs at a time, with those that hang
	maxQueued  = 4096                   // jobs that wait
	maxOfOne   = 64                     // jobs that wait for one device that hangs, or for a user with maxOfUser
	maxHanging = 2                      // jobs of one device that hang: others wait behind them
	maxOfUser  = 16                     // jobs for one user's processes at a time, with those that hang
	hangsAfter = 100 * time.Millisecond // what a job may take before another one starts beside it
)

// A job is something to do on a goroutine of the reader.
type job struct {
	do   func()
	drop func() // releases a result that is not wanted any more; may be nil

	device uint64 // on which the file lies, 0 where that is not known
	pid    uint32 // of the process whose user it is for, 0 for none
	sent   bool   // the reader has it
	long   bool   // it may take many milliseconds of CPU time

	done      chan struct{} // closed when the job is done
	began     time.Time     // under reader.mu
	abandoned bool          // under reader.mu
	user      uint64        // under reader.mu once it is sent; 0 until it is known
}

// Users, as they stand in a job.
const (
	noUser    = 1 << 32 // nobody: files are read for this process itself
	firstUser = noUser + 1
)

// goesThrough is concerns for a job that goes through all of the file, or through that of its debug file.
func (j *job) goesThrough(s *source) {
	const large = 4 << 20
	j.concerns(s)
	j.long = s.size >= large
}

// concerns returns which file a job reads, and for whom.
func (j *job) concerns(s *source) {
	j.device = s.inode.dev
	if s.file != nil {
		j.user = firstUser + uint64(s.file.uid)
	}
}

// A task is a job with a result, which is valid once the job is done.
type task[T any] struct {
	job
	result T
}

// newTask returns the task to call do. drop, if it is not nil, is called on a goroutine of the
// reader with a result that is not wanted any more.
func newTask[T any](do func() T, drop func(T)) *task[T] {
	t := new(task[T])
	t.done = make(chan struct{})
	t.do = func() { t.result = do() }
	if drop != nil {
		t.drop = func() { drop(t.result) }
	}
	return t
}

// isDone reports whether the result is there.
func (j *job) isDone() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// submit queues a job, and returns false if too many are waiting.
func (r *reader) submit(j *job) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) >= maxOfOne {
		busy, sameDevice, sameUser := r.isBusyFor(j), 0, 0
		for _, q := range r.queue {
			if q.device == j.device {
				sameDevice++
			}
			if busy && r.userOf(q) == r.userOf(j) {
				sameUser++
			}
		}
		if len(r.queue) >= maxQueued || sameUser >= maxOfOne ||
			sameDevice >= maxOfOne && r.hangs(j.device, time.Now()) {
			return false
		}
	}
	j.sent = true
	r.queue = append(r.queue, j)
	r.start()
	return true
}

// urge queues a job before all that wait. It is for few and short jobs, and has no limit.
func (r *reader) urge(j *job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j.sent = true
	r.queue = slices.Insert(r.queue, 0, j)
	r.start()
}

// prefer moves a job that waits to the front of the queue.
func (r *reader) prefer(j *job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.queue, j); i > 0 {
		copy(r.queue[1:], r.queue[:i])
		r.queue[0] = j
	}
}

// hangs reports whether so many jobs of a device hang that it may not have another goroutine. The caller holds
// mu.
func (r *reader) hangs(device uint64, now time.Time) bool {
	if device == 0 {
		return false // unknown
	}
	n := 0
	for _, j := range r.running {
		if j.device == device && now.Sub(j.began) >= hangsAfter {
			n++
		}
	}
	return n >= maxHanging
}

// isBusyFor reports whether so many jobs for the user of a job are under way that there may be no other one. As
// long as there are few, it does not matter whose they are. The caller holds mu.
func (r *reader) isBusyFor(j *job) bool {
	if r.owner == nil || len(r.running) < maxOfUser {
		return false
	}
	n, user := 0, r.userOf(j)
	for _, other := range r.running {
		if r.userOf(other) == user {
			n++
		}
	}
	return n >= maxOfUser
}

func (r *reader) userOf(j *job) uint64 {
	switch {
	case j.user != 0:
	case j.pid == 0:
		j.user = noUser
	default:
		j.user = firstUser + uint64(r.owner(j.pid))
	}
	return j.user
}

// relieve starts what waits behind jobs that turned out to hang.
func (r *reader) relieve() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.start()
}

// start starts a goroutine for the next job, unless enough are at work. The caller holds mu.
func (r *reader) start() {
	if j := r.next(); j != nil {
		go r.work(j)
	}
}

// next takes the next job from the queue, nil if none may start now. The caller holds mu.
func (r *reader) next() *job {
	if len(r.queue) == 0 || len(r.running) >= maxRunning {
		return nil
	}
	now, atWork := time.Now(), 0
	for _, j := range r.running {
		if now.Sub(j.began) < hangsAfter {
			atWork++
		}
	}
	if atWork >= maxAtWork {
		return nil
	}
	for i, j := range r.queue {
		if r.hangs(j.device, now) || r.isBusyFor(j) {
			continue
		}
		r.queue = slices.Delete(r.queue, i, i+1)
		j.began = now
		r.running = append(r.running, j)
		return j
	}
	return nil
}

// work does a job, then others as long as there are any.
func (r *reader) work(j *job) {
	for j != nil {
		if j.long && r.beside {
			onAnotherProcessor(j.do)
		} else {
			j.do()
		}
		r.mu.Lock()
		close(j.done)
		if j.abandoned && j.drop != nil {
			r.mu.Unlock()
			j.drop()
			r.mu.Lock()
		}
		i := slices.Index(r.running, j)
		r.running = slices.Delete(r.running, i, i+1)
		j = r.next()
		r.mu.Unlock()
	}
}

// abandon notes that the result of a job is not wanted any more.
func (r *reader) abandon(j *job) {
	r.mu.Lock()
	j.abandoned = true
	late := j.isDone() && j.drop != nil
	drop := newJob(j.drop, j.device)
	drop.pid, drop.user = j.pid, j.user
	r.mu.Unlock()
	if late {
		r.submit(drop)
	}
}

// newJob returns a job without a result.
func newJob(do func(), device uint64) *job {
	return &job{do: do, device: device, done: make(chan struct{})}
}

// longJobs counts the long jobs of all readers that run beside whoever walks.
var longJobs struct {
	sync.Mutex
	running int
}

// onAnotherProcessor does something with one more processor for Go's goroutines. A recording has one, which a
// goroutine keeps for 10 ms though others want it, too: programs may have ended by then, and their files may
// be gone. Jobs that hang do not add processors without end: more than maxAtWork have not enough to do.
func onAnotherProcessor(do func()) {
	add := func(n int) {
		longJobs.Lock()
		defer longJobs.Unlock()
		before := min(longJobs.running, maxAtWork)
		longJobs.running += n
		if more := min(longJobs.running, maxAtWork) - before; more != 0 {
			runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0)+more, 1))
		}
	}
	add(1)
	defer add(-1)
	do()
}
