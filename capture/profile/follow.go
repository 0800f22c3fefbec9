package profile

import (
	"time"

	"unspool/capture/perfdata"
	"unspool/capture/symbols"
	"unspool/perfring"
)

const (
	// forgetAfter is how long names that were looked up are kept while a recording is followed: files are
	// replaced, processes generate more code, and what may be read of both is bounded.
	forgetAfter = 2 * time.Minute
	// mostFrames is how many different addresses are kept.
	mostFrames = 1 << 18
	// rereadAfter is how long the names of generated code are kept of a process that has generated more.
	rereadAfter = 10 * time.Second
)

// A follower is a loader of a recording that is being made.
type follower struct {
	*loader
	names symbols.Options
	fresh uint64 // time of the first sample that the names were looked up for

	describeAgain func() // tells a new profile what the recording says about itself

	// Threads that have ended, in this round and in the one before: samples of theirs may still follow.
	ended, endedBefore map[uint64]bool
}

// Follow reads a recording that is being made, through a pipe, until its end. It calls fn for every round of
// it that has samples (see perfdata.Reader.Ordered), with a profile of these alone, by function, which
// belongs to fn. What was lost is counted from the beginning. Memory depends on what runs, and not on how long the
// recording is. The error is that of the reader, damage included, or of fn.
func Follow(r *perfdata.Reader, names symbols.Options, fn func(*Profile) error) error {
	f := newFollower(r.Event, names)
	f.describeAgain = func() { f.describe(r) }
	described := false
	err := r.Ordered(func(rec perfring.Record, format *perfring.SampleFormat, time uint64) error {
		if !described {
			described = true
			f.describe(r)
		}
		f.take(rec, format, time)
		if rec.Type() != perfring.RecordFinishedRound {
			return nil
		}
		return f.round(fn)
	})
	if err != nil {
		return err
	}
	return f.round(fn)
}

func newFollower(event func(id uint64) int, names symbols.Options) *follower {
	f := &follower{
		loader: newLoader(symbols.New(names)), names: names,
		ended: make(map[uint64]bool), endedBefore: make(map[uint64]bool),
	}
	f.event, f.follows, f.reread = event, true, rereadAfter
	return f
}

// take applies a record.
func (f *follower) take(rec perfring.Record, format *perfring.SampleFormat, time uint64) {
	f.note(rec)
	f.record(rec, format, time)
}

// note notes which threads have ended.
func (f *follower) note(rec perfring.Record) {
	var d perfring.Task
	switch rec.Type() {
	case perfring.RecordExit, perfring.RecordFork:
		if perfring.DecodeTask(rec, &d) != nil {
			return
		}
	default:
		return
	}
	key := threadKey(d.PID, d.TID)
	if rec.Type() == perfring.RecordExit {
		f.ended[key] = true
		return
	}
	delete(f.ended, key)
	delete(f.endedBefore, key)
}

// round hands on the samples of a round.
func (f *follower) round(fn func(*Profile) error) error {
	var err error
	if len(f.p.Samples) > 0 {
		err = fn(f.part())
		f.restart()
	}
	f.forgetEnded()
	return err
}

// part is the profile of the round.
func (f *follower) part() *Profile {
	f.nameOthers()
	p := f.p.onlyUsed().ByFunction()
	p.First, p.Duration = f.first, time.Duration(f.last-f.first)
	p.LostRecords, p.LostSamples, p.Throttled = f.lost.Records, f.lost.Samples, f.lost.Throttled
	return p
}

// restart begins the next round. Frames and images stay, unless it is time for new ones.
func (f *follower) restart() {
	if f.fresh == 0 {
		f.fresh = f.first
	}
	old := f.loader.builder
	if f.last-f.fresh > uint64(forgetAfter) || len(old.p.Frames) > mostFrames {
		f.loader.builder = newBuilder(symbols.New(f.names))
		f.reread, f.dumps, f.fresh = old.reread, old.dumps, 0
		f.describeAgain()
	}
	f.p.Threads, f.p.Losses = nil, nil
	clear(f.threads)
	clear(f.current)
	f.plantAnew()
	f.first, f.last = 0, 0
}

// forgetEnded forgets the threads that ended before the round that is over.
func (f *follower) forgetEnded() {
	for key := range f.endedBefore {
		delete(f.comms, key)
		pid := uint32(key >> 32)
		delete(f.guessed, pid)
		if pid == uint32(key) {
			delete(f.dumps, pid)
			delete(f.generated, pid)
			delete(f.generators, pid)
		}
	}
	clear(f.endedBefore)
	f.ended, f.endedBefore = f.endedBefore, f.ended
}

// onlyUsed returns the profile with the frames and images only that its stacks have.
func (p *Profile) onlyUsed() *Profile {
	q := *p
	q.Images, q.Frames, q.Nodes = nil, nil, make([]Node, len(p.Nodes))
	frames, images := make(map[int32]int32), make(map[int32]int32)
	for i, n := range p.Nodes {
		if n.Frame >= 0 {
			at, ok := frames[n.Frame]
			if !ok {
				at = int32(len(q.Frames))
				frames[n.Frame] = at
				f := p.Frames[n.Frame]
				f.Image = q.takeImage(p, f.Image, images)
				q.Frames = append(q.Frames, f)
			}
			n.Frame = at
		}
		q.Nodes[i] = n
	}
	return &q
}

// takeImage returns the index of an image of another profile in this one; taken are those that it has.
func (p *Profile) takeImage(from *Profile, image int32, taken map[int32]int32) int32 {
	at, ok := taken[image]
	if !ok {
		at = int32(len(p.Images))
		taken[image] = at
		p.Images = append(p.Images, from.Images[image])
	}
	return at
}

// Merge adds up parts of a recording, as Follow makes them, in the order of time. The parts are not changed.
func Merge(parts []*Profile) *Profile {
	b := newBuilder(nil)
	for _, part := range parts {
		b.merge(part)
	}
	return b.p
}

func (b *builder) merge(part *Profile) {
	p := b.p
	if p.First == 0 {
		p.First = part.First
	}
	p.Duration = time.Duration(part.First-p.First) + part.Duration
	p.Events, p.CPUs = part.Events, part.CPUs
	p.LostRecords, p.LostSamples, p.Throttled = part.LostRecords, part.LostSamples, part.Throttled
	images, frames := make([]int32, len(part.Images)), make([]int32, len(part.Frames))
	for i, im := range part.Images {
		images[i] = b.image(im)
	}
	for i, f := range part.Frames {
		f.Image = images[f.Image]
		frames[i] = b.frame(f)
	}
	threads, nodes := make([]int32, len(part.Threads)), make([]int32, len(part.Nodes))
	for i, t := range part.Threads {
		threads[i] = b.thread(t)
	}
	for i, n := range part.Nodes[1:] {
		nodes[i+1] = b.child(nodes[n.Parent], frames[n.Frame])
	}
	for _, s := range part.Samples {
		s.Thread, s.Node = threads[s.Thread], nodes[s.Node]
		b.add(s)
	}
}
