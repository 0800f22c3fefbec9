package profile

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"unspool/capture/output/human"
	"unspool/capture/perfdata"
	"unspool/capture/perfdata/replay"
	"unspool/capture/symbols"
	"unspool/perfring"
	"unspool/vmas"

	"golang.org/x/sys/unix"
)

// loader replays a recording: it keeps the address spaces and adds up the samples.
type loader struct {
	*builder
	table    *vmas.Table
	replay   *replay.Replay // into table
	lost     replay.Losses
	event    func(id uint64) int // index of the event with this ID in samples, -1 for none
	comms    map[uint64]string   // by pid<<32|tid
	current  map[uint64]int32    // the thread that pid<<32|tid is now
	guessed  map[uint32]string   // names of processes whose main thread has none, by PID
	most     int                 // of comms and of current
	kernelID symbols.KernelID

	keptMaps     []perfdata.PerfMap
	commandLines *commandLines

	options  Options
	part     *part
	timeline *Timeline
	planting *planting // nil where samples are added to the tree at once
	failed   error     // of the timeline, or samples without times
	// what the filter leaves out, by what is said of a thread, and by the key of a thread
	refused   map[string]*refusal
	refusedOf map[uint64]*refusal
	follows   bool // the loader is a follower's, which forgets threads itself

	sample      perfring.Sample
	frames      []int32 // memory for the frames of one sample, leaf first
	first, last uint64
	rawStacks   uint64   // samples with a raw stack and no user callchain
	recorded    []uint64 // samples by event
	malformed   uint64   // records that could not be decoded
	unnamed     uint64   // threads whose names are not kept
	guesses     uint64   // processes that were sampled, and have no name of their own
	others      uint64   // samples of the thread that stands for those for which there is no room
	noEvent     uint64   // samples of an event that the recording does not describe
}

// Options say how a recording is read.
type Options struct {
	// Progress, if set, is called a few times a second with the number of records read so far.
	Progress func(records uint64)
	// Lookup, if set, is called with the number of images in which Lines were looked up, and of all.
	Lookup func(done, images int)
	// Lines reports whether to look up all addresses in the images' debugging information, for source lines and
	// inlined functions.
	Lines bool
	// Functions means that functions are enough, as in Profile.ByFunction: frames have no PC. The tree of a large
	// recording is several times smaller then.
	Functions bool
	// CPUs keeps the samples of different CPUs apart.
	CPUs bool
	// Processes puts a frame of the kind Process above each stack, if there are processes of several names. A
	// Watcher does not expect that.
	Processes bool
	// Filter is which samples count. Of other threads' samples, only the times count, for First and Duration.
	Filter Filter
	// Timeline, if set, is given every sample. Its nodes are those of the profile once Load has returned.
	Timeline *Timeline
	// Watcher, if set, is called with every record and sample.
	Watcher Observer
	// NoStacks leaves stacks to the Watcher: the profile counts samples without them.
	NoStacks bool
}

// Observer is called with the records and samples of a recording, in the order of Load. They are valid
// during the call only.
type Observer interface {
	// Begin is called first, with the profile that Load will return, which grows. A frame may still get a better
	// name, and inlined frames are added at the end. Nodes and samples are another goroutine's until Load
	// returns.
	Begin(p *Profile)
	// Record is called with the content of every record other than a sample. time is in ns, 0 for records about
	// the time before the recording.
	Record(c *replay.Change, f *perfring.SampleFormat, time uint64)
	// Sample is called with every sample that counts, and its frames, leaf first: one for each address of the
	// callchain that the profile has. They are indices in the Frames of the profile that Load returns, without
	// inlined frames; thread is one in its Threads.
	Sample(s *perfring.Sample, frames []int32, thread int32)
}

// progressEvery lies between two calls of Options.Progress, and progressAfter is after how many records it is
// looked whether it has passed.
const (
	progressEvery = 200 * time.Millisecond
	progressAfter = 512
)

// due reports whether it is time to report progress, which was reported last at a time.
func due(last *time.Time) bool {
	if time.Since(*last) < progressEvery {
		return false
	}
	*last = time.Now()
	return true
}

