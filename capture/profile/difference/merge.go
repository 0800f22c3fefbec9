package difference

import (
	"fmt"
	"maps"
	"slices"

	"unspool/capture/profile"
)

// Sides are what is compared: A is before, B is after. Each has a recording or several.
const (
	A = iota
	B
	sides
)

// A Run is a recording of a side.
type Run struct {
	Name string // of its file
	*profile.Profile
	Timeline *profile.Timeline // its samples one by one; nil if they have no times
}

// Merged is the recordings of both sides as one profile: frames of the same name, image's name and kind are one
// frame, and equal stacks are one stack. A compiler's copies of a C++ function are that function, as another compiler
// may make others; and one that is inlined in some places and called in others is one function, marked as inlined
// where all are. Its events are those of Pairs, two for each.
type Merged struct {
	*profile.Profile
	Pairs []Pair
	Runs  [sides][]Run
	Left  [sides][]string // events with samples that the other side does not have

	Unnamed []Unnamed // images whose functions cannot be compared

	nodes, events, threads [sides][][]int32 // what each of a run has become; -1 for an event that is left out
	from                   [][]place        // where each thread comes from
	collected              map[int][sides][]*series
}

// A Pair is an event that both recordings have.
type Pair struct {
	Name  string
	Unit  string       // of amounts: "s" of CPU time, or what the event counts
	Event [sides]int32 // in the merged profile
	Whole [sides]Whole
	Runs  [sides][]Whole // by run
}

// Whole is all samples of a pair, in a run or on one side.
type Whole struct {
	Samples uint64
	// Each is the amount that one stands for, so that all of them are the run's amount, or of a side the mean of
	// those of its runs; 0 if it is not known.
	Each float64
}

// Amount is what the samples stand for.
func (w *Whole) Amount() float64 { return float64(w.Samples) * w.Each }

// Side is the recording that an event of the merged profile is of.
func (m *Merged) Side(event int32) int { return int(event) % sides }

// Replicated reports whether both sides have several runs, so that the spread between runs is known.
func (m *Merged) Replicated() bool { return len(m.Runs[A]) > 1 && len(m.Runs[B]) > 1 }

// place is a thread of a run.
type place struct {
	side, run int
	thread    int32
}

// Options say what is told apart.
type Options struct {
	Lines bool // places in the source, and not only functions
	// Processes puts programs above the stacks, if there are several. Profiles with several programs have to be
	// loaded so.
	Processes bool
	NoKernel  bool // leave out kernel frames: their samples are those of what called the kernel
}

// merger makes a Merged.
type merger struct {
	*Merged
	Options
	names  [sides]names
	images map[string]int32
	frames map[profile.Frame]int32
	fold   map[string]fold // by image
	folded map[int32]bool  // frames that stand for several functions: one that calls itself is one place
	called map[int32]bool  // frames of functions that are inlined in some places at most; false for those that are in all
	stacks map[profile.Node]int32
	of     map[profile.Thread]int32
}

// Merge merges the recordings of two sides, at least one of each.
func Merge(a, b []Run, o Options) (*Merged, error) {
	m := &merger{
		Merged: &Merged{
			Profile: &profile.Profile{Nodes: []profile.Node{{Parent: -1, Frame: -1}}}, Runs: [sides][]Run{a, b},
			collected: make(map[int][sides][]*series),
		},
		Options: o, names: alike(a, b), images: make(map[string]int32),
		fold: make(map[string]fold), folded: make(map[int32]bool), called: make(map[int32]bool),
		frames: make(map[profile.Frame]int32),
		stacks: make(map[profile.Node]int32), of: make(map[profile.Thread]int32),
	}
	for _, runs := range m.Runs {
		for _, r := range runs {
			if err := r.CheckValid(); err != nil {
				return nil, fmt.Errorf("profile: %w", err)
			}
			m.Duration, m.CPUs = max(m.Duration, r.Duration), max(m.CPUs, r.CPUs)
		}
	}
	m.pair()
	m.compareNames()
	all := make(map[string]bool)
	for side, runs := range m.Runs {
		for run := range runs {
			maps.Copy(all, m.programs(side, run))
		}
	}
	for side, runs := range m.Runs {
		for run := range runs {
			m.addThreads(side, run)
			m.addNodes(side, run, o.Processes && len(all) > 1)
		}
		m.addSamples(side)
	}
	for frame, called := range m.called {
		m.Frames[frame].Inlined = !called
	}
	return m.Merged, nil
}

