package unwind

import (
	"slices"

	"unspool/unwind/link"
	"unspool/vmas"
)

// A Result is one unwound stack. Its slices are valid until the next walk.
type Result struct {
	// IPs holds the sampled PC, then the return addresses, unadjusted.
	IPs []uint64
	// Frames is how each of them was found.
	Frames []Frame
	// End is why the walk ended.
	End Reason
	// At is the mapping in which the last frame lies, nil when it lies in none.
	At *vmas.Mapping
	// Open is how many frames were found in the copy, if the walk ended because the copy ends and the stack
	// goes on from the last of them: see [Result.Join]. It is 0 for all other walks.
	Open int
	// Within is the function of the last of these, and CFA where its frame ends, as far as that is known.
	Within link.Function
	CFA    uint64
	// SavedCFA is the address at which the frame saves the CFA, if CFA itself is not known; else 0.
	SavedCFA uint64
	// Elsewhere means, with the End DumpTooShort, that a larger copy would not help: what the walk needs is on another
	// stack. [Result.Conclude] makes it NotCopied.
	Elsewhere bool

	rest bool // frames that are ByLive were found in what was read at the sample: see MarkRest
	// grown is the index of the first frame behind Go's morestack, if that was found by what was read then.
	grown int
	// switched means that the walk has left the stack that was sampled for another one.
	switched bool
	walk     *walk // which has found it; it is the next one's by the next walk
}

// Conclude sets the final End. Call it once, when neither [Result.Join] nor anything else can complete the stack any
// more: DumpTooShort becomes NotCopied if the walk needs memory on another stack, which no larger copy holds.
func (r *Result) Conclude() {
	if r.End == DumpTooShort && r.Elsewhere {
		r.End = NotCopied
	}
}

// isCertain reports whether CFI alone leads to the root.
func (r *Result) isCertain() bool {
	for i := range r.Frames {
		if by := r.Frames[i].Source; by != ByCFI && i > 0 {
			return false
		}
	}
	return r.End == Root
}

// SavedBP gives the address that the BP of frame i was loaded from. ok is false where it was not
// loaded, and in frames that were not found by a fast rule.
func (r *Result) SavedBP(i int) (addr uint64, ok bool) {
	if i == 0 {
		return 0, false
	}
	slot := r.Frames[i-1].saved
	if slot == 0 || slot == noSlot {
		return 0, false
	}
	return r.Frames[i].SP - uint64(slot), true
}

// A Frame is what is known of a frame besides its IP.
type Frame struct {
	// SP is its stack pointer, which for a caller is the CFA of the frame that it
	// called; 0 where that is unknown.
	SP     uint64
	pc, bp uint64
	// saved is where a fast rule finds the caller's BP: that many bytes below the CFA, or unchanged in BP
	// if 0. It is noSlot if the caller does not follow by a fast rule.
	saved uint32
	exact bool
	// Source is how the frame was found.
	Source Source
}

const noSlot = ^uint32(0)

// Reason is why a walk ended. What is to be said of a new one is in reasons below; in package counts, remedies say what
// a user can do about it.
type Reason uint8

const (
	// Root: the CFI says that the return address is undefined, as it does in _start and clone, or led to a
	// return address of 0, with which stacks of coroutines begin. The only end that makes a stack complete.
	Root Reason = iota
	// DumpTooShort: the next frame lies beyond the copied stack.
	DumpTooShort
	// NoCFI: no rule for the PC, and nothing else gave a credible frame.
	NoCFI
	// NoImage: the file behind the PC could not be opened or read.
	NoImage
	// BadCFI: the CFI is malformed, or gave a frame that cannot be.
	BadCFI
	// Unmapped: the PC, sampled or returned to, is in no mapping.
	Unmapped
	// DepthLimit: the walk reached its maximum number of frames.
	DepthLimit
	// UnknownRegister: the CFI needs a register whose value is not known: the kernel had not saved
	// it when it took the sample, or another function may have changed it.
	UnknownRegister
	// NotCopied: the CFI leads to memory that is neither in the copy nor where the stack goes on
	// beyond it, as when the caller is on another stack, or what is needed lies below SP, or above a frame that
	// is larger than any copy.
	NotCopied

	NumReasons = iota
)

