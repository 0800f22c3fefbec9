package capture

import (
	"unspool/perfring"
	"unspool/vmas/process"
)

// A stackGap is where the copy of a stack has ended at a page that was never touched, up to where it was to
// end. The kernel faults none in for a copy, but does so for a read, which gives the page of zeros without
// memory being taken for it. So one read has all later copies go on beyond the gap.
type stackGap struct {
	pid        uint32
	start, end uint64
	sp         uint64 // of the sample
}

const (
	maxGaps = 16 // that wait
	// A function that leaves a gap is called at other depths, too: what is below SP is read as well, so much at
	// a time, so often.
	belowSize  = 64 << 10
	belowReads = 2
	// gapAgain is how long a gap is not read again, which may be one that no read closes.
	gapAgain = uint64(1_000_000_000)
)

// gaps are those that wait to be read.
type gaps struct {
	waiting []stackGap
	read    map[stackGap]uint64 // when, by process and page
}

// note keeps a gap that was seen at a time, unless it was read already. It reports whether it did.
func (g *gaps) note(gap stackGap, now uint64) bool {
	const page = 4096
	key := stackGap{pid: gap.pid, start: gap.start / page}
	if last, known := g.read[key]; known && now-min(now, last) < gapAgain || len(g.waiting) >= maxGaps {
		return false
	}
	if g.read == nil || len(g.read) >= maxCutSpaces {
		g.read = make(map[stackGap]uint64)
	}
	g.read[key] = now
	g.waiting = append(g.waiting, gap)
	return true
}

// parts are what is to be read to close a gap: it, and before that what is below SP, downwards. What is there
// is of no interest.
func (g *stackGap) parts() (parts []process.Part) {
	for n := uint64(1); n <= belowReads && g.sp > n*belowSize; n++ {
		parts = append(parts, process.Part{Start: g.sp - n*belowSize, Size: belowSize})
	}
	size := int(min(g.end-g.start, perfring.MaxStackSize))
	return append(parts, process.Part{Start: g.start, Size: size})
}
