package machine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/capture/recorded"
	"unspool/perfring"
)

// A tape is what a recorder writes that leaves stacks as they are, such as perf: rounds of the records of one ring
// after the other.
type tape struct {
	m       *Machine
	r       *rand.Rand
	rings   map[*ring][][]byte // since the last round
	order   []*ring
	last    uint64 // when that was
	data    []byte
	samples []int // where each ends in the data
	rounds  []int // likewise
	ends    []uint64
	lost    uint64
	truth   map[uint64]sampled
}

// otherID is that of samples of another event, which have neither a CPU nor a period.
const otherID = eventID + 1

// newTape begins with what a recorder tells of the processes that run.
func newTape(m *Machine) *tape {
	t := &tape{m: m, r: m.plan.draw("tape"), rings: make(map[*ring][][]byte), truth: make(map[uint64]sampled)}
	for _, c := range m.cpus {
		t.order = append(t.order, &c.samples, &c.others)
	}
	f := &m.cpus[0].format
	for _, p := range m.processes {
		for _, th := range p.threads {
			id := &perfring.SampleID{PID: p.pid, TID: th.tid, ID: eventID}
			rec, err := perfring.AppendComm(nil, f, &perfring.Comm{PID: p.pid, TID: th.tid, Comm: []byte(p.program.comm)}, id)
			t.add(rec, err)
		}
		for _, n := range p.maps {
			is := n.mmap2(p.pid, p.pid)
			rec, err := perfring.AppendMmap2(nil, f, &is, &perfring.SampleID{PID: p.pid, TID: p.pid, ID: eventID})
			t.add(rec, err)
		}
	}
	return t
}

func (t *tape) add(rec []byte, err error) {
	if err != nil {
		panic(err)
	}
	t.data = append(t.data, rec...)
}

// take takes what was written to a ring.
func (t *tape) take(to *ring, rec []byte) {
	if t == nil || len(rec) == 0 {
		return
	}
	if perfring.Record(rec).Type() == perfring.RecordSample && t.m.happens(t.r, "events") {
		rec = asOther(rec)
	}
	t.rings[to] = append(t.rings[to], slices.Clone(rec))
}

// asOther makes a sample one of the other event.
func asOther(rec []byte) []byte {
	const cpu, chain = 8 + 4*8, 8 + 6*8
	rec = append(slices.Clone(rec[:cpu]), rec[chain:]...)
	le.PutUint16(rec[6:], uint16(len(rec)))
	le.PutUint64(rec[8:], otherID)
	return rec
}

