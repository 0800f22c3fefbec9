package machine

import (
	"maps"
	"slices"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/unwind"
)

// A program is what a process executes, up to the next one.
type program struct {
	comm   string
	told   bool            // records have told of all that it has mapped
	mapped map[mapped]bool // at any time
	// hidden is when a file was mapped in the place of another one and the record of that was lost; 0 for never. Nobody
	// knows of it until there is room for the next record, behind one that tells of the loss; a conversion never does.
	hidden uint64
}

// A mapped is a file at an address.
type mapped struct {
	start uint64
	path  string
}

// note notes a mapping; not of large machines, which have too many.
func (p *program) note(m *Machine, n *mapping) {
	if !m.plan.isLarge() {
		p.mapped[mapped{n.start, n.file.path}] = true
	}
}

// fork is the program of a child.
func (p *program) fork() *program { return &program{p.comm, p.told, maps.Clone(p.mapped), p.hidden} }

// drop notes that a record was lost.
func (m *Machine) drop(rec perfring.Record) {
	var is perfring.Mmap2
	if rec.Type() != perfring.RecordMmap2 || perfring.DecodeMmap2(rec, &is) != nil || m.byPID[is.PID] == nil {
		return
	}
	p := m.byPID[is.PID].program
	for o := range p.mapped {
		if o.start == is.Addr && o.path != string(is.Path) && p.hidden == 0 {
			p.hidden, _ = m.cpus[0].format.Time(rec)
		}
	}
}

// nameOf notes the name of a process.
func (m *Machine) nameOf(t *task) {
	if !m.plan.isLarge() {
		m.names[t.pid] = append(m.names[t.pid], t.program.comm)
	}
}

// name holds the name in a record against those that processes of the PID have had.
func (j *judge) name(rec perfring.Record) {
	if rec.Type() != perfring.RecordComm || j.m.plan.isLarge() {
		return
	}
	var c perfring.Comm
	if err := perfring.DecodeComm(rec, &c); err != nil {
		j.res.problem("%v", err)
		return
	}
	j.m.mu.Lock()
	defer j.m.mu.Unlock()
	isUnknown := len(c.Comm) == 0 || j.m.hasLostRecords()
	if !isUnknown && !slices.Contains(j.m.names[c.PID], string(c.Comm)) {
		j.res.problem("thread %d of %d is told to be %q, which it never was", c.TID, c.PID, c.Comm)
	}
}

// isTold reports whether nothing keeps what records tell from being known in time. What large machines have mapped is
// not kept.
func (p *Plan) isTold() bool {
	return !p.isLarge() && !slices.ContainsFunc(p.Faults, func(f string) bool { return !slices.Contains(complete, f) })
}

// space holds what is known of an address space against what the process had mapped.
func (j *judge) space(w *perfdata.Walked, is *sampled) {
	p := &j.m.plan
	if w.Space == nil || p.Join || !p.isTold() { // samples that wait are older than the space
		return
	}
	for m := range w.Space.Mappings() {
		if !is.program.mapped[mapped{m.Start, m.File.Path}] {
			j.res.problem("process %d at %d: %s is known at %#x, where it never was", w.Sample.PID, w.Sample.Time-base,
				m.File.Path, m.Start)
		}
	}
}

// hasLostRecords reports whether records about processes were lost. Until these are read again, nobody knows what they
// have mapped.
func (m *Machine) hasLostRecords() bool {
	return slices.ContainsFunc(m.cpus, func(c *cpu) bool { return c.others.dropped > 0 })
}

// showsLosses reports whether losses of records lead to wrong stacks: if it takes long until processes are read again,
// or if others have mapped other files at the same addresses.
func (p *Plan) showsLosses() bool { return p.has("late") || p.has("unanswered") || p.has("fixed") }

// A walk is what was found of a stack without those that were seen before and after.
type walk struct {
	time uint64
	ips  []uint64
}

// A caller is one that was found so, wrongly: it has called what is below it.
type caller struct {
	thread [2]uint32
	time   uint64
	ip, of uint64
}

// walked notes what a walk has shown, and returns how many frames it has.
func (j *judge) walked(w *perfdata.Walked) (frames int) {
	res := w.Result
	frames = slices.IndexFunc(res.Frames, func(f unwind.Frame) bool { return f.Source == unwind.ByLinks })
	if frames < 0 {
		frames = len(res.IPs)
	}
	if j.m.plan.Join && !j.m.plan.isLarge() {
		thread := [2]uint32{w.Sample.PID, w.Sample.TID}
		j.walks[thread] = append(j.walks[thread], walk{w.Sample.Time, slices.Clone(res.IPs[:frames])})
	}
	return frames
}

// wrongCallers holds callers that samples before and after have against these: code whose CFI is wrong leads walks
// astray, and a thread may have come back; but the walks on both sides have to have shown them.
func (j *judge) wrongCallers() {
	if j.m.plan.isLarge() || j.m.plan.Reads { // walks of these are not kept; reads show callers, too
		return
	}
	for _, c := range j.wrong {
		before, after := false, false
		for _, w := range j.walks[c.thread] {
			i := slices.Index(w.ips, c.of)
			if i < 0 || i+1 >= len(w.ips) || !shows(w.ips, c.of, c.ip) {
				continue
			}
			before, after = before || w.time < c.time, after || w.time > c.time
		}
		if !before || !after {
			j.res.problem("thread %d at %d: %#x counts as the caller of %#x, as was seen before: %v, after: %v", c.thread[1],
				c.time-base, c.ip, c.of, before, after)
		}
	}
}

// shows reports whether a walk has a caller of a frame.
func shows(ips []uint64, of, ip uint64) bool {
	for i := range ips[:len(ips)-1] {
		if ips[i] == of && ips[i+1] == ip {
			return true
		}
	}
	return false
}

// trailer holds the end of a record against the trailer that a reader expects there.
func (j *judge) trailer(rec perfring.Record) {
	const userTypes = 64
	if rec.Type() == perfring.RecordSample || rec.Type() >= userTypes {
		return
	}
	if id := le.Uint64(rec[len(rec)-8:]); id != eventID && id != 0 { // the recorder's own have none
		j.res.problem("a %s record does not end with the event's ID", rec.Type())
	}
}
