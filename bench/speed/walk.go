package main

import (
	"runtime"
	"slices"
	"time"
	"unsafe"

	"unspool/capture/perfdata"
	"unspool/capture/session"
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
	session  *session.Session // for records other than samples
	unwinder *unwind.Unwinder
	stack    unwind.Stack
	res      unwind.Result

	// block is the buffer to which the stacks of a block are copied before they are
	// walked; nil to walk them in place.
	block []byte
	// words are the offsets, in the stacks of each block, of the words that every walk
	// has to load.
	words  [][]uint32
	frames int
}

// begin returns a walk with empty caches.
func (r *recording) begin() *walk {
	w := &walk{recording: r, block: make([]byte, blockSize)}
	w.session = session.New(session.Config{
		Format: &r.format, Sink: discard{}, Offline: &r.offline, MaxStack: maxStack,
	})
	w.table, w.images = w.session.Table(), w.session.Images()
	w.unwinder = unwind.NewUnwinder(w.images)
	w.unwinder.MaxFrames = maxStack
	return w
}

// maxStack is the default of --max-stack.
const maxStack = 2048

type discard struct{}

func (discard) Write([]byte) error { return nil }

func (discard) WriteSample(*perfdata.Walked) error { return nil }

// times are the times of the parts of a pass, each the shortest of all passes.
type times []time.Duration

// note adds the time of part number at. The parts come in order.
func (t *times) note(at int, d time.Duration) {
	if at == len(*t) {
		*t = append(*t, d)
	}
	(*t)[at] = min((*t)[at], d)
}

// total adds up the times, without the cost of measuring them.
func (t times) total() (sum time.Duration) {
	price := clockPrice()
	for _, d := range t {
		sum += max(0, d-price)
	}
	return max(sum, 1)
}

// clockPrice is the time that it takes to read the clock twice.
func clockPrice() time.Duration {
	least := time.Hour
	for range 10000 {
		begun := time.Now()
		least = min(least, time.Since(begun))
	}
	return least
}

// stacksOf gives the stacks of a block in the cache, as if they had just been read from
// the file.
func (w *walk) stacksOf(b *block) []byte {
	data := w.stacks[b.at:b.end:b.end]
	if w.block == nil {
		return data
	}
	return w.block[:copy(w.block, data)]
}

// pass walks all stacks once. Unless walked is nil, it notes the times of walks and of
// other records.
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

// apply applies records to the address spaces.
func (w *walk) apply(records []perfring.Record) error {
	for _, rec := range records {
		if err := w.session.Record(rec); err != nil {
			return err
		}
	}
	return nil
}

// sample walks one stack, which is at the beginning of data.
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

// survey notes the words that the floor loads: those with the return address of each
// frame, and with its BP if that is saved.
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

// loads adds the loads of the sample that was walked last.
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

// inTurn is the floor: a pass that only loads the words one after the other. Each load
// begins when the one before is done, as in a walk, which learns from a frame where
// the next one is.
func inTurn(base unsafe.Pointer, words []uint32) (v uint64) {
	for _, off := range words {
		// The survey has checked that the word is there.
		v = *(*uint64)(unsafe.Add(base, uint64(off)+v&zero))
	}
	return v
}

// atOnce loads the words as fast as the processor can: it does many loads at the same
// time if it knows all addresses before.
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

// A speed is the result of passes over a recording.
type speed struct {
	samples, frames int
	walk            time.Duration // of one pass
	floor, atOnce   time.Duration
	records         time.Duration // for records other than samples
	allocs          float64       // per sample
}

func (s *speed) ratio() float64     { return float64(s.walk) / float64(s.floor) }
func (s *speed) perSample() float64 { return float64(s.walk) / float64(s.samples) }

func (s *speed) perFrame(d time.Duration) float64 { return float64(d) / float64(s.frames) }

// warm measures passes of the walk and of the floors by turns, so that other load on
// the machine affects all of them.
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

// cold is the time of the first pass, with everything that has to be opened and decoded
// for it: the shortest of several. It leaves the walk with the caches of the last one.
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

// allocations counts the allocations in the walks of a pass.
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
