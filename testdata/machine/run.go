package machine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"unspool/capture/counts"
	"unspool/capture/live"
	"unspool/capture/output"
	"unspool/capture/perfdata"
	"unspool/capture/rights/opener"
	"unspool/capture/session"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/link"
	"unspool/vmas/process"
)

// A Result is what has come of a plan.
type Result struct {
	Problems []string // what is not as it has to be
	Reached  map[string]int
	Ended    [unwind.NumReasons]uint64
	Joined   uint64
	Wrong    uint64 // joined stacks whose callers were others
	Guessed  uint64 // stacks with wrong frames that were guessed, as their code has no CFI
	Doubted  uint64 // stacks that are wrong as records were lost
	Samples  uint64
	Digest   string // of all that was written
}

// add adds what another plan has reached.
func (r *Result) add(o *Result) {
	for what, n := range o.Reached {
		r.Reached[what] += n
	}
	for i, n := range o.Ended {
		r.Ended[i] += n
	}
	r.Samples, r.Joined, r.Wrong = r.Samples+o.Samples, r.Joined+o.Joined, r.Wrong+o.Wrong
	r.Guessed, r.Doubted = r.Guessed+o.Guessed, r.Doubted+o.Doubted
}

// mostProblems is how many problems of a run are kept.
const mostProblems = 5

