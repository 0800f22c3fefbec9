package session

import (
	"fmt"
	"sync"
	"time"

	"unspool/vmas/process"
)

// A timedMemory reads the memory of processes for the goroutine that drains the rings where no opener does
// that: it may never come. What hangs is left to a goroutine, and its process is not read until that has
// ended.
type timedMemory struct {
	process.Access
	tell func(error) // is called once, when too many processes hang

	mu   sync.Mutex
	hung map[uint32]bool // by PID
}

const (
	// memoryWait is how long memory is waited for.
	memoryWait = 30 * time.Millisecond
	// maxHung is how many processes may hang before no memory is read any more.
	maxHung = 8
)

// errMemoryHangs is about processes that keep the memory of others from being read.
var errMemoryHangs = fmt.Errorf("memory of %d processes: reads of it hang, and until one of them ends, "+
	"no memory of other processes is read for unwinding", maxHung)

func newTimedMemory(access process.Access, tell func(error)) *timedMemory {
	return &timedMemory{Access: access, tell: tell, hung: make(map[uint32]bool)}
}

// Aside reads processes for as long as it takes, for goroutines that do not drain the rings.
func (i *timedMemory) Aside() process.Reader { return i.Access }

// ReadMemory is for [process.Memory].
func (i *timedMemory) ReadMemory(pid uint32, buf []byte, addr uint64) int {
	if i.isHung(pid) {
		return 0
	}
	read := make([]byte, len(buf)) // as buf may be used for something else when it comes
	done := make(chan int, 1)
	go func() {
		done <- i.Access.ReadMemory(pid, read, addr)
	}()
	late := time.NewTimer(memoryWait)
	defer late.Stop()
	select {
	case n := <-done:
		return copy(buf, read[:n])
	case <-late.C:
		i.setHung(pid, true)
		go func() {
			<-done
			i.setHung(pid, false)
		}()
		return 0
	}
}

// isHung reports whether the memory of a process is not read, as reads of it or of too many others hang.
func (i *timedMemory) isHung(pid uint32) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := len(i.hung) >= maxHung
	if all && i.tell != nil {
		i.tell(errMemoryHangs)
		i.tell = nil
	}
	return all || i.hung[pid]
}

func (i *timedMemory) setHung(pid uint32, is bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if is {
		i.hung[pid] = true
	} else {
		delete(i.hung, pid)
	}
}
