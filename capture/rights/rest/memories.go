package rest

import (
	"runtime"

	"unspool/vmas/process"
)

// memories are those of the processes that were sampled last, by the remainder of the PID. To open one takes longer
// than to read a stack. They are closed once their processes have ended, or nothing is sampled for a while.
type memories []memory

type memory struct {
	pid    uint32
	reader *process.MemoryReader // nil for none
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
func (m memories) of(pid uint32) *process.MemoryReader {
	of := &m[pid%uint32(len(m))]
	if of.reader != nil && of.pid == pid {
		return of.reader
	}
	of.close()
	reader, err := process.Direct("/proc").OpenMemory(pid)
	if err != nil {
		return nil
	}
	of.pid, of.reader = pid, reader
	return reader
}

// closeEnded closes those of processes that have ended or executed another program, or all.
func (m memories) closeEnded(all bool) {
	for i := range m {
		if m[i].reader != nil && (all || m[i].reader.IsOver()) {
			m[i].close()
		}
	}
}

func (m *memory) close() {
	if m.reader != nil {
		m.reader.Close()
	}
	m.reader = nil
}
