package counts

import (
	"time"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/link"
	"unspool/vmas"
)

// Stats are the counts of a recording. Samples counts every sample, User those with a user stack, even if
// that is only the sampled PC.
type Stats struct {
	Samples   uint64
	User      uint64
	Exec      uint64 // of the others: inside execve, with the registers of the replaced program
	Lost      uint64 // samples and other records for which a ring had no room
	Throttled uint64
	Malformed uint64 // records that could not be decoded
	Denied    uint64 // of User: the mappings of the process may not be read

	LeftOut uint64 // processes that were not sampled, nor read, as they or those of their user have too many mappings
	Early   uint64 // samples of processes that have so many that they were not all read

	Forgotten vmas.Forgotten // of the processes, what there was no room for

	CommandLines CommandLines

	OfflineCPUs []int // CPUs that went offline meanwhile, in that order

	Rings perfring.RingUse // none of a conversion

	Excluded [numExclusions]uint64 // samples that are left out, and not in the counts above

	Frames  uint64 // of user stacks
	Ended   [unwind.NumReasons]uint64
	Cut     [numCuts]uint64 // of the user stacks that ended with DumpTooShort
	Guessed uint64          // complete ones with a frame that was not found by CFI
	// Links counts the stacks that the copy cut off by the outcome of completing them. The joined ones are in
	// Complete, and not in Guessed.
	Links    [link.NumOutcomes]uint64
	FramesBy [unwind.NumSources]uint64

	StackCopied uint64 // bytes of stack that the kernel copied into the rings
	Written     uint64 // bytes of the recording

	Command  []string
	Duration time.Duration // with the events enabled
	CPU      time.Duration // of this process and of its opener from start to end, user and system
	Start    time.Duration // of that, until the events were enabled
	Busy     time.Duration // of that, from enabling the events to the last sample written
	MaxRSS   uint64        // bytes
	Priority string        // of this process while it recorded, "" for a conversion: see package priority
}

// CommandLines counts the programs that were sampled by what became of their command lines.
type CommandLines struct {
	Kept    uint64 // they are recorded
	Unread  uint64 // it had ended before
	LeftOut uint64 // too many programs were executed
}

// ProgramsPerSecond is of how many programs the command lines are read.
const ProgramsPerSecond = 500

// A Cut says why the copy of a stack ends before the stack does.
type Cut uint8

const (
	// TooDeep: the copy has the size that was asked for.
	TooDeep Cut = iota
	// Gap: the copy ends at a page that is not in memory. The kernel faults none in.
	Gap
	// NoCopy: SP itself is on such a page, and the copy is empty.
	NoCopy

	numCuts = iota
)

var cutNames = [numCuts]string{"too_deep", "gap", "no_copy"}

// cutOf returns why the copy of a sample's stack ends.
func cutOf(sm *perfring.Sample) Cut {
	switch {
	case sm.DynSize == 0:
		return NoCopy
	case sm.DynSize < sm.StackSize:
		return Gap
	}
	return TooDeep
}

// Complete is the number of user stacks that reached their root.
func (s *Stats) Complete() uint64 { return s.Ended[unwind.Root] }

// Joined is the number of complete stacks that were cut off and completed: those that were joined, and those
// whose rest was read.
func (s *Stats) Joined() uint64 {
	return s.Links[link.Joined] + s.Links[link.Read]
}

// ByCFI is the number of complete stacks that were found by CFI alone.
func (s *Stats) ByCFI() uint64 { return s.Complete() - s.Guessed - s.Joined() }

// End is the CPU time after the last sample was written.
func (s *Stats) End() time.Duration { return s.CPU - s.Start - s.Busy }

// CPUShare is the share of one CPU that unspool took while it recorded.
func (s *Stats) CPUShare() float64 {
	if s.Duration <= 0 {
		return 0
	}
	return s.Busy.Seconds() / s.Duration.Seconds()
}

// Walked counts a sample whose user stack was walked, and which nothing changes any more.
func (s *Stats) Walked(w *perfdata.Walked) {
	r, joined := w.Result, w.Links.IsJoined()
	s.User++
	s.Ended[r.End]++
	if r.End == unwind.DumpTooShort {
		s.Cut[cutOf(w.Sample)]++
	}
	if joined || r.End == unwind.DumpTooShort {
		s.Links[w.Links]++
	}
	if w.Place == DeniedPlace {
		s.Denied++
	}
	s.Frames += uint64(len(r.IPs))
	guessed := s.countSources(r.Frames)
	if guessed && !joined && r.End == unwind.Root {
		s.Guessed++
	}
}

// countSources counts how the frames of a stack were found, and reports whether some were not found by CFI. As
// nearly all are, only the others are counted one by one.
func (s *Stats) countSources(frames []unwind.Frame) (guessed bool) {
	others, before := 0, s.FramesBy[unwind.BySample]
	for i := range frames {
		if by := frames[i].Source; by != unwind.ByCFI {
			others++
			s.FramesBy[by]++
		}
	}
	s.FramesBy[unwind.ByCFI] += uint64(len(frames) - others)
	return uint64(others) > s.FramesBy[unwind.BySample]-before
}

// Sum adds up what several sessions have counted.
func Sum(all []Stats) (total Stats) {
	for i := range all {
		s := &all[i]
		total.Samples += s.Samples
		total.User += s.User
		total.Exec += s.Exec
		total.Lost += s.Lost
		total.Throttled += s.Throttled
		total.Malformed += s.Malformed
		total.Denied += s.Denied
		total.Frames += s.Frames
		total.Guessed += s.Guessed
		total.StackCopied += s.StackCopied
		total.Early += s.Early
		for e, n := range s.Excluded {
			total.Excluded[e] += n
		}
		for o, n := range s.Links {
			total.Links[o] += n
		}
		for r, n := range s.Ended {
			total.Ended[r] += n
		}
		for c, n := range s.Cut {
			total.Cut[c] += n
		}
		for by, n := range s.FramesBy {
			total.FramesBy[by] += n
		}
	}
	return total
}

// A Result is what was counted of a recording or a conversion.
type Result struct {
	Stats   Stats
	Trouble *Trouble
	// Started means that events were enabled, or the output begun: there is something to summarize.
	Started bool
}