// round ends a round now and then, long enough after the last one for no record to come from before that.
func (t *tape) round(until uint64, end bool) {
	if t == nil || !end && (until-t.last < 50_000 || t.r.IntN(3) > 0) {
		return
	}
	t.last = until
	var all [][]byte
	for _, r := range t.order {
		all = append(all, t.rings[r]...)
	}
	clear(t.rings)
	if len(all) > 1 && t.m.happens(t.r, "disorder") {
		t.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	for _, rec := range all {
		t.data = append(t.data, rec...)
		switch perfring.Record(rec).Type() {
		case perfring.RecordSample:
			t.samples = append(t.samples, len(t.data))
		case perfring.RecordLost:
			var l perfring.Lost
			if perfring.DecodeLost(rec, &l) == nil {
				t.lost += l.Lost
			}
		}
	}
	b := le.AppendUint32(t.data, uint32(perfring.RecordFinishedRound))
	t.data = le.AppendUint16(le.AppendUint16(b, 0), 8)
	t.rounds, t.ends = append(t.rounds, len(t.data)), append(t.ends, until)
}

// file is the whole file: its header, the events, and the data (tools/perf/Documentation/perf.data-file-format.txt).
func (t *tape) file() (b []byte, dataAt int) {
	attrs := []unix.PerfEventAttr{*t.m.attr()}
	if t.m.plan.has("events") {
		other := attrs[0]
		other.Sample_type &^= unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_PERIOD
		other.Config = 1
		attrs = append(attrs, other)
	}
	const header, attrSize, idSize = 104, int(unsafe.Sizeof(unix.PerfEventAttr{})), 8
	idsAt := header
	attrsAt := idsAt + len(attrs)*idSize
	dataAt = attrsAt + len(attrs)*(attrSize+16)
	b = append(b, "PERFILE2"...)
	for _, v := range []int{header, attrSize + 16, attrsAt, len(attrs) * (attrSize + 16), dataAt, len(t.data), 0, 0,
		0, 0, 0, 0} {
		b = le.AppendUint64(b, uint64(v))
	}
	for i := range attrs {
		b = le.AppendUint64(b, uint64(eventID+i))
	}
	for i := range attrs {
		attrs[i].Size = uint32(attrSize)
		attrs[i].Type = unix.PERF_TYPE_SOFTWARE
		b = append(b, (*[attrSize]byte)(unsafe.Pointer(&attrs[i]))[:]...)
		b = le.AppendUint64(le.AppendUint64(b, uint64(idsAt+i*idSize)), idSize)
	}
	return append(slices.Grow(b, len(t.data)), t.data...), dataAt
}

// convert converts what the tape has. The stacks have to be those that a session finds while the machine runs, where
// nothing depends on time.
func (r *run) convert(folder string) {
	t, live := r.tape, r.judge
	t.round(r.at, true)
	whole, dataAt := t.file()
	file := whole
	if r.plan.has("cut") {
		r.Reached["cut"]++
		file = whole[:dataAt+t.r.IntN(len(whole)-dataAt)]
	}
	in := filepath.Join(folder, "in.data")
	if err := os.WriteFile(in, file, 0o600); err != nil {
		r.check("write", err)
		return
	}
	r.judge = &judge{m: r.Machine, res: r.res, all: sha256.New(), right: make(map[uint64][]uint64), truth: t.truth,
		comms: make(map[uint64]string), walks: make(map[[2]uint32][]walk),
		converts: true, known: never}
	if len(file) < len(whole) {
		r.judge.known = 0
	}
	for i, end := range t.rounds {
		if dataAt+end <= len(file) && len(file) < len(whole) {
			r.judge.known = t.ends[i] - 30_000 // records are up to 30 µs late
		}
	}
	o := recorded.Options{Input: in, Output: filepath.Join(folder, "perf.data"), MaxStack: r.most,
		NoJoin: !r.plan.Join, Watcher: r.judge, Cache: folder}
	out, err := recorded.Convert(context.Background(), o)
	if _, damaged := errors.AsType[*perfdata.DamageError](err); !damaged || len(file) == len(whole) {
		r.check("convert", err)
	}
	r.judge.session.Close()
	n := 0
	for n < len(t.samples) && dataAt+t.samples[n] <= len(file) {
		n++
	}
	st := &out.Stats
	if st.Samples != uint64(n) || r.judge.count.samples != st.Samples || r.judge.count.user != st.User {
		r.res.problem("%d samples are converted, %d with a stack, of %d; the counts are %d, %d", r.judge.count.samples,
			r.judge.count.user, n, st.Samples, st.User)
	}
	if len(file) == len(whole) && st.Lost != t.lost || st.Malformed > 0 {
		r.res.problem("%d records are lost, of %d, and %d are malformed", st.Lost, t.lost, st.Malformed)
	}
	r.files(folder)
	if r.plan.Seed%8 == 4 { // it takes as long again
		r.check("convert by several lanes", r.judge.lanes(o, folder))
	}
	if !r.plan.isCalm() || r.plan.Join {
		return
	}
	for at, chain := range r.judge.right {
		if was := live.right[at]; !slices.Equal(chain, was) {
			r.res.problem("the stack at %d is %#x, and was %#x", at-base, chain, was)
		}
	}
}

var errOther = errors.New("they do not write the same file")

// lanes converts the same by several lanes.
func (j *judge) lanes(o recorded.Options, folder string) error {
	first := o.Output
	o.Output, o.Watcher, o.Jobs = filepath.Join(folder, "lanes.data"), nil, 2
	_, err := recorded.Convert(context.Background(), o)
	if _, damaged := errors.AsType[*perfdata.DamageError](err); err != nil && !damaged {
		return err
	}
	a, err := os.ReadFile(first)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(o.Output)
	if err == nil && !bytes.Equal(a, b) {
		err = errOther
	}
	if bytes.Contains(b, le.AppendUint64(nil, secret)) {
		j.res.problem("a converted file has bytes of a stack")
	}
	return err
}
