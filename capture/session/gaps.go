package session

import (
	"sync"
	"time"

	"unspool/perfring"
	"unspool/vmas/credit"
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
	// Closing gaps may take one gapShare of all time, and mostGapTime at once. priceOfGap is what one costs: the pages
	// that are read are new.
	gapShare    = 25
	mostGapTime = 1600 * time.Microsecond
	priceOfGap  = 600 * time.Microsecond
)

// gaps are closed beside the session, as reading may have to wait for a process.
type gaps struct {
	memory process.Memory      // for a goroutine of its own
	read   map[stackGap]uint64 // when, by process and page
	credit credit.Credit
	isNew  bool // some were seen that were not known, since the session last asked

	mu      sync.Mutex
	waiting []stackGap
	busy    bool // a goroutine closes them
}

func newGaps(memory process.Memory) *gaps {
	return &gaps{memory: memory, read: make(map[stackGap]uint64), credit: credit.New(gapShare, mostGapTime)}
}

// note queues a gap that was seen at a time to be closed, unless it was read already.
func (g *gaps) note(gap stackGap, now uint64) {
	const page = 4096
	key := stackGap{pid: gap.pid, start: gap.start / page}
	if last, known := g.read[key]; known && now-min(now, last) < gapAgain || !g.credit.Allows(credit.At(now)) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) >= maxGaps {
		return
	}
	if len(g.read) >= maxCutSpaces {
		clear(g.read)
	}
	g.read[key] = now
	g.credit.Spend(priceOfGap)
	g.isNew = true
	if g.waiting = append(g.waiting, gap); !g.busy {
		g.busy = true
		go g.close()
	}
}

// close closes gaps until none waits.
func (g *gaps) close() {
	buf := make([]byte, max(belowSize, perfring.MaxStackSize))
	for {
		g.mu.Lock()
		if len(g.waiting) == 0 {
			g.busy = false
			g.mu.Unlock()
			return
		}
		gap := g.waiting[0]
		g.waiting = g.waiting[1:]
		g.mu.Unlock()
		gap.close(g.memory, buf)
	}
}

// close reads the gap, and before that what is below SP, downwards as far as it is there. What is there is of no
// interest.
func (g *stackGap) close(memory process.Memory, buf []byte) {
	for n := uint64(1); n <= belowReads && g.sp > n*belowSize; n++ {
		if memory.ReadMemory(g.pid, buf[:belowSize], g.sp-n*belowSize) < belowSize {
			break
		}
	}
	memory.ReadMemory(g.pid, buf[:min(g.end-g.start, perfring.MaxStackSize)], g.start)
}
