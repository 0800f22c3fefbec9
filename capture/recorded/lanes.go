package recorded

import (
	"cmp"
	"sync"

	"unspool/capture/counts"
	"unspool/capture/perfdata"
	"unspool/capture/session"
	"unspool/perfring"
)

// lanes convert a recording on several cores, each lane with a session of its own. Records change address
// spaces, which later samples need, so every lane follows all records. Samples are most of the work and
// change nothing, so each is unwound by one lane only. The stream is cut into batches, which are assigned to
// lanes in turn: a batch's output is that of its lane, and is written in the order of the batches. The result
// is what a single lane would write.
//
//	reader ─batch─▶ every lane ─batch─▶ writer ─batch─▶ reader
//
// A batch keeps the memory of its records until it comes back to the reader, so the number of batches bounds
// that memory.
type lanes struct {
	c     *conversion
	lanes []*lane
	next  *batch // being filled by the reader
	sent  int    // batches sent so far
	free  chan *batch
	full  chan *batch // on their way to the writer, in order
	ended chan error  // the writer's error, when it has ended

	joiner  *session.Joiner // the writer's
	stats   counts.Stats    // of what the joiner completes
	trouble *counts.Trouble
}

// A lane is a session that unwinds the samples of every nth batch.
type lane struct {
	session *session.Session
	sampled map[sampledFile]bool
	in      chan *batch
	join    bool // records are held for the writer to complete, and not written to out
	out     []byte
	held    []*session.Held
}

// sampledFile is a file that a frame was in, with its build ID.
type sampledFile struct{ path, id string }

// compare puts files in the order of their paths, and those of one path in that of their IDs.
func (f sampledFile) compare(other sampledFile) int {
	return cmp.Or(cmp.Compare(f.path, other.path), cmp.Compare(f.id, other.id))
}

// A batch is a run of records.
type batch struct {
	records []batched
	size    int
	out     []byte
	held    []*session.Held // in place of out if stacks are joined
	lane    int             // which lane unwinds its samples
	settle  bool            // the writer hands on all that waits, up to its end
	stats   counts.Stats
	read    int64 // position of the reader at its end
	total   int64
	pending sync.WaitGroup // lanes that still work on it
}

type batched struct {
	rec    perfring.Record
	format *perfring.SampleFormat
	kept   perfdata.RecordRef
}

const (
	batchRecords = 512
	batchBytes   = 1 << 20
)

// Write takes a record of the lane's session.
func (l *lane) Write(rec []byte) error {
	if l.join {
		l.held = append(l.held, session.HoldRecord(rec))
		return nil
	}
	l.out = append(l.out, rec...)
	return nil
}

// WriteSample takes a sample of the lane's session.
func (l *lane) WriteSample(w *perfdata.Walked) error {
	if l.join {
		l.held = append(l.held, session.HoldSample(w))
		return nil
	}
	return w.Records(l.Write)
}

// sampledFile notes a file that a frame was in.
func (l *lane) sampledFile(path string, id []byte) {
	l.sampled[sampledFile{path, string(id)}] = true
}

// startLanes starts n lanes and the writer.
func (c *conversion) startLanes(n int) *lanes {
	p := &lanes{c: c, free: make(chan *batch, 2*n+1), full: make(chan *batch, 2*n+1), ended: make(chan error, 1)}
	p.trouble = counts.NewTrouble()
	p.joiner = session.NewJoiner(session.NewCounter(c, &p.stats, p.trouble), c.MaxStack, session.JoinAfterRecorded)
	for range cap(p.free) {
		p.free <- new(batch)
	}
	for i := range n {
		l := &lane{in: make(chan *batch, cap(p.free)), join: c.joins()}
		c.prepare(l, l)
		p.lanes = append(p.lanes, l)
		go p.run(i, l)
	}
	go p.write()
	return p
}

// run is the goroutine of a lane.
func (p *lanes) run(number int, l *lane) {
	for b := range l.in {
		own := b.lane == number
		if own {
			l.out, l.held = b.out[:0], b.held[:0]
		}
		for i := range b.records {
			switch r := &b.records[i]; {
			case own:
				l.session.RecordAs(r.rec, r.format) // errors come from the sink, and a lane returns none
			case r.rec.Type() != perfring.RecordSample:
				l.session.Follow(r.rec, r.format) // the lane that writes it counts it
			}
		}
		if own {
			b.out, b.held, b.stats = l.out, l.held, l.session.Counted()
		}
		b.pending.Done()
	}
}

// write is the goroutine of the writer. After an error it passes batches on without writing them.
func (p *lanes) write() {
	var err error
	latest := make([]counts.Stats, len(p.lanes))
	for b := range p.full {
		b.pending.Wait()
		latest[b.lane] = b.stats
		if err == nil {
			if err = p.writeBatch(b); err != nil {
				p.c.reader.Stop()
			}
		}
		p.c.tell(func() counts.Stats { return counts.Sum(append(latest, p.stats)) }, b.read, b.total)
		p.free <- b
	}
	if err == nil {
		err = p.joiner.Flush()
	}
	p.ended <- err
}

// writeBatch writes the output of a batch, except what waits for later batches.
func (p *lanes) writeBatch(b *batch) error {
	for out := perfring.Record(b.out); len(out) > 0; out = out[out.Size():] {
		if err := p.c.Write(out[:out.Size()]); err != nil {
			return err
		}
	}
	for i, h := range b.held {
		b.held[i] = nil
		if err := p.joiner.Take(h); err != nil {
			return err
		}
	}
	if b.settle {
		return p.joiner.Flush()
	}
	return nil
}

// record adds a record to the batch.
func (p *lanes) record(rec perfring.Record, f *perfring.SampleFormat) {
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

// take waits for a free batch, and empties it.
func (p *lanes) take() *batch {
	b := <-p.free
	for i := range b.records {
		p.c.reader.Release(b.records[i].kept)
	}
	clear(b.records)
	b.records, b.size, b.settle = b.records[:0], 0, false
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

// drain waits until all records so far are written.
func (p *lanes) drain() {
	if p.next == nil {
		p.next = p.take()
	}
	p.next.settle = true
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
