package capture

import (
	"cmp"
	"encoding/binary"
	"slices"

	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas"
	"unspool/vmas/process"
)

// A stackRead is a reading of a thread's stack, with the frames that seem to be there still.
type stackRead struct {
	pid, tid uint32
	space    uint64
	time     uint64
	parts    []memoryPart       // from one large frame to the next
	full     bool               // there is more of the last one
	frames   []unwind.OpenFrame // the innermost first
}

// A memoryPart is memory that was read.
type memoryPart struct {
	start  uint64
	memory []byte
}

const (
	word = 8 // bytes
	// A frame of at least largeFrame bytes is not read, but for the savedRegs bytes below its CFA, where the
	// registers of its caller are, or below where the CFA is saved, among these.
	largeFrame = 16 << 10
	savedRegs  = 256
)

// parts are what is to be read of a stack: from its innermost frame on, without what is in large frames.
// Between two of these that are far from each other, what is near the inner one is read, and what says
// whether the outer one is there.
func (w *watchedStack) parts() (parts []process.Part) {
	frames := slices.SortedFunc(slices.Values(w.frames), func(a, b unwind.OpenFrame) int {
		return cmp.Compare(begin(&a), begin(&b))
	})
	start, left := begin(&frames[0]), maxReadSize
	add := func(from uint64, size int) {
		size = max(0, min(size, left))
		parts, left = append(parts, process.Part{Start: from, Size: size}), left-size
	}
	for i := 0; i < len(frames); i++ {
		f := &frames[i]
		if !isLarge(f) || f.SP-word < start {
			continue
		}
		// It may be there with more than one SP: that depends on what it has pushed for a call.
		for i+1 < len(frames) && frames[i+1].Reaches() == f.Reaches() && !frames[i+1].Leaf {
			i++
		}
		end := frames[i].SP
		near := min(end-start, uint64(max(w.size, firstReadSize)), uint64(left/2))
		if add(start, int(near)); near < end-start {
			add(end-word, word)
		}
		start = f.Reaches() - savedRegs
	}
	size := w.size
	if w.root > start && w.root-start < maxReadSize-aboveRoot {
		size = int(w.root-start) + aboveRoot
	}
	add(start, size)
	return parts
}

// begin is where what is read of a stack for one of its frames begins.
func begin(f *unwind.OpenFrame) uint64 {
	if f.Leaf {
		return max(f.SP, f.Reaches()-savedRegs)
	}
	return f.SP - word
}

func bySP(a, b unwind.OpenFrame) int { return cmp.Compare(a.SP, b.SP) }

func isLarge(f *unwind.OpenFrame) bool { return f.Reaches()-f.SP >= largeFrame }

// set sets the parts to those that were planned, with what was read of them.
func (rd *stackRead) set(planned []process.Part, memory [][]byte) {
	rd.parts = rd.parts[:0]
	for i, p := range planned {
		rd.parts = append(rd.parts, memoryPart{p.Start, memory[i]})
	}
	last := len(planned) - 1
	rd.full = len(memory[last]) == planned[last].Size
}

// last is the outermost part.
func (rd *stackRead) last() *memoryPart { return &rd.parts[len(rd.parts)-1] }

// find keeps those of the frames that are there: there is a return address of theirs in its place. A leaf
// is taken for there if the thread was sampled in it last, and recently. It reports whether any is.
func (rd *stackRead) find(frames []unwind.OpenFrame, recently bool) bool {
	rd.frames = rd.frames[:0]
	for i, f := range frames {
		if f.Leaf {
			if recently && i == len(frames)-1 {
				rd.frames = append(rd.frames, f)
			}
			continue
		}
		at, ok := rd.at(f.SP - word)
		if pc := binary.LittleEndian.Uint64(at[:]); ok && f.Returns(pc) {
			f.PC = pc
			rd.frames = append(rd.frames, f)
		}
	}
	slices.SortFunc(rd.frames, bySP)
	return len(rd.frames) > 0
}

// at is a word of the stack, if that was read.
func (rd *stackRead) at(addr uint64) (w [word]byte, ok bool) {
	for i := 0; i < len(rd.parts) && !ok; i++ {
		w, ok = rd.parts[i].at(addr)
	}
	return w, ok
}

// at is a word of memory, if that was read.
func (p *memoryPart) at(addr uint64) (w [word]byte, ok bool) {
	if n := uint64(len(p.memory)); addr < p.start || n < word || addr-p.start > n-word {
		return w, false
	}
	return [word]byte(p.memory[addr-p.start:]), true
}