// Load reads the records of r up to its end and returns their samples, with the names that sym finds. For a
// recording that is damaged or cut short, it returns the samples before the damage: the profile is valid,
// and its Problems say where the damage is. Other errors of the reader are returned as they are. If no sample passes
// the filter, it returns the profile together with a NothingError.
func Load(r *perfdata.Reader, sym *symbols.Symbolizer, o Options) (*Profile, error) {
	l := newLoader(sym)
	l.options, l.timeline, l.functions = o, o.Timeline, o.Functions && !o.Lines
	var err error
	if l.part, err = newPart(o.Filter.Times, r); err != nil {
		return nil, err
	}
	l.event = r.Event
	l.describe(r)
	if o.Watcher != nil {
		o.Watcher.Begin(l.p)
	}
	described := false
	var records uint64
	told := time.Now()
	l.planting = plantBeside(l.plant)
	err = r.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, time uint64) error {
		if !described { // in a pipe, this is known only when the first record is returned
			described = true
			l.describe(r)
		}
		if records++; o.Progress != nil && records%progressAfter == 0 && due(&told) {
			o.Progress(records)
		}
		l.record(rec, f, time)
		return l.failed
	})
	if perr := l.planting.end(); perr != nil {
		return nil, perr
	}
	var damage *perfdata.DamageError
	if errors.As(err, &damage) {
		l.p.Damage = err
		l.p.Problems = append(l.p.Problems, fmt.Sprintf("what follows is lost: %v", err))
	} else if err != nil {
		return nil, err
	}
	l.noEvent += r.Unknown()
	l.describe(r)
	p := l.finish()
	p.Began = r.WallClock(p.First)
	if l.part.samples == 0 {
		p.Problems = append(p.Problems, p.WhyEmpty())
	}
	if p.Count() == 0 && o.Filter.String() != "" {
		return p, errors.Join(l.nothing(), p.Damage)
	}
	return p, nil
}

// isClock reports whether the periods of an event are nanoseconds.
func isClock(a *unix.PerfEventAttr) bool {
	return a.Type == unix.PERF_TYPE_SOFTWARE && (a.Config == unix.PERF_COUNT_SW_CPU_CLOCK ||
		a.Config == unix.PERF_COUNT_SW_TASK_CLOCK)
}

// isCycles reports whether an event counts the cycles of a CPU. The upper half of the number of a hardware event
// says of which kind of CPU, where there are several.
func isCycles(a *unix.PerfEventAttr) bool {
	return a.Type == unix.PERF_TYPE_HARDWARE && a.Config&0xffffffff == unix.PERF_COUNT_HW_CPU_CYCLES
}

// describe copies what the recording says about itself, as far as it is known yet.
func (l *loader) describe(r *perfdata.Reader) {
	p := l.p
	p.Hostname, p.OSRelease, p.Arch = r.Text(perfdata.Hostname), r.Text(perfdata.OSRelease),
		r.Text(perfdata.Arch)
	p.Command, p.CPUs = r.CommandLine(), r.CPUs()
	p.Events = p.Events[:0]
	for _, e := range r.Events() {
		event := Event{Name: e.Name, Clock: isClock(&e.PerfEventAttr), Cycles: isCycles(&e.PerfEventAttr)}
		if e.PerfEventAttr.Bits&unix.PerfBitFreq != 0 {
			event.Frequency = e.PerfEventAttr.Sample
		}
		p.Events = append(p.Events, event)
	}
	l.buildIDs = r.FileBuildIDs()
	if l.keptMaps == nil {
		l.keptMaps = r.PerfMaps()
		l.sym.SetKeptMaps(keptMap(l.keptMaps))
	}
	id := l.kernelID
	id.Release = p.OSRelease
	for _, b := range r.BuildIDs() {
		if b.Kernel && b.Path == "[kernel.kallsyms]" {
			id.BuildID = b.ID
		}
	}
	if len(l.kernel) == 0 { // no kernel address has been looked up yet
		l.kernelID = id
		l.sym.SetKernel(id)
	}
}

