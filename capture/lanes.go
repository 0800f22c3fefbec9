package capture

import (
	"sync"

	"unspool/capture/perfdata"
	"unspool/perfring"
)

// The records of a recording go through lanes, each with a session of its own. Address
// spaces are what one record leaves behind for the next, so every lane follows all
// records; samples are most of the work, and leave nothing behind, so each is unwound by one
// lane only. The stream is cut into batches, which take turns: a batch's output is
// that of its lane, and is written in the order of the batches. That is what one
// lane alone would write.
//
//	reader ─batch─▶ every lane ─batch─▶ writer ─batch─▶ reader
//
// A batch holds the memory that its records lie in until it comes back, so the
// number of batches bounds what is held.
type lanes struct {
	c     *conversion
	lanes []*lane
	next  *batch // being filled by the reader
	sent  int    // batches so far
	free  chan *batch
	full  chan *batch // on their way to the writer, in order
	ended chan error  // of the writer
}

// A lane is a session that unwinds the samples of every nth batch.
type lane struct {
	session *Session
	sampled map[sampledFile]bool
	in      chan *batch
	out     []byte
}

// sampledFile is a file that a frame was in, with its build ID.
type sampledFile struct{ path, id string }

// A batch is a run of records.
type batch struct {
	records []batched
	size    int
	out     []byte
	lane    int // whose turn it is
	stats   Stats
	read    int64 // position of the reader behind it
	total   int64
	pending sync.WaitGroup // lanes that are not done with it
}

type batched struct {
	rec    perfring.Record
	format *perfring.Format
	kept   perfdata.Kept
}

const (
	batchRecords = 512
	batchBytes   = 1 << 20
)

// Write takes a record of the lane's session.
func (l *lane) Write(rec []byte) error {
	l.out = append(l.out, rec...)
	return nil
}

// WriteSample takes a sample of the lane's session.
func (l *lane) WriteSample(w *perfdata.Walked) error { return w.Records(l.Write) }

// sampledFile notes a file that a frame was in.
func (l *lane) sampledFile(path string, id []byte) {
	l.sampled[sampledFile{path, string(id)}] = true
}

// startLanes begins with n lanes.
func (c *conversion) startLanes(n int) *lanes {
	p := &lanes{c: c, free: make(chan *batch, 2*n+1), full: make(chan *batch, 2*n+1), ended: make(chan error, 1)}
	for range cap(p.free) {
		p.free <- new(batch)
	}
	for i := range n {
		l := &lane{in: make(chan *batch, cap(p.free))}
		c.prepare(l, l)
		p.lanes = append(p.lanes, l)
		go p.run(i, l)
	}
	go p.write()
	return p
}

// run is a lane's goroutine.
func (p *lanes) run(number int, l *lane) {
	for b := range l.in {
		own := b.lane == number
		if own {
			l.out = b.out[:0]
		}
		for i := range b.records {
			switch r := &b.records[i]; {
			case own:
				l.session.RecordAs(r.rec, r.format) // errors are the sink's, which has none
			case r.rec.Type() != perfring.RecordSample:
				l.session.follow(r.rec, r.format) // counted where it is written
			}
		}
		if own {
			b.out, b.stats = l.out, l.session.counted()
		}
		b.pending.Done()
	}
}

// write is the writer's goroutine. After an error the batches go on, unwritten.
func (p *lanes) write() {
	var err error
	latest := make([]Stats, len(p.lanes))
	for b := range p.full {
		b.pending.Wait()
		latest[b.lane] = b.stats
		for out := perfring.Record(b.out); err == nil && len(out) > 0; out = out[out.Size():] {
			if err = p.c.Write(out[:out.Size()]); err != nil {
				p.c.reader.Stop()
			}
		}
		p.c.tell(func() Stats { return sum(latest) }, b.read, b.total)
		p.free <- b
	}
	p.ended <- err
}

// record adds a record to the batch.
func (p *lanes) record(rec perfring.Record, f *perfring.Format) {
	if p.next == nil {
		p.next = p.take()
	}
	b := p.next
	kept := batched{format: f}
	kept.rec, kept.kept = p.c.reader.Keep(rec)
	b.records = append(b.records, kept)
	b.size += len(rec)
	if len(b.records) >= batchRecords || b.size >= batchBytes ||
		p.c.passOn && rec.Type() == perfring.RecordFinishedRound {
		p.send()
	}
}

// take waits for a batch that is done with, and empties it.
func (p *lanes) take() *batch {
	b := <-p.free
	for i := range b.records {
		p.c.reader.Release(b.records[i].kept)
	}
	clear(b.records)
	b.records, b.size = b.records[:0], 0
	return b
}

// send hands the batch to the lanes and the writer.
func (p *lanes) send() {
	b := p.next
	if b == nil {
		return
	}
	p.next = nil
	b.lane = p.sent % len(p.lanes)
	p.sent++
	b.read, b.total = p.c.reader.Position()
	b.pending.Add(len(p.lanes))
	for _, l := range p.lanes {
		l.in <- b
	}
	p.full <- b
}

// drain waits until everything so far is written.
func (p *lanes) drain() {
	p.send()
	var all []*batch
	for range cap(p.free) {
		all = append(all, p.take())
	}
	for _, b := range all {
		p.free <- b
	}
}

// end waits for the lanes and returns the writer's error.
func (p *lanes) end() error {
	p.send()
	for _, l := range p.lanes {
		close(l.in)
	}
	close(p.full)
	return <-p.ended
}
