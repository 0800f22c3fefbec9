package rest

import "runtime"

// memories are those of the processes that were sampled last, by the remainder of the PID. To open one takes longer
// than to read a stack. They are closed once their processes have ended, or nothing is sampled for a while.
type memories []memory

type memory struct {
	pid           uint32
	ProcessMemory // nil for none
	structure     structure
}

// How many are open for all CPUs together, and for one. Each takes two descriptors, or three.
const (
	mostMemories   = 256
	leastMemories  = 2
	enoughMemories = 16
)

func newMemories() memories {
	return make(memories, min(enoughMemories, max(leastMemories, mostMemories/runtime.NumCPU())))
}

// of is the memory of a process, nil if it cannot be read.
func (m memories) of(kernel Kernel, pid uint32) *memory {
	of := &m[pid%uint32(len(m))]
	if of.ProcessMemory != nil && of.pid == pid {
		return of
	}
	of.forget()
	opened, err := kernel.OpenMemory(pid)
	if err != nil {
		return nil
	}
	of.pid, of.ProcessMemory = pid, opened
	return of
}

// closeEnded closes those of processes that have ended or executed another program, or all.
func (m memories) closeEnded(all bool) {
	for i := range m {
		if m[i].ProcessMemory != nil && (all || m[i].IsOver()) {
			m[i].forget()
		}
	}
}

func (m *memory) forget() {
	if m.ProcessMemory != nil {
		m.Close()
	}
	m.ProcessMemory = nil
}