func newLoader(sym *symbols.Symbolizer) *loader {
	table := vmas.NewTable("")
	return &loader{
		builder: newBuilder(sym),
		table:   table,
		replay:  replay.NewRecorded(table),
		comms:   make(map[uint64]string),
		current: make(map[uint64]int32),
		guessed: make(map[uint32]string),
		most:    vmas.MaxThreads,
		part:    &part{},

		commandLines: newCommandLines(),

		refused: make(map[string]*refusal), refusedOf: make(map[uint64]*refusal),
	}
}

func threadKey(pid, tid uint32) uint64 { return uint64(pid)<<32 | uint64(tid) }

// record applies one record. The format is that of its event, or of any for records without one.
func (l *loader) record(r perfring.Record, f *perfring.SampleFormat, time uint64) {
	if r.Type() == perfring.RecordSample {
		if f.Sample(r, &l.sample) != nil {
			l.malformed++
			return
		}
		l.addSample()
		return
	}
	if perfdata.IsCommandLine(r) {
		l.commandLines.add(r)
		return
	}
	c, err := l.replay.Record(r, f)
	if err != nil {
		l.malformed++
		return
	}
	if l.options.Watcher != nil {
		l.options.Watcher.Record(c, f, time)
	}
	if time == 0 || l.part.holds(time) {
		l.lost.Add(c)
		l.loss(c, r, f, time)
	}
	switch c.Kind {
	case replay.Mapping:
		l.mapped(c.PID, string(c.Map.Name))
	case replay.Kernel:
		l.kernelMap(c)
	case replay.Comm:
		if c.Exec {
			l.commandLines.begin(c.PID, time)
		}
		l.comm(c)
	case replay.Fork:
		if c.NewProcess() {
			l.commandLines.begin(c.PID, time)
		}
		l.fork(c)
	case replay.Exit:
		l.exit(c)
	}
}

// loss adds a Loss, if the record is about one.
func (l *loader) loss(c *replay.Change, r perfring.Record, f *perfring.SampleFormat, time uint64) {
	switch c.Kind {
	case replay.LostRecords, replay.LostSamples, replay.Throttled:
	default:
		return
	}
	if len(l.p.Losses) >= maxLosses {
		return
	}
	cpu := int32(-1)
	if n, ok := f.CPU(r); ok {
		cpu = int32(n)
	}
	l.p.Losses = append(l.p.Losses, Loss{Time: time, Count: c.Lost, CPU: cpu})
}

// kernelMap notes the kernel's address from the record of its mapping.
func (l *loader) kernelMap(c *replay.Change) {
	name, addr := c.KernelSymbol()
	if name != "" && l.kernelID.Ref == "" && addr != 0 && len(l.kernel) == 0 {
		l.kernelID.Ref, l.kernelID.RefAddr = name, addr
		l.sym.SetKernel(l.kernelID)
	}
}

func (l *loader) comm(c *replay.Change) {
	if c.Exec {
		l.began(c.PID, 0)
	}
	if c.PID == c.TID {
		delete(l.guessed, c.PID)
	}
	key := threadKey(c.PID, c.TID)
	comm := c.Comm[:min(len(c.Comm), mostComm)]
	if l.comms[key] != string(comm) {
		l.name(key, string(comm))
		delete(l.current, key)
	}
}

// mostComm bounds a thread's name, in bytes: those of the kernel's workers have up to 63, all others 15.
const mostComm = 64

// name notes how a thread is called.
func (l *loader) name(key uint64, comm string) {
	if _, known := l.comms[key]; !known && len(l.comms) >= l.most {
		l.unnamed++
		return
	}
	l.comms[key] = comm
}

func (l *loader) exit(c *replay.Change) {
	key := threadKey(c.PID, c.TID)
	if _, sampled := l.current[key]; !sampled && !l.follows {
		delete(l.comms, key)
	}
}

