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
	pid, tid   uint32
	space      uint64
	time       uint64
	below      memoryPart         // what is below a large frame, and its SP
	memoryPart                    // from above that on, or all
	full       bool               // there is more of it
	frames     []unwind.OpenFrame // the innermost first
}

// A memoryPart is memory that was read.
type memoryPart struct {
	start  uint64
	memory []byte
}

const (
	word = 8 // bytes
	// A frame of at least largeFrame bytes is not read, but for the savedRegs bytes below its CFA, where the
	// registers of its caller are.
	largeFrame = 16 << 10
	savedRegs  = 256
)

// parts are what is to be read of a stack: from its innermost frame on, or what is below a large frame and
// what is above.
func (w *watchedStack) parts() (parts []process.Part) {
	frames := slices.SortedFunc(slices.Values(w.frames), bySP)
	start := frames[0].SP - word
	if n := uptoLarge(frames); n > 0 && frames[n-1].SP-start <= uint64(w.size) {
		parts = append(parts, process.Part{Start: start, Size: int(frames[n-1].SP - start)})
		start = frames[n-1].CFA - savedRegs
	}
	size := w.size
	if w.root > start && w.root-start < maxReadSize-aboveRoot {
		size = int(w.root-start) + aboveRoot
	}
	for _, below := range parts {
		size = min(size, maxReadSize-below.Size)
	}
	return append(parts, process.Part{Start: start, Size: size})
}

func bySP(a, b unwind.OpenFrame) int { return cmp.Compare(a.SP, b.SP) }

// uptoLarge is how many of the frames, in order of SP, come up to the first large one, which may be there
// with more than one SP: that depends on what it has pushed for a call. It is 0 if there is none.
func uptoLarge(frames []unwind.OpenFrame) (n int) {
	n = slices.IndexFunc(frames, func(f unwind.OpenFrame) bool { return isLarge(&f) })
	if n < 0 {
		return 0
	}
	for cfa := frames[n].CFA; n < len(frames) && frames[n].CFA == cfa; {
		n++
	}
	return n
}

func isLarge(f *unwind.OpenFrame) bool { return f.CFA > f.SP && f.CFA-f.SP >= largeFrame }

// set sets the parts to those that were planned, with what was read of them.
func (rd *stackRead) set(planned []process.Part, memory [][]byte) {
	last := len(planned) - 1
	rd.below = memoryPart{}
	if last > 0 {
		rd.below = memoryPart{planned[0].Start, memory[0]}
	}
	rd.memoryPart = memoryPart{planned[last].Start, memory[last]}
	rd.full = len(rd.memory) == planned[last].Size
}

// find takes in those of the frames that are there: there is a return address of theirs in its place. It says
// whether any is.
func (rd *stackRead) find(frames []unwind.OpenFrame) bool {
	rd.frames = rd.frames[:0]
	for _, f := range frames {
		at, ok := rd.below.at(f.SP - word)
		if !ok {
			at, ok = rd.at(f.SP - word)
		}
		if pc := binary.LittleEndian.Uint64(at[:]); ok && f.Returns(pc) {
			f.PC = pc
			rd.frames = append(rd.frames, f)
		}
	}
	slices.SortFunc(rd.frames, bySP)
	return len(rd.frames) > 0
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
	if n, known := s.reader.misses[sm.TID]; known && n < manyMisses {
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
		*rd = stackRead{pid: u.pid, tid: p.tid, space: u.space, time: u.next.Began, frames: rd.frames}
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
	var from *unwind.OpenFrame
	for i := range rd.frames {
		f := &rd.frames[i]
		switch res := s.walkRead(space, rd, f); res.End {
		case unwind.Root:
			s.seenByRead(rd, &res)
			root = res.Frames[len(res.Frames)-1].SP
		case unwind.DumpTooShort:
			if from == nil {
				from = f
			}
		}
		if root != 0 {
			break
		}
		// Otherwise the frame has been left, and what was read is what others have left there since.
	}
	if from == nil || root != 0 && !rd.isBelow(from) {
		return root, nil
	}
	res := s.walkRead(space, rd, from)
	s.seenByRead(rd, &res)
	if root != 0 {
		return root, nil
	}
	last, _ := res.OpenFrame()
	return 0, &last
}

// isBelow says whether a frame is in the part that ends at a large frame, which it is not.
func (rd *stackRead) isBelow(f *unwind.OpenFrame) bool {
	return f.SP < rd.start && f.CFA != rd.start+savedRegs
}

// walkRead walks over a read from one of its frames on.
func (s *Session) walkRead(space *vmas.Space, rd *stackRead, f *unwind.OpenFrame) unwind.Result {
	p, base := &rd.memoryPart, max(f.SP, rd.start)
	if rd.isBelow(f) {
		p, base = &rd.below, f.SP
	}
	data := p.memory[base-p.start:]
	return s.walker.WalkOn(space, *f, &unwind.Stack{Base: base, Data: data, Asked: uint64(len(data))})
}

// seenByRead takes in what a walk over a read shows.
func (s *Session) seenByRead(rd *stackRead, res *unwind.Result) {
	j := s.joiner
	j.frames = res.LinksOfRead(&j.log, rd.space, rd.time, j.frames)
}
