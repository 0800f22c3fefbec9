package main

import (
	"slices"
	"time"

	"unspool/capture/perfdata"
	"unspool/capture/session"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/link"
)

// A recording is one with copies so large that most stacks are complete, and what is known of them.
type recording struct {
	path string
	user uint64
	truth
}

// A truth is what is known of the stacks of samples.
type truth struct {
	stacks    map[sampleKey]knownStack
	functions numberedFunctions
}

// A knownStack is a stack that was complete before it was cut, or of which the program tells which way led
// there.
type knownStack struct {
	chain []uint64
	way   way
}

func newTruth() truth { return truth{stacks: make(map[sampleKey]knownStack)} }

// note remembers the stack of a sample that was not cut.
func (t *truth) note(w *perfdata.Walked) {
	if w.Result == nil {
		return
	}
	is := knownStack{way: toldBy(w.Sample)}
	if is.way != 0 {
		if t.functions.learn(w.Space); len(t.functions) == 0 {
			is.way = 0
		}
	}
	if w.Result.End == unwind.Root {
		is.chain = slices.Clone(w.Result.IPs)
	}
	if is.way != 0 || is.chain != nil {
		t.stacks[sampleKey{w.Sample.TID, w.Sample.Time}] = is
	}
}

// isWrong reports whether a complete stack differs from the one that is known.
func (t *truth) isWrong(is knownStack, ips []uint64) bool {
	return is.chain != nil && !slices.Equal(ips, is.chain) || is.way != 0 && t.functions.way(ips) != is.way
}

// A sampleKey tells a sample from all others of a recording.
type sampleKey struct {
	tid  uint32
	time uint64
}

// An outcome is what became of the samples when their copies were cut.
type outcome struct {
	all    int // whose whole stack is known
	byCopy int // complete without what was seen before and after
	joined int
	wrong  int // of the joined ones
	// wrongRead are those of them that were read when they were sampled.
	wrongRead int
	// stays are the wrong ones, those of a thread one after the other counted once: while a function stays,
	// all its samples go wrong together.
	stays     int
	lastWrong sampleKey
	untrue    int // complete by the copy, and not what the program tells
	links     [link.NumOutcomes]int
}

// betweenStays is more than is between two samples.
const betweenStays = 3 * time.Millisecond

// sink is what a session hands its samples to.
type sink func(w *perfdata.Walked)

func (s sink) Write([]byte) error { return nil }

func (s sink) WriteSample(w *perfdata.Walked) error {
	s(w)
	return nil
}

// readWhole unwinds a recording as it is.
func readWhole(path string) (*recording, error) {
	r := &recording{path: path, truth: newTruth()}
	err := r.unwind(session.Config{}, 0, func(w *perfdata.Walked) {
		if w.Result != nil {
			r.user++
		}
		r.note(w)
	})
	return r, err
}

// judge cuts the copies to size bytes, has the stacks completed with what is seen up to after later, and
// compares them with what they are.
func (r *recording) judge(size uint64, after time.Duration) (*outcome, error) {
	o := new(outcome)
	c := session.Config{Join: true, JoinAfter: after}
	return o, r.unwind(c, size, func(w *perfdata.Walked) {
		o.count(w, &r.truth)
	})
}

// count counts a sample whose whole stack is known.
func (o *outcome) count(w *perfdata.Walked, t *truth) {
	key := sampleKey{w.Sample.TID, w.Sample.Time}
	is, known := t.stacks[key]
	if w.Result == nil || !known {
		return
	}
	o.all++
	o.links[w.Links]++
	switch {
	case w.Links.IsJoined():
		o.joined++
		if t.isWrong(is, w.Result.IPs) {
			o.wrong++
			if w.Links == link.Read {
				o.wrongRead++
			}
			if key.tid != o.lastWrong.tid || key.time-o.lastWrong.time > uint64(betweenStays) {
				o.stays++
			}
			o.lastWrong = key
		}
	case w.Result.End == unwind.Root:
		o.byCopy++
		if t.isWrong(is, w.Result.IPs) {
			o.untrue++
		}
	}
}

// unwind unwinds a recording, with copies of size bytes at the most if that is not 0.
func (r *recording) unwind(c session.Config, size uint64, to sink) error {
	rd, err := perfdata.Open(r.path)
	if err != nil {
		return err
	}
	defer rd.Close()
	var s *session.Session
	var sample perfring.Sample
	var buf []byte
	err = rd.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
		if s == nil {
			c.Format, c.Sink, c.Proc, c.MaxStack = f, to, "/proc", 2048
			s = session.New(c)
		}
		if size > 0 && rec.Type() == perfring.RecordSample {
			if err := f.Sample(rec, &sample); err != nil {
				return err
			}
			if buf, err = perfring.AppendCut(buf[:0], rec, &sample, size); err != nil {
				return err
			}
			rec = buf
		}
		return s.Record(rec)
	})
	if err != nil || s == nil {
		return err
	}
	return s.Flush()
}

// left are the outcomes of stacks that were not joined.
var left = []link.LookupOutcome{link.Doubtful, link.Disagree, link.OneSided, link.Unseen}