func (l *loader) fork(c *replay.Change) {
	key := threadKey(c.PID, c.TID)
	if c.NewProcess() {
		parent := c.PPID
		if c.MadeUp {
			parent = 0
		}
		l.began(c.PID, parent)
		delete(l.guessed, c.PID)
	}
	delete(l.current, key)
	if comm, ok := l.comms[threadKey(c.PPID, c.PTID)]; ok {
		l.name(key, comm)
	} else {
		delete(l.comms, key)
	}
}

// otherThread stands for the threads for which there is no room.
var otherThread = Thread{math.MaxUint32, math.MaxUint32, "(others)", "(others)"}

// Exited is what threads are called that have given up their IDs, at the end of their exit: the kernel gives
// -1 instead (perf_event_pid).
const Exited = "(exited)"

// threadNow is the thread of a sample, -1 if it does not pass the filter.
func (l *loader) threadNow(pid, tid uint32) int32 {
	key := threadKey(pid, tid)
	i, ok := l.current[key]
	switch {
	case ok && (i < 0 || pid == tid || len(l.p.Threads) >= l.most || l.p.Threads[i].Program == l.program(pid)):
	case len(l.current) >= l.most || len(l.p.Threads) >= l.most:
		l.others++
		i = l.thread(otherThread)
	default:
		t := Thread{pid, tid, l.comms[key], ""}
		switch {
		case t.Comm != "":
		case pid == 0 && tid == 0:
			t.Comm = "swapper" // the idle task, which no record announces
		case tid == math.MaxUint32:
			t.Comm = Exited
		default:
			t.Comm = fmt.Sprintf(":%d", tid)
		}
		i = -1
		if l.options.Filter.Passes(t) {
			if t.Program = t.Comm; pid != 0 && tid != math.MaxUint32 {
				t.Program = l.program(pid)
			}
			i = l.thread(t)
		} else {
			l.refuse(key, &t)
		}
		l.current[key] = i
	}
	return i
}

func (l *loader) addSample() {
	s := &l.sample
	event := l.event(s.ID)
	if event < 0 || event >= len(l.p.Events) {
		l.noEvent++
		return
	}
	within, err := l.part.sample(s.Time)
	if err != nil {
		l.failed = err
	}
	if !within {
		return
	}
	if l.first == 0 || s.Time < l.first {
		l.first = s.Time
	}
	l.last = max(l.last, s.Time)
	l.time = s.Time
	for event >= len(l.recorded) {
		l.recorded = append(l.recorded, 0)
	}
	l.recorded[event]++
	thread := l.threadNow(s.PID, s.TID)
	if thread < 0 {
		if r := l.refusedOf[threadKey(s.PID, s.TID)]; r != nil {
			r.samples++
		}
		return
	}
	if !l.follows {
		l.commandLines.sample(s.PID)
	}
	l.resolve(s)
	one := stacked{Sample: Sample{Thread: thread, Event: int32(event), CPU: int32(s.CPU), Count: 1,
		Period: max(s.Period, 1), End: EndOf(s.Misc)}, pid: s.PID, time: s.Time, root: l.root(thread)}
	frames := l.frames
	if l.options.NoStacks {
		frames = nil
	}
	if l.planting != nil {
		err = l.planting.add(&one, frames)
	} else {
		err = l.plant(&one, frames)
	}
	if err != nil {
		l.failed = err
	}
	if l.options.Watcher != nil {
		l.options.Watcher.Sample(s, l.frames, thread)
	}
}

// plant adds a sample to the tree and to the timeline. It may run beside the other methods, and changes what
// belongs to these alone.
func (l *loader) plant(s *stacked, frames []int32) error {
	root := int32(0)
	if s.root >= 0 {
		root = l.child(0, s.root)
	}
	var whole bool
	if s.Node, whole = l.stack(s.pid, s.Thread, root, frames); !whole {
		s.Node = l.child(s.Node, others)
		l.cut++
	}
	if l.timeline != nil {
		if err := l.timeline.Add(s.time, &s.Sample); err != nil {
			return err
		}
	}
	if !l.options.CPUs {
		s.CPU = -1
	}
	l.add(s.Sample)
	return nil
}