// reasons describe each Reason. Recordings store the numbers, so new ones come last.
var reasons = [NumReasons]struct {
	name  string // in JSON and pprof's labels
	words string // in texts
	// mayBeBroken: walks end so where code has neither CFI nor frame pointers.
	mayBeBroken bool
}{
	Root:            {"root", "complete", false},
	DumpTooShort:    {"dump_too_short", "dump too short", false},
	NoCFI:           {"no_cfi", "no CFI", true},
	NoImage:         {"no_image", "file not readable", false},
	BadCFI:          {"bad_cfi", "CFI does not fit", true},
	Unmapped:        {"unmapped", "no mapping", true},
	DepthLimit:      {"depth_limit", "depth limit", false},
	UnknownRegister: {"unknown_register", "unknown register", true},
	NotCopied:       {"not_copied", "stack not copied", true},
}

func (r Reason) String() string {
	if r >= NumReasons {
		return "unknown"
	}
	return reasons[r].name
}

// Words says for people how the walk ended.
func (r Reason) Words() string {
	if r >= NumReasons {
		return r.String()
	}
	return reasons[r].words
}

// MayBeBroken reports whether a walk ends so where code has neither CFI nor frame pointers.
func (r Reason) MayBeBroken() bool { return r < NumReasons && reasons[r].mayBeBroken }

// Source is how a frame was found.
type Source uint8

const (
	BySample       Source = iota // the sampled PC itself
	ByCFI                        // a CFI rule
	ByFramePointer               // the saved frame pointer, where there is no CFI
	ByHeuristic                  // a guess that was checked
	ByLive                       // by a stack that was read from the process after the sample, or around it
	ByKernel                     // by the kernel's own walk along frame pointers, beyond the copy
	ByResuming                   // found again above generated code whose caller is not known
	ByLinks                      // seen there before and after the sample: see package link

	NumSources = iota
)

// sourceNames are the names in JSON.
var sourceNames = [NumSources]string{
	BySample: "sample", ByCFI: "cfi", ByFramePointer: "frame_pointer", ByHeuristic: "heuristic", ByLive: "live",
	ByKernel: "kernel_fp", ByResuming: "resumed", ByLinks: "joined",
}

func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return "unknown"
}

// Links adds to a log which frame has which caller, as a walk has shown. buf is scratch memory, which is
// returned for the next call.
//
// Frames that a signal interrupted are left out, as a handler at the same place on its stack may have
// interrupted any code, and so are frames that were not in the copy.
func (r *Result) Links(log *link.Log, space, time uint64, buf []link.Frame) []link.Frame {
	return r.links(log.Add, space, time, buf)
}

// links hands runs of frames to add, each the caller of the one before.
func (r *Result) links(add func(space, time uint64, frames []link.Frame, whole bool), space, time uint64,
	buf []link.Frame,
) []link.Frame {
	buf = slices.Grow(buf[:0], len(r.Frames))[:len(r.Frames)]
	ips, frames, first, sp := r.IPs[:len(buf)], r.Frames[:len(buf)], 0, uint64(0)
	for i := range buf {
		f := &frames[i]
		if !(f.SP > sp && i != r.grown && (f.isCall() || r.rest && f.Source == ByLive)) && i > 0 {
			add(space, time, buf[first:i], false)
			first = i
		}
		sp = f.SP
		buf[i] = link.Frame{SP: sp, PC: ips[i]}
	}
	// The scheduler's stack is whole at morestack only as long as there is no goroutine.
	add(space, time, buf[first:], r.End == Root && r.grown != len(buf))
	return buf
}

// HasGrown reports whether the walk went on from the stack of Go's scheduler to a goroutine's, by what was read.
func (r *Result) HasGrown() bool { return r.grown > 0 }

// HasSwitched reports whether the walk has left the stack that was sampled for another one, over a signal frame.
func (r *Result) HasSwitched() bool { return r.switched }

// Wish returns the address in the process that the walk over s needed last and could not read. The caller may read it
// when the thread is sampled again, and pass it in [Stack.Wished]. ok is false if the walk ended for another reason, or
// only needs more of the sampled stack.
func (r *Result) Wish(s *Stack) (addr uint64, ok bool) {
	const near = 8 << 20 // the rest of the sampled stack
	switch addr = s.missed; {
	case r.End != DumpTooShort && r.End != NotCopied, elsewhere(addr) != NotCopied, s.holds(addr), s.inRedZone(addr):
		return 0, false
	case r.switched, r.Elsewhere, s.wished(r.Frames[len(r.Frames)-1].SP-8) != nil:
	case r.Open > 0, addr-s.Base < near:
		return 0, false
	}
	return addr, true
}

