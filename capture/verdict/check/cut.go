package check

import (
	"bytes"
	"slices"

	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas"
)

// This file decides whether a stack goes on beyond its copy, from what the recording holds and not from what
// a walk says: a walk that leaves the copy by mistake is wrong, and not cut. The top of a stack is where its
// mapping ends, as far as the recording tells of mappings that are no code (perf record -d), or else the
// highest address at which the kernel ended a copy of the same thread early.

// A CutStack is what became of a stack whose walk came to the end of the copy.
type CutStack uint8

const (
	TooDeep CutStack = iota // the copy is as long as was asked for, and does not reach the top of the stack
	Gap                     // the kernel ended the copy early, below the top: at a page that is not there
	NotCut                  // the copy reaches the top: the walk went astray, or on to another stack

	numCuts = iota
)

// Walks counts how the walks over raw stacks ended.
type Walks struct {
	User     uint64 // all
	Complete uint64 // those that reached the root
	CFIAlone uint64 // of these, with no frame that was found by anything but CFI
	Cuts     [numCuts]uint64
}

// A CutSample is a sample whose walk came to the end of the copy.
type CutSample struct {
	TID  uint32
	Time uint64
	Cut  CutStack
}

// stacks is what a recording holds about the stacks that were copied.
type stacks struct {
	Walks
	maps map[uint32][]extent // mappings that are no code, by process
	ends map[uint32][]uint64 // where the copies of a thread's stacks ended early
	came []cameToEnd         // walks that came to the end of the copy
}

// cameToEnd is a walk that came to the end of the copy from base to end.
type cameToEnd struct {
	tid        uint32
	time       uint64
	base, end  uint64
	full       bool
	mappingEnd uint64 // 0 where no mapping is known
}

// Bounds on what is remembered of one process or thread, and on how many of these.
const (
	maxMappings = 1 << 9
	maxEnds     = 64
	maxTasks    = 1 << 16
)

func newStacks() stacks {
	return stacks{maps: make(map[uint32][]extent), ends: make(map[uint32][]uint64)}
}

// record follows what a record says of mappings.
func (s *stacks) record(rec perfring.Record) {
	switch rec.Type() {
	case perfring.RecordMmap2:
		var m perfring.Mmap2
		if perfring.DecodeMmap2(rec, &m) == nil && m.Prot&vmas.ProtExec == 0 && m.Addr+m.Len > m.Addr &&
			isMemory(m.Path) {
			s.mapped(m.PID, extent{m.Addr, m.Addr + m.Len})
		}
	case perfring.RecordComm:
		var c perfring.Comm
		if perfring.DecodeComm(rec, &c) == nil && c.Exec {
			delete(s.maps, c.PID)
			delete(s.ends, c.TID)
		}
	case perfring.RecordFork:
		var f perfring.Task
		if perfring.DecodeTask(rec, &f) == nil && f.PID != f.PPID {
			s.forked(f.PID, f.PPID)
		}
	}
}

// mapped adds a mapping, in the place of what was there.
func (s *stacks) mapped(pid uint32, m extent) {
	if _, known := s.maps[pid]; !known && len(s.maps) >= maxTasks {
		return
	}
	var kept []extent
	for _, old := range s.maps[pid] {
		if old.lo < m.lo && old.hi > m.lo {
			kept = append(kept, extent{old.lo, m.lo})
		}
		if old.hi > m.hi && old.lo < m.hi {
			kept = append(kept, extent{m.hi, old.hi})
		}
		if old.hi <= m.lo || old.lo >= m.hi {
			kept = append(kept, old)
		}
	}
	if len(kept) >= maxMappings {
		kept = append(kept[:1], kept[2:]...) // the first is the main thread's stack, the second the oldest
	}
	s.maps[pid] = append(kept, m)
}

// isMemory reports whether a mapping of that name is of no file, so that it may hold a stack.
func isMemory(name []byte) bool {
	return len(name) == 0 || name[0] == '[' || bytes.HasPrefix(name, []byte("//anon"))
}

// forked gives a process the mappings of its parent.
func (s *stacks) forked(pid, parent uint32) {
	delete(s.maps, pid)
	delete(s.ends, pid)
	if maps := s.maps[parent]; len(maps) > 0 && len(s.maps) < maxTasks {
		s.maps[pid] = append([]extent(nil), maps...)
	}
}

// walked counts how a walk over a sample's stack ended.
func (s *stacks) walked(sm *perfring.Sample, res *unwind.Result) {
	s.User++
	base, end := res.Frames[0].SP, res.Frames[0].SP+uint64(len(sm.Stack))
	full := sm.DynSize >= sm.StackSize
	ends := s.ends[sm.TID]
	if !full && len(ends) < maxEnds && len(s.ends) < maxTasks && !slices.Contains(ends, end) {
		s.ends[sm.TID] = append(ends, end)
	}
	switch res.End {
	case unwind.Root:
		s.Complete++
		if byCFIAlone(res) {
			s.CFIAlone++
		}
	case unwind.DumpTooShort:
		c := cameToEnd{tid: sm.TID, time: sm.Time, base: base, end: end, full: full}
		for _, m := range s.maps[sm.PID] {
			if m.holds(base) {
				c.mappingEnd = m.hi
			}
		}
		s.came = append(s.came, c)
	}
}

func byCFIAlone(res *unwind.Result) bool {
	for i := range res.Frames {
		if by := res.Frames[i].Source; by != unwind.ByCFI && by != unwind.BySample {
			return false
		}
	}
	return true
}

// judge decides about one walk, when the whole recording is known.
func (s *stacks) judge(c *cameToEnd) CutStack {
	switch top := s.top(c); {
	case top != 0 && c.end >= top:
		return NotCut
	case c.full:
		return TooDeep
	}
	return Gap
}

// top is the highest address of the stack that a walk was on, 0 where nothing tells it.
func (s *stacks) top(c *cameToEnd) (top uint64) {
	const (
		guard   = 2 * 4096 // what a mapping may have of the one above, which nobody may touch
		largest = 64 << 20 // of a stack whose mapping is not known
	)
	for _, end := range s.ends[c.tid] {
		switch m := c.mappingEnd; {
		case m != 0 && end <= m && end+guard > m, m == 0 && end > c.base && end-c.base <= largest:
			top = max(top, end)
		}
	}
	if top == 0 {
		return c.mappingEnd
	}
	return top
}

// CutSamples lists the samples whose walk came to the end of the copy. It is asked when the recording is
// over.
func (c *Checker) CutSamples() (all []CutSample) {
	for i := range c.copies.came {
		w := &c.copies.came[i]
		all = append(all, CutSample{w.tid, w.time, c.copies.judge(w)})
	}
	return all
}

// Walks counts how the walks over raw stacks ended. Call it when the recording is over.
func (c *Checker) Walks() Walks {
	w := c.copies.Walks
	for _, s := range c.CutSamples() {
		w.Cuts[s.Cut]++
	}
	return w
}
