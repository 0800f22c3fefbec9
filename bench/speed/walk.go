package main

import (
	"runtime"
	"time"
	"unsafe"

	"unspool/capture"
	"unspool/unwind"
	"unspool/vmas"
)

// A walk is the state of passes over a recording: address spaces and images.
type walk struct {
	*recording
	table    *vmas.Table
	images   *unwind.Images
	session  *capture.Session // for records that are no samples
	unwinder *unwind.Unwinder
	stack    unwind.Stack
	regs     unwind.Regs
	res      unwind.Result

	// block is where the stacks of a run are when they are walked, nil to walk
	// them where they lie.
	block []byte
	// words are the places, in the stacks of each run, of what a walk cannot do
	// without.
	words  [][]uint32
	frames int
}

// begin returns a walk that knows nothing yet.
func (r *recording) begin() *walk {
	w := &walk{recording: r, table: vmas.NewTable(""), images: unwind.NewOfflineImages(r.offline), block: make([]byte, blockSize)}
	w.session = capture.NewSession(&r.format, w.table, w.images, discard{}, maxStack, false)
	w.unwinder = unwind.NewUnwinder(w.images)
	w.unwinder.MaxFrames = maxStack
	return w
}

// maxStack is what the command line has for --max-stack.
const maxStack = 2048

type discard struct{}

func (discard) Write([]byte) error { return nil }

// spent is the time that each run of a pass took, the least of all passes.
type spent struct {
	samples []time.Duration
	records []time.Duration
}

func (r *recording) newSpent() *spent {
	s := &spent{make([]time.Duration, len(r.runs)), make([]time.Duration, len(r.runs))}
	for i := range r.runs {
		s.samples[i], s.records[i] = 1<<62, 1<<62
	}
	return s
}

// total adds up, less the price of measuring.
func total(runs []time.Duration) (sum time.Duration) {
	price := clockPrice()
	for _, d := range runs {
		sum += max(0, d-price)
	}
	return max(sum, 1)
}

// clockPrice is what it takes to read the clock twice.
func clockPrice() time.Duration {
	least := time.Hour
	for range 10000 {
		begun := time.Now()
		least = min(least, time.Since(begun))
	}
	return least
}

// stacksOf gives the stacks of a run: in the block, as if they had been read from
// the file just now.
func (w *walk) stacksOf(n *run) []byte {
	data := w.stacks[n.at:n.end:n.end]
	if w.block == nil {
		return data
	}
	if len(data) > len(w.block) {
		w.block = make([]byte, len(data)) // a single large stack
	}
	return w.block[:copy(w.block, data)]
}

// pass walks all stacks once.
func (w *walk) pass(s *spent) error {
	for i := range w.runs {
		n := &w.runs[i]
		begun := time.Now()
		for _, rec := range n.records {
			if err := w.session.Record(rec); err != nil {
				return err
			}
		}
		if s != nil {
			s.records[i] = min(s.records[i], time.Since(begun))
		}
		data := w.stacksOf(n)
		begun = time.Now()
		for k := range n.samples {
			w.sample(&n.samples[k], data[n.samples[k].at-n.at:])
		}
		if s != nil {
			s.samples[i] = min(s.samples[i], time.Since(begun))
		}
	}
	return nil
}

// sample walks one stack, which data begins with.
func (w *walk) sample(it *sample, data []byte) bool {
	space := w.table.Space(it.pid)
	if space == nil {
		return false
	}
	w.regs = it.regs // the walk's to change
	sp, _ := w.regs.Get(unwind.SP)
	w.stack = unwind.Stack{Base: sp, Data: data[:it.size:it.size], Asked: it.asked, Thread: it.tid}
	w.res = w.unwinder.Unwind(space, &w.regs, &w.stack)
	return true
}