// MarkRest says of the frames that were found by what was read when the stack was sampled that they are
// [ByLive], and whether the walk has needed any of that.
func (r *Result) MarkRest(s *Stack) (found bool) {
	if len(s.Rest) == 0 && len(s.Above.Data) == 0 && len(s.Wished) == 0 {
		return false
	}
	found = r.grown > 0
	for i := len(r.Frames) - 1; i > 0; i-- {
		at := r.Frames[i].SP - 8
		if isBehind := r.grown > 0 && i >= r.grown; isBehind || !s.copied(at) && s.holds(at) {
			if found = true; r.Frames[i].Source == ByCFI { // a guess stays one, wherever its memory is from
				r.Frames[i].Source = ByLive
			}
		} else if len(s.Wished) == 0 {
			break
		}
	}
	r.rest = found
	return found
}

// LargestFrame gives SP and CFA of the largest frame of at least least bytes that ends behind the copy. They
// are 0 if there is none.
func (r *Result) LargestFrame(s *Stack, least uint64) (sp, cfa uint64) {
	frames, end := r.Frames, s.Base+uint64(len(s.Data))
	if r.grown > 0 { // they are not all on one stack
		return 0, 0
	}
	for i := len(frames) - 1; i > 0 && frames[i].SP > end; i-- {
		if size := frames[i].SP - frames[i-1].SP; frames[i-1].SP < frames[i].SP && size >= least {
			sp, cfa, least = frames[i-1].SP, frames[i].SP, size
		}
	}
	if r.Open > 0 { // the last frame ends behind the copy, too
		last := &r.Frames[r.Open-1]
		if end := max(last.SP, r.CFA, r.SavedCFA); last.SP != 0 && end-last.SP >= least {
			return last.SP, end
		}
	}
	return sp, cfa
}

// isCall reports whether a frame was found, in the copy, as the caller of the one before.
func (f *Frame) isCall() bool {
	const calls = 1<<ByCFI | 1<<ByFramePointer | 1<<ByHeuristic
	return !f.exact && calls>>f.Source&1 != 0
}

// Depth is how many bytes of stack lie between the first frame and the last one that was found in the copy.
func (r *Result) Depth() uint64 {
	n := len(r.Frames)
	if r.Open > 0 {
		n = r.Open
	}
	if n == 0 || r.grown > 0 || r.Frames[n-1].SP < r.Frames[0].SP {
		return 0
	}
	return r.Frames[n-1].SP - r.Frames[0].SP
}

// Join completes the stack of a walk that is Open with its callers at the time of the sample, as a log tells
// them, to a stack of at most most frames. buf is scratch memory, which is returned for the next call.
// Nothing is changed unless the outcome [link.LookupOutcome.IsJoined].
func (r *Result) Join(log *link.Log, space, time uint64, most int, buf []link.Frame) (
	[]link.Frame, link.LookupOutcome,
) {
	last := &r.Frames[r.Open-1]
	from := link.Wanted{Frame: link.Frame{SP: last.SP, PC: r.IPs[r.Open-1]}, Within: r.Within, CFA: r.CFA}
	callers, outcome := log.Callers(buf[:0], space, time, from, most-r.Open)
	if !outcome.IsJoined() {
		return callers, outcome
	}
	// The callers that the kernel found beyond the copy have to be the same.
	for i, ip := range r.IPs[r.Open:] {
		if i >= len(callers) || callers[i].PC != ip {
			return callers, link.Disagree
		}
	}
	r.IPs, r.Frames = r.IPs[:r.Open], r.Frames[:r.Open]
	for _, c := range callers {
		r.IPs = append(r.IPs, c.PC)
		r.Frames = append(r.Frames, Frame{SP: c.SP, pc: c.PC, saved: noSlot, Source: ByLinks})
	}
	r.End, r.At, r.Open = Root, nil, 0
	return callers, outcome
}
