package check

import (
	"unspool/capture/perfdata"
	"unspool/capture/perfdata/replay"
	"unspool/capture/session"
	"unspool/capture/symbols"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas"
)

// Unknown is the source of frames of a recording that does not say how they were found.
const Unknown = unwind.Source(unwind.NumSources)

// NumSources is how many sources there are, Unknown among them.
const NumSources = unwind.NumSources + 1

// SourceName is the name of a source.
func SourceName(s unwind.Source) string {
	if s == Unknown {
		return "unknown"
	}
	return s.String()
}

// Counts are the edges whose caller was found in one way, by verdict.
type Counts [NumVerdicts]uint64

// Edges is the number of all.
func (c *Counts) Edges() (n uint64) {
	for _, v := range c {
		n += v
	}
	return n
}

// Checked is the number of those that could be held against the code.
func (c *Counts) Checked() uint64 { return c.Edges() - c[Unread] }

// Wrong is the number of those that cannot be.
func (c *Counts) Wrong() uint64 { return c[NoCall] + c[Elsewhere] }

// Share is the share of the checked ones that cannot be, 0 to 1.
func (c *Counts) Share() float64 {
	if c.Checked() == 0 {
		return 0
	}
	return float64(c.Wrong()) / float64(c.Checked())
}

// A Checker judges the edges of all samples that it is handed. It is a [session.Watcher].
type Checker struct {
	Stacks     uint64 // samples with two user frames or more
	BySource   [NumSources]Counts
	Exceptions map[Exception]uint64
	wrong      map[wrongEdge]uint64

	// The address spaces as of the records that were handed on. Those of the session are ahead of them while a
	// sample waits for its stack to be seen again.
	table  *vmas.Table
	replay *replay.Replay
	format *perfring.SampleFormat
	images images
	copies stacks
	judged map[edgeKey]judgement
}

// A wrongEdge is one that cannot be.
type wrongEdge struct {
	source         unwind.Source
	verdict        Verdict
	caller, callee string
}

// An edgeKey is what tells edges apart: the same files at the same offsets.
type edgeKey struct {
	caller, callee place
	exact          bool
}

type place struct {
	file *vmas.File
	off  uint64
}

// Bounds on what is remembered.
const (
	maxJudged = 1 << 18
	maxWrong  = 1 << 12
)

// New returns a Checker of a recording whose names are found by sym.
func New(sym *symbols.Symbolizer) *Checker {
	return &Checker{
		Exceptions: make(map[Exception]uint64),
		wrong:      make(map[wrongEdge]uint64),
		images: images{symbols: sym, binaries: make(map[*symbols.Image]*binary), code: codeBudget,
			names: namesBudget, steps: stepsBudget},
		judged: make(map[edgeKey]judgement),
		copies: newStacks(),
	}
}

// Begin takes the session whose samples are handed on.
func (c *Checker) Begin(s *session.Session) {
	// What is handed on has been corrected, and a live session puts build IDs into it.
	format := s.Format().AllowBuildIDs()
	c.images.store, c.format = s.Images(), &format
	c.table = vmas.NewTableOf(nil, c.images.store.Forget)
	c.replay = replay.NewRecorded(c.table)
}

// Write takes a record that is no sample. One that cannot be decoded changes nothing, and the session has
// counted it.
func (c *Checker) Write(rec []byte) error {
	_, _ = c.replay.Record(rec, c.format)
	c.copies.record(rec)
	return nil
}

// WriteSample judges the edges of a sample.
func (c *Checker) WriteSample(w *perfdata.Walked) error {
	if w.Result != nil && w.Sample.StackSize > 0 {
		c.copies.walked(w.Sample, w.Result)
	}
	space := c.table.Space(w.Sample.PID)
	if space == nil {
		return nil
	}
	user := userPart(w.Chain)
	if len(user) < 2 {
		return nil
	}
	c.Stacks++
	var frames []unwind.Frame
	if w.Result != nil && len(w.Result.Frames) == len(user) {
		frames = w.Result.Frames
	}
	c.stack(space, user, frames)
	return nil
}

// userPart is the part of a callchain that is the user stack's.
func userPart(chain []uint64) []uint64 {
	for i, ip := range chain {
		if ip == perfring.ContextUser {
			return chain[i+1:]
		}
	}
	return nil
}

// stack judges the edges of one stack, leaf first.
func (c *Checker) stack(space *vmas.Space, ips []uint64, frames []unwind.Frame) {
	exact := true // the sampled instruction
	for i := range len(ips) - 1 {
		source := Unknown
		if frames != nil {
			source = frames[i+1].Source
		}
		j := c.edge(space, ips[i+1], ips[i], exact)
		if i > 0 && j.verdict.Wrong() {
			j = c.moved(space, ips[i-1], j)
		}
		c.BySource[source][j.verdict]++
		if j.exception != "" {
			c.Exceptions[j.exception]++
		}
		if j.verdict.Wrong() {
			c.note(wrongEdge{source, j.verdict, j.about[0], j.about[1]})
		}
		exact = j.interrupted
	}
}

// moved says of a wrong edge whether the callee of its callee excuses it, where that has put the registers of
// the frame that it is about to go on in into those that its callers saved.
func (c *Checker) moved(space *vmas.Space, inner uint64, j judgement) judgement {
	s := c.images.at(space, inner-1)
	if !s.readable() {
		return j
	}
	f := s.bin.function(s.addr)
	if x := exceptionsByCallee[plainName(f.name)]; x != EhReturn {
		return j
	}
	return judgement{verdict: Excepted, exception: EhReturn}
}

func (c *Checker) note(w wrongEdge) {
	if _, known := c.wrong[w]; known || len(c.wrong) < maxWrong {
		c.wrong[w]++
	}
}

// edge judges an edge, once for all that are the same.
func (c *Checker) edge(space *vmas.Space, caller, callee uint64, exact bool) judgement {
	key := edgeKey{placeOf(space, caller-1), placeOf(space, callee), exact}
	if j, ok := c.judged[key]; ok {
		return j
	}
	j := c.judge(space, caller, callee, exact)
	if len(c.judged) >= maxJudged {
		clear(c.judged)
	}
	c.judged[key] = j
	return j
}

func placeOf(space *vmas.Space, pc uint64) place {
	m := space.Find(pc)
	if m == nil {
		return place{nil, pc}
	}
	return place{m.File, pc - m.Start + m.Offset}
}

// All are the counts of all sources.
func (c *Checker) All() (all Counts) { return sum(&c.BySource) }

func sum(sources *[NumSources]Counts) (all Counts) {
	for i := range sources {
		for v, n := range sources[i] {
			all[v] += n
		}
	}
	return all
}