// survey notes what the floor loads: the words that hold the return address of each
// frame, and its BP where it is saved.
func (w *walk) survey() error {
	w.frames, w.words = 0, make([][]uint32, len(w.runs))
	var all []uint32
	ends := make([]int, len(w.runs))
	for i := range w.runs {
		n := &w.runs[i]
		for _, rec := range n.records {
			if err := w.session.Record(rec); err != nil {
				return err
			}
		}
		for k := range n.samples {
			it := &n.samples[k]
			if !w.sample(it, w.stacks[it.at:]) {
				continue
			}
			note := func(addr uint64) {
				if off := addr - w.stack.Base; it.size >= 8 && off <= uint64(it.size-8) {
					all = append(all, uint32(it.at-n.at)+uint32(off))
				}
			}
			w.frames += len(w.res.IPs)
			for f := 1; f < len(w.res.Frames); f++ {
				note(w.res.Frames[f].SP - 8)
				if addr, ok := w.res.SavedBP(f); ok {
					note(addr)
				}
			}
		}
		ends[i] = len(all)
	}
	at := 0
	for i, end := range ends {
		w.words[i], at = all[at:end], end
	}
	return nil
}

// sink keeps the loads of the floor, and zero makes one depend on another.
var sink, zero uint64

// inTurn is the floor: a pass that does nothing but load the words one after the
// other, each when the one before has come, as a walk has to, which knows the
// place of a frame from the one before it.
func inTurn(base unsafe.Pointer, words []uint32) (v uint64) {
	for _, off := range words {
		// The survey has seen that the word is there: no check.
		v = *(*uint64)(unsafe.Add(base, uint64(off)+v&zero))
	}
	return v
}

// atOnce loads them as fast as the processor can, which has many loads under way
// when it knows all places before.
func atOnce(base unsafe.Pointer, words []uint32) (sum uint64) {
	for _, off := range words {
		sum += *(*uint64)(unsafe.Add(base, off))
	}
	return sum
}

// touch is a pass of a floor.
func (w *walk) touch(load func(unsafe.Pointer, []uint32) uint64, s *spent) {
	for i := range w.runs {
		data := w.stacksOf(&w.runs[i])
		words := w.words[i]
		if len(words) == 0 {
			s.samples[i] = 0
			continue
		}
		begun := time.Now()
		sink += load(unsafe.Pointer(&data[0]), words)
		s.samples[i] = min(s.samples[i], time.Since(begun))
	}
}

// A speed is what passes over a recording have shown.
type speed struct {
	samples, frames int
	walk            time.Duration // of one pass
	floor, atOnce   time.Duration
	records         time.Duration // for what is no sample
	allocs          float64       // per sample
}

func (s *speed) ratio() float64     { return float64(s.walk) / float64(s.floor) }
func (s *speed) perSample() float64 { return float64(s.walk) / float64(s.samples) }

func (s *speed) perFrame(d time.Duration) float64 { return float64(d) / float64(s.frames) }

// warm measures passes of the walk and of the floors by turns, so that what else
// the machine does hits all.
func (w *walk) warm(passes int) (*speed, error) {
	if err := w.survey(); err != nil {
		return nil, err
	}
	walked, turned, touched := w.newSpent(), w.newSpent(), w.newSpent()
	runtime.GC()
	for range passes {
		if err := w.pass(walked); err != nil {
			return nil, err
		}
		w.touch(inTurn, turned)
		w.touch(atOnce, touched)
	}
	s := &speed{
		samples: len(w.samples), frames: w.frames,
		walk: total(walked.samples), floor: total(turned.samples), atOnce: total(touched.samples),
		records: total(walked.records),
	}
	allocs, err := w.allocations()
	s.allocs = float64(allocs) / float64(len(w.samples))
	return s, err
}

// cold is the time of the first pass, with everything that has to be opened and
// decoded for it: the least of several. The walk is then as the pass has left it.
func (r *recording) cold(passes int) (w *walk, least time.Duration, err error) {
	least = 1 << 62
	for range passes {
		w = r.begin()
		runtime.GC()
		s := r.newSpent()
		if err := w.pass(s); err != nil {
			return nil, 0, err
		}
		least = min(least, total(s.samples)+total(s.records))
	}
	return w, least, nil
}

// allocations counts those that the walks of a pass make.
func (w *walk) allocations() (n uint64, err error) {
	var before, after runtime.MemStats
	for i := range w.runs {
		r := &w.runs[i]
		for _, rec := range r.records {
			if err := w.session.Record(rec); err != nil {
				return 0, err
			}
		}
		runtime.ReadMemStats(&before)
		for k := range r.samples {
			w.sample(&r.samples[k], w.stacks[r.samples[k].at:])
		}
		runtime.ReadMemStats(&after)
		n += after.Mallocs - before.Mallocs
	}
	return n, nil
}
