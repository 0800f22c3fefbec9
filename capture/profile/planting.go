package profile

// stacked is a sample whose frames are known, but not yet its node.
type stacked struct {
	Sample // with its CPU, without its Node
	pid    uint32
	time   uint64
	root   int32 // the frame above the stack, that of its process; -1 for none
}

// planting is a goroutine that adds samples to the tree, while the next ones are read and their frames found:
// each takes about half of the time.
type planting struct {
	plant func(s *stacked, frames []int32) error
	now   *batch // that is filled
	full  chan *batch
	empty chan *batch
	ended chan struct{} // closed at the end of the goroutine
	err   error         // of plant, once it has ended
}

// batch is samples and their frames, one after the other.
type batch struct {
	samples []stacked
	depths  []int
	frames  []int32
}

const (
	batchSize   = 1024 // samples
	batchFrames = 64 << 10
	batches     = 4
)

func plantBeside(plant func(s *stacked, frames []int32) error) *planting {
	p := &planting{
		plant: plant, now: &batch{},
		full: make(chan *batch, batches), empty: make(chan *batch, batches), ended: make(chan struct{}),
	}
	for range batches - 1 {
		p.empty <- &batch{}
	}
	go p.run()
	return p
}

func (p *planting) run() {
	defer close(p.ended)
	for b := range p.full {
		frames := b.frames
		for i := range b.samples {
			n := b.depths[i]
			if p.err = p.plant(&b.samples[i], frames[:n]); p.err != nil {
				return
			}
			frames = frames[n:]
		}
		b.samples, b.depths, b.frames = b.samples[:0], b.depths[:0], b.frames[:0]
		p.empty <- b
	}
}

// add hands a sample on, the frames of which are copied. The error may be that of another one before.
func (p *planting) add(s *stacked, frames []int32) error {
	b := p.now
	b.samples = append(b.samples, *s)
	b.depths = append(b.depths, len(frames))
	b.frames = append(b.frames, frames...)
	if len(b.samples) < batchSize && len(b.frames) < batchFrames {
		return nil
	}
	select {
	case p.full <- b:
	case <-p.ended:
		return p.err
	}
	select {
	case p.now = <-p.empty:
		return nil
	case <-p.ended:
		return p.err
	}
}

// end waits until all samples are in the tree.
func (p *planting) end() error {
	select {
	case p.full <- p.now:
	case <-p.ended:
	}
	close(p.full)
	<-p.ended
	return p.err
}