// watch notes a sample whose stack goes on beyond its copy, so that the rest is read, if samples do not show
// it, as far as is known by now.
func (s *Session) watch(sm *perfring.Sample, space uint64) {
	if n, known := s.reader.misses[sm.TID]; known && !n.isMany() || !known && s.rest.isOn() {
		return
	}
	if from, ok := s.result.OpenFrame(); ok {
		s.reader.note(&cutStack{pid: sm.PID, tid: sm.TID, space: space, from: from}, sm.Time)
	}
}

// takeReads walks over what was read of stacks up to a time, of which all records before have been taken.
func (s *Session) takeReads(until uint64) {
	for u := s.reader.next(until); u != nil; u = s.reader.next(until) {
		// The log of links is in order of time: a reading that has come later than that allows is not taken.
		if s.reader.spend(u) && u.next.Began >= s.joiner.log.Latest() {
			s.takeReading(u)
		}
		s.reader.taken(u)
	}
}

// takeReading walks over the stacks in a reading.
func (s *Session) takeReading(u *readings) {
	memory := u.next.Memory
	for i := range u.stacks {
		p := &u.stacks[i]
		its := memory[:len(p.parts)]
		memory = memory[len(its):]
		rd := &s.reader.read
		*rd = stackRead{pid: u.pid, tid: p.tid, space: u.space, time: u.next.Began, frames: rd.frames,
			parts: rd.parts}
		rd.set(p.parts, its)
		if rd.find(s.reader.framesOf(rd)) {
			root, end := s.takeRead(rd)
			s.reader.done(rd, root, end)
		} else {
			s.reader.done(rd, 0, nil)
		}
	}
}

// takeRead adds a read to the sightings of its stack. root is the SP of the stack's outermost frame, 0 if the
// read does not show that. end is the frame at which it ends then, if it is too short; it may be empty.
func (s *Session) takeRead(rd *stackRead) (root uint64, end *unwind.OpenFrame) {
	space := s.table.Space(rd.pid)
	if space == nil || space.ID() != rd.space {
		return 0, nil // of a process that has gone since
	}
	s.images.Walks(rd.pid)
	rootPart := len(rd.parts)
	from := make([]*unwind.OpenFrame, 0, maxWatchedFrames) // lead to the ends of parts, each to another one
	for i := 0; i < len(rd.frames) && root == 0; i++ {
		f := &rd.frames[i]
		part := rd.partOf(f)
		switch res := s.walkRead(space, rd, f); res.End {
		case unwind.Root:
			s.seenByRead(rd, &res)
			root, rootPart = res.Frames[len(res.Frames)-1].SP, part
		case unwind.DumpTooShort:
			if n := len(from); n == 0 || rd.partOf(from[n-1]) != part {
				from = append(from, f)
			}
		}
		// Otherwise the frame has been left, and what was read is what others have left there since.
	}
	for _, f := range from {
		if rd.partOf(f) == rootPart {
			break
		}
		res := s.walkRead(space, rd, f)
		s.seenByRead(rd, &res)
		last, _ := res.OpenFrame()
		end = &last
	}
	if root != 0 {
		return root, nil
	}
	return 0, end
}

// partOf is the part in which the caller of a frame is, which is the next one if the frame is passed over.
func (rd *stackRead) partOf(f *unwind.OpenFrame) int {
	last, addr := len(rd.parts)-1, f.SP-word
	if f.Leaf {
		addr = f.Reaches() - word
	}
	for i := range last {
		if _, ok := rd.parts[i].at(addr); !ok {
			continue
		}
		if rd.parts[i+1].start+savedRegs == f.Reaches() {
			return i + 1
		}
		return i
	}
	return last
}

// walkRead walks over a part of a read from one of its frames on.
func (s *Session) walkRead(space *vmas.Space, rd *stackRead, f *unwind.OpenFrame) unwind.Result {
	p := &rd.parts[rd.partOf(f)]
	base := min(max(f.SP, p.start), p.start+uint64(len(p.memory)))
	data := p.memory[base-p.start:]
	return s.walker.WalkOn(space, *f, &unwind.Stack{Base: base, Data: data, Asked: uint64(len(data))})
}

// seenByRead notes what a walk over a read shows.
func (s *Session) seenByRead(rd *stackRead, res *unwind.Result) {
	j := s.joiner
	j.frames = res.LinksOfRead(&j.log, rd.space, rd.time, j.frames)
}