func (r *Result) problem(format string, args ...any) {
	if len(r.Problems) < mostProblems {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// longFolder is how long the name of a folder for files may be.
const longFolder = 120

// Files makes the files that machines have, in a folder that is there as long as they run.
func Files(folder string) (all []*file, err error) {
	r := rand.New(rand.NewPCG(1, 1))
	const others = 16
	for i := range others + 4 {
		name := [2]string{"program", "library"}[i%2]
		f := &file{path: fmt.Sprintf("/usr/%s-%d", name, i), strange: i < others && i%4 == 3, alike: i >= others}
		kinds, r := bare, r
		switch {
		case f.strange:
			kinds = outest
		case f.alike: // the others stay as they are
			kinds, r = byBP, rand.New(rand.NewPCG(2, uint64(i)))
		}
		f.image = newImage(r, 0x1000+uint64(i), func() kind { return kind(r.IntN(int(kinds))) }, f.alike)
		// Paths are recorded, too: their length is the same for each folder.
		f.real = filepath.Join(folder, strings.Repeat("x", max(longFolder-len(folder), 1)), filepath.Base(f.path))
		if err := os.MkdirAll(filepath.Dir(f.real), 0o700); err != nil {
			return nil, err
		}
		if err := f.write(f.image.bytes); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return append(all, generatedFiles(r)...), nil
}

// Run simulates a plan, in a folder for its files. It has to be called in a bubble of package testing/synctest. At a
// time, one machine only has the files.
func Run(p Plan, files []*file, folder string) *Result { return watch(p, files, folder, func(*run) {}) }

// watch is Run with a look at the recording whenever it waits.
func watch(p Plan, files []*file, folder string, look func(*run)) *Result {
	m := newMachine(p, files)
	r := &run{Machine: m, res: &Result{Reached: m.Reached}, draw: p.draw("recorder"), look: look}
	defer m.closeReads()
	r.judge = &judge{m: m, res: r.res, all: sha256.New(), right: make(map[uint64][]uint64), truth: m.truth, known: never,
		comms: make(map[uint64]string), walks: make(map[[2]uint32][]walk)}
	var rings []perfring.SimulatedRing
	for _, c := range m.cpus {
		rings = append(rings, c.samples.SimulatedRing, c.others.SimulatedRing)
	}
	event := perfring.Attr{Name: "cpu-clock", PerfEventAttr: *m.attr(), IDs: []uint64{eventID}}
	by := &perfring.Simulation{Now: r.clock, Wait: r.wait, Disable: r.last}
	if p.Reads {
		by.Signal = m.signal
	}
	r.source = perfring.OfMemory(event, rings, by)
	r.most = 2048
	if p.has("limit") {
		r.most = 12
		m.Reached["limit"]++
	}
	opened := openFiles(filepath.Dir(files[0].real))
	r.processes = access{m}
	end := func() {}
	if p.Opener {
		client := newServer(m)
		r.processes, end = client, func() { client.Close() }
	}
	switch p.Output {
	case Outputs[0], "convert":
		r.session()
	default:
		r.record(folder)
	}
	r.judge.session.Close()
	if r.tape != nil {
		r.convert(folder)
	}
	time.Sleep(time.Minute) // what hangs ends
	end()
	time.Sleep(time.Minute) // nothing of the session is left: the bubble would not end otherwise
	if n := openFiles(filepath.Dir(files[0].real)) - opened; n > 0 {
		r.res.problem("%d descriptors are left", n)
	}
	for _, c := range m.cpus {
		c.freeRings()
	}
	return r.res
}

// A run is a machine that is recorded.
type run struct {
	*Machine
	res    *Result
	judge  *judge
	source *perfring.Source
	most   int // frames of a stack
	draw   *rand.Rand
	look   func(*run)
	ended  uint64 // when nothing was sampled any more

	processes process.Access
}

func (r *run) check(what string, err error) {
	if err != nil {
		r.res.problem("%s: %v", what, err)
	}
}

// checkBegin is check for what fails if the opener dies before it lists the processes.
func (r *run) checkBegin(what string, err error) {
	if !r.plan.has("dead") || !errors.Is(err, opener.ErrEnded) {
		r.check(what, err)
	}
}

// happen lets everything happen up to now.
func (r *run) happen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(r.now())
}

// clock is for [perfring.Simulation]. All that has happened is in the rings then, also if the recorder has waited for
// an opener that did not answer.
func (r *run) clock() uint64 {
	r.happen()
	return r.now()
}

// wait is for [perfring.Simulation]: time passes until the wait is over, or the recorder gets a CPU.
func (r *run) wait(timeout time.Duration, done func() bool) {
	r.mu.Lock()
	stall := timeout > 0 && r.happens(r.draw, "stall")
	r.mu.Unlock()
	if stall {
		time.Sleep(mostStall)
	}
	r.look(r)
	for end := time.Now().Add(timeout); ; {
		r.happen()
		if done() || !time.Now().Before(end) {
			return
		}
		time.Sleep(min(max(5*time.Millisecond, r.plan.Period/10), time.Until(end)))
	}
}

// session runs a session alone, drained by chance.
func (r *run) session() {
	var s *session.Session
	stop := make(chan struct{})
	s = session.New(session.Config{
		Format: r.source.Format(), Sink: r.judge, Proc: "/proc", Processes: r.processes, Live: true, MaxStack: r.most,
		Join: r.plan.Join, JoinAfter: session.JoinAfter, Stop: stop,
		Room: func() bool { return !r.source.HalfFull() }, SomeRoom: func() bool { return !r.source.NearlyFull() },
		Waits: func() { r.happen(); r.source.Glance(s.Glance) }, OfSamples: r.source.OfSamples,
		BuildIDs: func(string, []byte) {},
	})
	s.ReadRest(r.source, r.Machine)
	r.judge.Begin(s)
	r.checkBegin("seed", s.SeedLater(nil))
	first := 1 << r.plan.draw("first").IntN(8) // how much is read at once: little, or all
	r.check("read processes", s.SeedSome(func() bool { first--; return first > 0 || r.plan.isCalm() }))
	for time.Since(r.began) < r.plan.Time {
		for end := time.Now().Add(time.Duration(r.draw.Int64N(int64(100 * time.Millisecond)))); time.Now().Before(end); {
			r.wait(min(5*time.Millisecond, time.Until(end)), func() bool { return false })
			r.source.Peek(func(rec perfring.Record) { s.Expect(rec) })
		}
		left := 1 + r.draw.IntN(20)
		r.check("read processes", s.SeedSome(func() bool { left--; return left > 0 }))
		drained := r.now()
		r.check("drain", r.source.Drain(s.Record))
		r.check("settle", s.Settle(drained))
		if r.draw.IntN(8) == 0 {
			s.Sweep()
		}
	}
	ends := time.Now()
	r.check("disable", r.source.Disable())
	r.check("flush the rings", r.source.Flush(s.Record))
	r.check("flush", s.Flush())
	s.TellBuildIDs()
	close(stop)
	if took := time.Since(ends); took > r.plan.mostEnd() {
		r.res.problem("the end took %v", took)
	}
	r.judge.conclude(&s.Stats, r.source.Lost())
}

// last lets the last things happen.
func (r *run) last() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(r.now() + 30_000)
	r.over, r.ended = true, r.now()
}

// record runs a recording, from its beginning to its files.
func (r *run) record(folder string) {
	o := live.Options{
		AllCPUs: true, Source: r.source, Processes: r.processes, Rest: r.Machine, StackSize: r.plan.Copy,
		MaxStack: r.most, NoJoin: !r.plan.Join, Duration: r.plan.Time, Watcher: r.judge,
	}
	place, err := output.Find(filepath.Join(folder, "perf.data"))
	if err != nil {
		r.check("find a place", err)
		return
	}
	defer place.Close()
	switch r.plan.Output {
	case "file":
		o.Place = place
	case "segments":
		o.Rotation = &live.Rotation{Place: place, Most: 100, Every: r.plan.Time / 5}
	case "flight":
		o.Rotation = &live.Rotation{Place: place, Most: 100, Last: r.plan.Time / 3}
	}
	if r.plan.isLong() && o.Rotation != nil {
		o.Rotation.Most = 3
		o.Rotation.Every, o.Rotation.Last = min(o.Rotation.Every, longPart), min(o.Rotation.Last, longPart)
	}
	out, err := live.Record(context.Background(), o)
	r.checkBegin("record", err)
	most := r.plan.Time + mostStall + r.plan.mostEnd()
	if took := time.Since(r.began); took > most {
		r.res.problem("the recording took %v", took)
	}
	r.judge.conclude(&out.Stats, out.Stats.Lost)
	r.files(folder)
}

// mostEnd is how long the end of a recording may take: as long as files, and surveys of their code, are waited for at
// the beginning, when nothing was waited for before.
const mostEnd = 5 * time.Second

// mostEnd is how long the end of a recording may take, also where an opener answers late or never.
func (p *Plan) mostEnd() time.Duration {
	if p.has("late") || p.has("unanswered") {
		return mostEnd + 3*time.Second
	}
	return mostEnd
}

// mostStall is how long the recorder is without a CPU at a time.
const mostStall = 500 * time.Millisecond

// A judge is the sink of a session, and holds what it is given against the truth.
type judge struct {
	m       *Machine
	session *session.Session
	res     *Result
	all     hash.Hash
	count   struct{ samples, user, kernel uint64 }
	last    uint64
	truth   map[uint64]sampled
	// converts means that a recording is converted, and neither /proc nor memory can be read.
	converts bool
	// known is up to when the recording has all records; a sample behind that may have others cut off that it needs.
	known uint64
	times []uint64            // of all samples, if a flight recorder keeps the last of them
	right map[uint64][]uint64 // by time, the chains that were right
	comms map[uint64]string   // by time, the names of the threads
	walks map[[2]uint32][]walk
	wrong []caller
}

// Begin is for [session.Watcher].
func (j *judge) Begin(s *session.Session) { j.session = s }

// Write is for [session.Sink].
func (j *judge) Write(rec []byte) error {
	j.all.Write(rec)
	j.secrets(rec)
	j.trailer(rec)
	j.name(rec)
	if t, _ := j.m.cpus[0].format.Time(rec); t > j.m.now()+uint64(period) {
		j.res.problem("a %s record of the future", perfring.Record(rec).Type())
	}
	return nil
}

func (j *judge) secrets(rec []byte) {
	if bytes.Contains(rec, le.AppendUint64(nil, secret)) {
		j.res.problem("a %s record has bytes of a stack", perfring.Record(rec).Type())
	}
}

// WriteSample is for [session.Sink].
func (j *judge) WriteSample(w *perfdata.Walked) error {
	j.m.mu.Lock() // the machine goes on meanwhile
	defer j.m.mu.Unlock()
	j.count.samples++
	if w.Sample.Time < j.last {
		j.res.problem("a sample after a later one")
	}
	j.last = max(j.last, w.Sample.Time)
	if j.m.plan.Output == "flight" && !j.m.plan.isLarge() {
		j.times = append(j.times, j.last)
	}
	if w.Result != nil {
		j.stack(w)
	}
	return w.Records(func(rec []byte) error { return j.Write(rec) })
}

// stack holds a stack against what it was.
func (j *judge) stack(w *perfdata.Walked) {
	j.count.user++
	t := w.Sample.Time
	is, known := j.truth[t]
	if !known {
		j.res.problem("a sample at %d, when there was none", t-base)
		return
	}
	delete(j.truth, t)
	if j.right[t] = slices.Clone(w.Result.IPs); j.m.plan.isLong() && j.m.plan.Output != "file" {
		j.forget(t)
	}
	res := w.Result
	j.res.Ended[res.End]++
	n := matching(res, is.chain)
	if w.Links.IsJoined() && w.Links != link.Read {
		j.res.Joined++
	} else if w.Links == link.Read {
		j.m.Reached["read"]++
		if res.HasSwitched() && res.End == unwind.Root {
			j.m.Reached["wished"]++
		}
	}
	j.space(w, &is)
	calm := j.m.plan.isCalm() || is.program.told && j.m.plan.isTold()
	if calm && !j.m.plan.isLarge() {
		j.comms[t] = is.program.comm
	}
	switch frames := j.walked(w); {
	case n < len(res.IPs) && n >= frames:
		j.res.Wrong++
		j.wrong = append(j.wrong, caller{[2]uint32{w.Sample.PID, w.Sample.TID}, t, res.IPs[n], res.IPs[n-1]})
	case n < len(res.IPs) && isGuessed(res, n) && (j.converts || !j.m.plan.guessesWell()):
		j.res.Guessed++
	case n < len(is.chain) && endsAsKnown(res, &is) && (isGuessed(res, len(res.IPs)-1) || j.m.plan.has("rejit")):
		j.res.Guessed++ // also by what is guessed of the function that was sampled
	case t > j.known:
		if n < len(res.IPs) || res.End == unwind.Root && n < len(is.chain) {
			j.m.Reached["cut, wrong"]++
		}
	case j.m.plan.showsLosses() && j.m.hasLostRecords(), is.program.hidden > 0 && t >= is.program.hidden:
		if n < len(res.IPs) || res.End == unwind.Root && n < len(is.chain) {
			j.res.Doubted++
		}
	case n < len(res.IPs):
		j.res.problem("thread %d of %d at %d: the stack is %#x, found are %#x, by %v, of %d bytes %d copied", w.Sample.TID,
			w.Sample.PID, t-base, is.chain, res.IPs, sources(res), is.depth, is.copied)
	case res.End == unwind.Root && n < len(is.chain):
		j.res.problem("thread %d of %d at %d: %d of %d frames count as complete", w.Sample.TID, w.Sample.PID, t-base, n,
			len(is.chain))
	case res.End == unwind.DumpTooShort && is.copied == is.depth:
		j.res.problem("thread %d of %d at %d: all %d bytes were copied, and the stack ends as cut off", w.Sample.TID,
			w.Sample.PID, t-base, is.depth)
	case res.End != unwind.Root && res.End != unwind.DumpTooShort && calm:
		j.res.problem("thread %d of %d at %d: ends as %v after %d of %d frames", w.Sample.TID, w.Sample.PID, t-base, res.End,
			n, len(is.chain))
	}
}

// matching returns how many frames are as in the chain. Those behind one that counts as resumed are further up in it.
func matching(res *unwind.Result, chain []uint64) (n int) {
	for at := 0; n < len(res.IPs) && at < len(chain); at++ {
		if res.IPs[n] == chain[at] {
			n++
		} else if res.Frames[n].Source != unwind.ByResuming {
			break
		}
	}
	return n
}

// sources are how the frames of a stack were found.
func sources(res *unwind.Result) (all []unwind.Source) {
	for i := range res.Frames {
		all = append(all, res.Frames[i].Source)
	}
	return all
}

// endsAsKnown reports whether a stack is said to be complete, or to be cut off although all of it was copied: neither
// can be of a beginning of it.
func endsAsKnown(res *unwind.Result, is *sampled) bool {
	return res.End == unwind.Root || res.End == unwind.DumpTooShort && is.copied == is.depth
}

// isGuessed reports whether a frame up to the one at an index was found by what is known to be wrong at times.
func isGuessed(res *unwind.Result, index int) bool {
	return slices.ContainsFunc(res.Frames[:index+1], func(f unwind.Frame) bool {
		return f.Source == unwind.ByHeuristic || f.Source == unwind.ByFramePointer || f.Source == unwind.ByResuming
	})
}

// guessesWell reports whether what is guessed has to be right: all code without CFI has frame pointers and can be read.
func (p *Plan) guessesWell() bool {
	q := *p
	q.Faults = slices.DeleteFunc(slices.Clone(p.Faults), func(f string) bool { return f == "jit" })
	return q.isCalm()
}

// isCalm reports whether nothing keeps a stack from being complete but its depth.
func (p *Plan) isCalm() bool {
	return !slices.ContainsFunc(p.Faults, func(f string) bool {
		return !slices.Contains(complete, f) || slices.Contains(told, f)
	})
}

// conclude holds the counts against each other.
func (j *judge) conclude(st *counts.Stats, lost uint64) {
	j.m.mu.Lock()
	defer j.m.mu.Unlock()
	j.wrongCallers()
	j.res.Samples = st.Samples
	j.res.Digest = hex.EncodeToString(j.all.Sum(nil)[:8])
	written, dropped, reported := uint64(j.m.Reached["SAMPLE"]), uint64(0), uint64(0)
	for _, c := range j.m.cpus {
		dropped += c.samples.dropped
		reported += c.samples.dropped + c.others.dropped - c.samples.lost - c.others.lost
		written -= uint64(len(c.samples.waiting))
	}
	excluded := uint64(0)
	for _, n := range st.Excluded {
		excluded += n
	}
	other := uint64(0) // dropped THROTTLE records count as samples here
	if n := uint64(j.m.Reached["THROTTLE"]); n > 0 {
		other = n
	}
	if got := st.Samples + excluded + dropped; got < written || got > written+other {
		j.res.problem("%d samples were taken: %d handed on, %d left out, %d dropped", written, st.Samples, excluded, dropped)
	}
	if st.Malformed > 0 {
		j.res.problem("%d records are said to be malformed", st.Malformed)
	}
	if lost != reported {
		j.res.problem("%d records are said to be lost, the rings told of %d", lost, reported)
	}
	if j.count.samples != st.Samples || j.count.user != st.User {
		j.res.problem("%d samples, %d with a stack, were handed on; the counts are %d, %d", j.count.samples, j.count.user,
			st.Samples, st.User)
	}
	sum := uint64(0)
	for _, n := range st.Ended {
		sum += n
	}
	if sum != st.User {
		j.res.problem("%d stacks have ended, of %d", sum, st.User)
	}
}