// pair finds the events that both sides have: by name, or as each has but one.
func (m *merger) pair() {
	var sampled [sides][]string
	for side, runs := range m.Runs {
		for _, r := range runs {
			for _, event := range r.Sampled() {
				if name := r.Events[event].Name; !slices.Contains(sampled[side], name) {
					sampled[side] = append(sampled[side], name)
				}
			}
			m.events[side] = append(m.events[side], slices.Repeat([]int32{-1}, len(r.Events)))
		}
	}
	add := func(name string, of ...string) {
		p := Pair{Name: name}
		var events [sides][]int32
		for side, runs := range m.Runs {
			p.Event[side] = int32(len(m.Events))
			e := profile.Event{Name: name}
			for run, r := range runs {
				event := r.event(of[side])
				if event >= 0 {
					e = r.Events[event]
					m.events[side][run][event] = p.Event[side]
				}
				events[side] = append(events[side], event)
			}
			m.Events = append(m.Events, e)
		}
		p.measure(m.Merged, events)
		m.Pairs = append(m.Pairs, p)
	}
	if len(sampled[A]) == 1 && len(sampled[B]) == 1 {
		a, b := sampled[A][0], sampled[B][0]
		both := a
		if b != a {
			both += " / " + b
		}
		add(both, a, b)
		return
	}
	for side, names := range sampled {
		for _, name := range names {
			has := func(r Run) bool { return r.event(name) >= 0 }
			switch {
			case !slices.ContainsFunc(m.Runs[other(side)], has):
				m.Left[side] = append(m.Left[side], name)
			case side == A || !slices.Contains(sampled[A], name): // else it is a pair already
				add(name, name, name)
			}
		}
	}
}

// event is the event of a name: the first one with samples, or else the first; -1 for none.
func (r *Run) event(name string) int32 {
	for _, event := range r.Sampled() {
		if r.Events[event].Name == name {
			return event
		}
	}
	return int32(slices.IndexFunc(r.Events, func(e profile.Event) bool { return e.Name == name }))
}

func other(side int) int { return B - side }

// measure finds what the samples of the pair stand for. The events are those of the runs.
func (p *Pair) measure(m *Merged, events [sides][]int32) {
	var period, seconds [sides][]float64 // of a sample, by run
	timed := true                        // in all runs, as far as they have samples
	for side, runs := range m.Runs {
		p.Runs[side] = make([]Whole, len(runs))
		period[side], seconds[side] = make([]float64, len(runs)), make([]float64, len(runs))
		for run, r := range runs {
			whole, event := &p.Runs[side][run], events[side][run]
			for _, sample := range r.Samples {
				if sample.Event == event {
					whole.Samples += sample.Count
					period[side][run] += float64(sample.Period)
				}
			}
			if n := whole.Samples; n > 0 {
				all, _ := r.CPUTime(event)
				seconds[side][run], period[side][run] = all.Seconds()/float64(n), period[side][run]/float64(n)
				timed = timed && all > 0
			}
		}
	}
	p.Unit = "s"
	if !timed {
		p.Unit, seconds = p.Name, period
	}
	for side := range p.Whole {
		of, all := &p.Whole[side], 0.0
		for run := range p.Runs[side] {
			whole := &p.Runs[side][run]
			whole.Each = seconds[side][run]
			of.Samples += whole.Samples
			all += whole.Amount()
		}
		if of.Samples > 0 {
			of.Each = all / float64(len(p.Runs[side])) / float64(of.Samples)
		}
	}
}

// programs are the names of the programs of a run.
func (m *merger) programs(side, run int) map[string]bool {
	all := make(map[string]bool)
	for _, t := range m.Runs[side][run].Threads {
		all[m.names[side].program(t.Program)] = true
	}
	return all
}

func (m *merger) addThreads(side, run int) {
	s := m.Runs[side][run]
	threads := make([]int32, 0, len(s.Threads))
	for i, t := range s.Threads {
		t.Comm, t.Program = m.names[side].program(t.Comm), m.names[side].program(t.Program)
		at, ok := m.of[t]
		if !ok {
			at = int32(len(m.Threads))
			m.of[t] = at
			m.Threads, m.from = append(m.Threads, t), append(m.from, nil)
		}
		threads = append(threads, at)
		m.from[at] = append(m.from[at], place{side, run, int32(i)})
	}
	m.threads[side] = append(m.threads[side], threads)
}