// resolve turns the sample's addresses into l.frames, leaf first.
func (l *loader) resolve(s *perfring.Sample) {
	l.frames = l.frames[:0]
	space := l.table.Space(s.PID)
	returned := false // the next entry is a return address
	var before uint64 // the context of the entry before
	for context, ip := range s.Addresses {
		f := l.at(space, context, ip, returned && context == before)
		l.frames = append(l.frames, f)
		returned, before = !l.signal[f], context
	}
	user := before == perfring.ContextUser // the chain ends with a user part
	raw := s.DynSize > 0 && !user
	if raw {
		l.rawStacks++
	}
	if context := s.Context(); len(l.frames) == 0 || !user && s.CPUMode() == unix.PERF_RECORD_MISC_USER {
		l.frames = append(l.frames, l.at(space, context, s.IP, false))
	} else if raw {
		if ip, ok := s.UserIP(); ok {
			l.frames = append(l.frames, l.at(space, perfring.ContextUser, ip, false))
		}
	}
}

// at is the frame at an address; the context marker says whose code it is.
func (l *loader) at(space *vmas.Space, context, ip uint64, returned bool) int32 {
	switch context {
	case perfring.ContextKernel:
		return l.kernelFrame(ip, returned)
	case perfring.ContextUser:
		return l.userFrame(space, ip, returned)
	}
	return l.fixedFrame("[guest]", Guest) // or a guest's kernel, or a hypervisor
}

// forgotten is what there was no room for. A thread has its name here and in its address space.
func (l *loader) forgotten() vmas.Forgotten {
	f := l.table.Forgotten()
	f.Threads = max(f.Threads, l.unnamed)
	return f
}

// finish completes the profile.
func (l *loader) finish() *Profile {
	p := l.p
	l.nameOthers()
	p.First, p.byFunction = l.first, l.functions
	for event, n := range l.recorded {
		p.Events[event].Recorded = n
	}
	p.Duration, p.CommandLines = time.Duration(l.last-l.first), l.commandLines.byPID()
	p.LostRecords, p.LostSamples, p.Throttled = l.lost.Records, l.lost.Samples, l.lost.Throttled
	for _, im := range l.opened {
		// The path may have had two files, of which one is on this machine.
		if code := im.Code(); code != nil {
			p.Images[im.index].Code = code
		}
	}
	if l.options.Lines {
		l.children, l.weights = nil, nil // all samples are added
		remap := l.lines()
		if l.timeline != nil {
			l.timeline.remapped(remap)
		}
	}
	if len(l.programs) == 1 {
		now := p.dropProcess()
		if l.timeline != nil {
			l.timeline.remapped(now)
		}
	}
	p.Generators = l.generators
	p.Problems = append(p.Problems, l.overBounds()...)
	if l.guesses > 0 {
		p.Problems = append(p.Problems, fmt.Sprintf("no COMM record names %s: the process has the name of its program's "+
			"file instead, or :PID", human.Plural(l.guesses, "main thread")))
	}
	if left := l.commandLines.problem(); left != "" {
		p.Problems = append(p.Problems, left)
	}
	if l.rawStacks > 0 {
		p.Problems = append(p.Problems, fmt.Sprintf("%d samples have a raw copy of the user stack instead of a "+
			"user callchain (perf record --call-graph dwarf): of their user part only the innermost frame is shown",
			l.rawStacks))
	}
	if l.noEvent > 0 {
		p.Problems = append(p.Problems, fmt.Sprintf("%d samples of events that the recording does not describe "+
			"are left out", l.noEvent))
	}
	p.Problems = append(p.Problems, replay.ForgottenNotes(l.forgotten())...)
	if l.others > 0 {
		p.Problems = append(p.Problems, fmt.Sprintf("more than %s threads were sampled: %s of the others are shown as "+
			"one thread, %s", human.Number(uint64(l.most)), human.Plural(l.others, "sample"), otherThread.Comm))
	}
	if l.malformed > 0 {
		p.Problems = append(p.Problems, fmt.Sprintf("%d records are malformed and left out", l.malformed))
	}
	p.Problems, p.Kinds = slices.Concat(p.Problems, l.sym.Problems()), l.sym.Kinds()
	return p
}
