package main

import (
	"runtime"
	"slices"
	"time"
	"unsafe"

	"unspool/capture"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/image"
	"unspool/vmas"
)

// A walk is the state of passes over a recording: address spaces and images.
type walk struct {
	*recording
	table    *vmas.Table
	images   *image.Store
	session  *capture.Session // for records that are no samples
	unwinder *unwind.Unwinder
	stack    unwind.Stack
	res      unwind.Result

	// block is where the stacks of a block are when they are walked, nil to walk
	// them where they lie.
	block []byte
	// words are the places, in the stacks of each block, of what a walk cannot do
	// without.
	words  [][]uint32
	frames int
}

// begin returns a walk that knows nothing yet.
func (r *recording) begin() *walk {
	w := &walk{recording: r, table: vmas.NewTable(""), block: make([]byte, blockSize)}
	w.images = image.NewOfflineStore(r.offline)
	w.session = capture.NewSession(&r.format, w.table, w.images, discard{}, maxStack, false)
	w.unwinder = unwind.NewUnwinder(w.images)
	w.unwinder.MaxFrames = maxStack
	return w
}

// maxStack is what the command line has for --max-stack.
const maxStack = 2048

type discard struct{}

func (discard) Write([]byte) error { return nil }

// times are what the parts of a pass took, each the least of all passes.
type times []time.Duration

// note takes in the time of part number at: they come in order.
func (t *times) note(at int, d time.Duration) {
	if at == len(*t) {
		*t = append(*t, d)
	}
	(*t)[at] = min((*t)[at], d)
}

// total adds up, less the price of measuring.
func (t times) total() (sum time.Duration) {
	price := clockPrice()
	for _, d := range t {
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

// stacksOf gives the stacks of a block, as if they had been read from the file just
// now.
func (w *walk) stacksOf(b *block) []byte {
	data := w.stacks[b.at:b.end:b.end]
	if w.block == nil {
		return data
	}
	return w.block[:copy(w.block, data)]
}

// pass walks all stacks once, and notes what walks and other records take unless
// walked is nil.
func (w *walk) pass(walked, records *times) error {
	part := 0
	for i := range w.blocks {
		b := &w.blocks[i]
		data := w.stacksOf(b)
		for k := range b.runs {
			n := &b.runs[k]
			begun := time.Now()
			if err := w.apply(n.records); err != nil {
				return err
			}
			if walked != nil {
				records.note(part, time.Since(begun))
			}
			begun = time.Now()
			for s := n.from; s < n.to; s++ {
				w.sample(&w.samples[s], data[w.samples[s].at-b.at:])
			}
			if walked != nil {
				walked.note(part, time.Since(begun))
			}
			part++
		}
	}
	return nil
}

// apply brings the address spaces up to date.
func (w *walk) apply(records []perfring.Record) error {
	for _, rec := range records {
		if err := w.session.Record(rec); err != nil {
			return err
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
	sp, _ := it.regs.Get(unwind.SP)
	w.stack = unwind.Stack{Base: sp, Data: data[:it.size:it.size], Asked: it.asked, Thread: it.tid}
	w.res = w.unwinder.Unwind(space, &it.regs, &w.stack)
	return true
}

// survey notes what the floor loads: the words that hold the return address of each
// frame, and its BP where it is saved.
func (w *walk) survey() error {
	w.frames, w.words = 0, make([][]uint32, len(w.blocks))
	for i := range w.blocks {
		b := &w.blocks[i]
		for _, n := range b.runs {
			if err := w.apply(n.records); err != nil {
				return err
			}
			for s := n.from; s < n.to; s++ {
				if w.sample(&w.samples[s], w.stacks[w.samples[s].at:]) {
					w.words[i] = w.loads(w.words[i], &w.samples[s], b.at)
				}
			}
		}
		w.words[i] = slices.Clip(w.words[i])
	}
	return nil
}

// loads adds those of the sample that was walked last.
func (w *walk) loads(words []uint32, it *sample, from int) []uint32 {
	note := func(addr uint64) {
		if off := addr - w.stack.Base; it.size >= 8 && off <= uint64(it.size-8) {
			words = append(words, uint32(it.at-from)+uint32(off))
		}
	}
	w.frames += len(w.res.IPs)
	for f := 1; f < len(w.res.Frames); f++ {
		note(w.res.Frames[f].SP - 8)
		if addr, ok := w.res.SavedBP(f); ok {
			note(addr)
		}
	}
	return words
}

// zero makes one load depend on another.
var zero uint64

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
func (w *walk) touch(load func(unsafe.Pointer, []uint32) uint64, t *times) {
	for i := range w.blocks {
		data := w.stacksOf(&w.blocks[i])
		begun := time.Now()
		if len(data) > 0 {
			runtime.KeepAlive(load(unsafe.Pointer(&data[0]), w.words[i]))
		}
		t.note(i, time.Since(begun))
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
	var walked, records, turned, touched times
	runtime.GC()
	for range passes {
		if err := w.pass(&walked, &records); err != nil {
			return nil, err
		}
		w.touch(inTurn, &turned)
		w.touch(atOnce, &touched)
	}
	s := &speed{
		samples: len(w.samples), frames: w.frames,
		walk: walked.total(), records: records.total(),
		floor: turned.total(), atOnce: touched.total(),
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
		var walked, records times
		if err := w.pass(&walked, &records); err != nil {
			return nil, 0, err
		}
		least = min(least, walked.total()+records.total())
	}
	return w, least, nil
}

// allocations counts those that the walks of a pass make.
func (w *walk) allocations() (n uint64, err error) {
	var before, after runtime.MemStats
	for i := range w.blocks {
		for _, r := range w.blocks[i].runs {
			if err := w.apply(r.records); err != nil {
				return 0, err
			}
			runtime.ReadMemStats(&before)
			for s := r.from; s < r.to; s++ {
				w.sample(&w.samples[s], w.stacks[w.samples[s].at:])
			}
			runtime.ReadMemStats(&after)
			n += after.Mallocs - before.Mallocs
		}
	}
	return n, nil
}