// addNodes merges the stacks of a run. A profile with one program does not name it above its stacks, which
// has to be made up for where the two have several.
func (m *merger) addNodes(side, run int, processes bool) {
	s := m.Runs[side][run]
	frames := make([]int32, len(s.Frames))
	for i := range s.Frames {
		frames[i] = m.frame(side, &s, &s.Frames[i])
	}
	now := make([]int32, len(s.Nodes))
	if own := m.programs(side, run); processes && len(own) == 1 {
		for name := range own {
			now[0] = m.child(0, m.process(name))
		}
	}
	for i, n := range s.Nodes[1:] {
		if now[i+1] = now[n.Parent]; !m.NoKernel || s.Frames[n.Frame].Kind != profile.Kernel {
			now[i+1] = m.child(now[n.Parent], frames[n.Frame])
		}
	}
	m.nodes[side] = append(m.nodes[side], now)
}

// frame is the merged frame of a run's.
func (m *merger) frame(side int, r *Run, f *profile.Frame) int32 {
	key := profile.Frame{
		Name: f.Plain(), Kind: f.Kind, Known: f.Known, Inlined: f.Inlined && !f.Known,
		Image: m.image(&r.Images[f.Image], m.names[side]),
	}
	if f.Kind == profile.Process {
		key.Name = m.names[side].program(f.Name)
	}
	if m.Lines {
		key.File, key.Line = f.File, f.Line
	}
	image := m.Images[key.Image].Name
	if !m.fold[image].has(f) {
		at := m.intern(key)
		if f.Known {
			m.called[at] = m.called[at] || !f.Inlined
		}
		return at
	}
	at := m.intern(profile.Frame{Name: label(image), Kind: f.Kind, Image: key.Image})
	m.folded[at] = true
	return at
}

func (m *merger) intern(f profile.Frame) int32 {
	at, ok := m.frames[f]
	if !ok {
		at = int32(len(m.Frames))
		m.frames[f] = at
		m.Frames = append(m.Frames, f)
	}
	return at
}

// process is the frame of a program.
func (m *merger) process(name string) int32 {
	return m.intern(profile.Frame{
		Name: name, Kind: profile.Process, Known: true, Image: m.image(&profile.Image{Path: "[process]"}, names{}),
	})
}

func (m *merger) image(im *profile.Image, n names) int32 {
	name := n.image(im.Name)
	at, ok := m.images[name]
	if !ok {
		at = int32(len(m.Images))
		m.images[name] = at
		m.Images = append(m.Images, profile.Image{Name: name, Path: im.Path})
	}
	return at
}

func (m *merger) child(parent, frame int32) int32 {
	if m.folded[frame] && m.Nodes[parent].Frame == frame {
		return parent
	}
	n := profile.Node{Parent: parent, Frame: frame}
	at, ok := m.stacks[n]
	if !ok {
		at = int32(len(m.Nodes))
		m.stacks[n] = at
		m.Nodes = append(m.Nodes, n)
	}
	return at
}

// addSamples adds up the samples of all runs of a side.
func (m *merger) addSamples(side int) {
	at := make(map[profile.Sample]int)
	for run, r := range m.Runs[side] {
		for _, s := range r.Samples {
			if s.Event = m.events[side][run][s.Event]; s.Event < 0 {
				continue
			}
			count, period := s.Count, s.Period
			s.Node, s.Thread = m.nodes[side][run][s.Node], m.threads[side][run][s.Thread]
			s.Count, s.Period = 0, 0
			i, ok := at[s]
			if !ok {
				i = len(m.Samples)
				at[s] = i
				m.Samples = append(m.Samples, s)
			}
			m.Samples[i].Count += count
			m.Samples[i].Period += period
		}
	}
}

// Each calls fn with the samples of a merged thread one by one, as far as their times are known. A time
// begins with the recording that it is of.
func (m *Merged) Each(thread int32, fn func(profile.Point) error) error {
	for _, from := range m.from[thread] {
		if err := m.points(from, fn); err != nil {
			return err
		}
	}
	return nil
}

// points calls fn with the samples of a run's thread, as Each does.
func (m *Merged) points(of place, fn func(profile.Point) error) error {
	run := &m.Runs[of.side][of.run]
	if run.Timeline == nil {
		return nil
	}
	nodes, events := m.nodes[of.side][of.run], m.events[of.side][of.run]
	return run.Timeline.Each(of.thread, func(p profile.Point) error {
		if p.Event = events[p.Event]; p.Event < 0 {
			return nil
		}
		p.Node, p.Time = nodes[p.Node], p.Time-min(p.Time, run.First)
		return fn(p)
	})
}
