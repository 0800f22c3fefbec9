package difference

import (
	"fmt"
	"maps"
	"slices"

	"unspool/capture/profile"
)

// Sides are the recordings that are compared: A is the one before, B the one after.
const (
	A = iota
	B
	sides
)

// A Side is one of the two.
type Side struct {
	*profile.Profile
	Timeline *profile.Timeline // its samples one by one; nil if they have no times
}

// Merged is two recordings as one profile: frames of the same name, image's name and kind are one frame, and
// equal stacks are one stack. A compiler's copies of a C++ function are that function, as another compiler may make
// others. Its events are those of Pairs, two for each.
type Merged struct {
	*profile.Profile
	Pairs []Pair
	Sides [sides]Side
	Left  [sides][]string // events with samples that the other recording does not have

	Unnamed []Unnamed // images whose functions cannot be compared

	nodes, events, threads [sides][]int32 // what each of a side has become; -1 for an event that is left out
	from                   [][]place      // where each thread comes from
	collected              map[int][sides]*series
}

// A Pair is an event that both recordings have.
type Pair struct {
	Name  string
	Unit  string       // of amounts: "s" of CPU time, or what the event counts
	Event [sides]int32 // in the merged profile
	Whole [sides]Whole
}

// Whole is all samples of a pair on one side.
type Whole struct {
	Samples uint64
	Each    float64 // the amount that one stands for; 0 if it is not known
}

// Side is the recording that an event of the merged profile is of.
func (m *Merged) Side(event int32) int { return int(event) % sides }

// place is a thread of a side.
type place struct {
	side   int
	thread int32
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
	stacks map[profile.Node]int32
	of     map[profile.Thread]int32
}

// Merge merges two recordings.
func Merge(a, b Side, o Options) (*Merged, error) {
	m := &merger{
		Merged: &Merged{
			Profile: &profile.Profile{Nodes: []profile.Node{{Parent: -1, Frame: -1}}}, Sides: [sides]Side{a, b},
			collected: make(map[int][sides]*series),
		},
		Options: o, names: alike(a.Profile, b.Profile), images: make(map[string]int32),
		fold: make(map[string]fold), folded: make(map[int32]bool), frames: make(map[profile.Frame]int32),
		stacks: make(map[profile.Node]int32), of: make(map[profile.Thread]int32),
	}
	for _, s := range m.Sides {
		if err := s.CheckValid(); err != nil {
			return nil, fmt.Errorf("profile: %w", err)
		}
		m.Duration, m.CPUs = max(m.Duration, s.Duration), max(m.CPUs, s.CPUs)
	}
	m.pair()
	m.compareNames()
	all := m.programs(A)
	maps.Copy(all, m.programs(B))
	for side := range m.Sides {
		m.addThreads(side)
		m.addNodes(side, o.Processes && len(all) > 1)
		m.addSamples(side)
	}
	return m.Merged, nil
}

// pair finds the events that both sides have: by name, or as each has but one.
func (m *merger) pair() {
	var sampled [sides][]int32
	for side, s := range m.Sides {
		sampled[side] = s.Sampled()
		m.events[side] = slices.Repeat([]int32{-1}, len(s.Events))
	}
	add := func(name string, a, b int32) {
		p := Pair{Name: name}
		for side, event := range [sides]int32{a, b} {
			p.Event[side] = int32(len(m.Events))
			e := profile.Event{Name: name}
			if event >= 0 {
				e = m.Sides[side].Events[event]
				m.events[side][event] = p.Event[side]
			}
			m.Events = append(m.Events, e)
		}
		p.measure(m.Merged, a, b)
		m.Pairs = append(m.Pairs, p)
	}
	name := func(side int, event int32) string { return m.Sides[side].Events[event].Name }
	named := func(side int, name string) int32 {
		return int32(slices.IndexFunc(m.Sides[side].Events, func(e profile.Event) bool { return e.Name == name }))
	}
	if len(sampled[A]) == 1 && len(sampled[B]) == 1 {
		a, b := sampled[A][0], sampled[B][0]
		both := name(A, a)
		if other := name(B, b); other != both {
			both += " / " + other
		}
		add(both, a, b)
		return
	}
	for side, events := range sampled {
		for _, event := range events {
			pair := [sides]int32{named(A, name(side, event)), named(B, name(side, event))}
			switch {
			case pair[other(side)] < 0:
				m.Left[side] = append(m.Left[side], name(side, event))
			case side == A || m.events[B][event] < 0: // else it is a pair already
				add(name(side, event), pair[A], pair[B])
			}
		}
	}
}

func other(side int) int { return B - side }

// measure finds what the samples of the pair stand for.
func (p *Pair) measure(m *Merged, events ...int32) {
	var period, seconds [sides]float64
	timed := true // on both sides, as far as they have samples
	for side, s := range m.Sides {
		for _, sample := range s.Samples {
			if sample.Event == events[side] {
				p.Whole[side].Samples += sample.Count
				period[side] += float64(sample.Period)
			}
		}
		if n := p.Whole[side].Samples; n > 0 {
			all, _ := s.CPUTime(events[side])
			seconds[side], period[side] = all.Seconds()/float64(n), period[side]/float64(n)
			timed = timed && all > 0
		}
	}
	p.Unit = "s"
	if !timed {
		p.Unit, seconds = p.Name, period
	}
	for side := range p.Whole {
		p.Whole[side].Each = seconds[side]
	}
}

// programs are the names of the programs of a side.
func (m *merger) programs(side int) map[string]bool {
	all := make(map[string]bool)
	for _, t := range m.Sides[side].Threads {
		all[m.names[side].program(t.Program)] = true
	}
	return all
}

func (m *merger) addThreads(side int) {
	s := m.Sides[side]
	for i, t := range s.Threads {
		t.Comm, t.Program = m.names[side].program(t.Comm), m.names[side].program(t.Program)
		at, ok := m.of[t]
		if !ok {
			at = int32(len(m.Threads))
			m.of[t] = at
			m.Threads, m.from = append(m.Threads, t), append(m.from, nil)
		}
		m.threads[side] = append(m.threads[side], at)
		m.from[at] = append(m.from[at], place{side, int32(i)})
	}
}

// addNodes merges the stacks of a side. A profile with one program does not name it above its stacks, which
// has to be made up for where the two have several.
func (m *merger) addNodes(side int, processes bool) {
	s := m.Sides[side]
	frames := make([]int32, len(s.Frames))
	for i := range s.Frames {
		frames[i] = m.frame(side, &s.Frames[i])
	}
	now := make([]int32, len(s.Nodes))
	if own := m.programs(side); processes && len(own) == 1 {
		for name := range own {
			now[0] = m.child(0, m.process(name))
		}
	}
	for i, n := range s.Nodes[1:] {
		if now[i+1] = now[n.Parent]; !m.NoKernel || s.Frames[n.Frame].Kind != profile.Kernel {
			now[i+1] = m.child(now[n.Parent], frames[n.Frame])
		}
	}
	m.nodes[side] = now
}

// frame is the merged frame of a side's.
func (m *merger) frame(side int, f *profile.Frame) int32 {
	key := profile.Frame{
		Name: f.Plain(), Kind: f.Kind, Known: f.Known, Inlined: f.Inlined,
		Image: m.image(&m.Sides[side].Images[f.Image], m.names[side]),
	}
	if f.Kind == profile.Process {
		key.Name = m.names[side].program(f.Name)
	}
	if m.Lines {
		key.File, key.Line = f.File, f.Line
	}
	image := m.Images[key.Image].Name
	if !m.fold[image].has(f) {
		return m.intern(key)
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

func (m *merger) addSamples(side int) {
	at := make(map[profile.Sample]int)
	for _, s := range m.Sides[side].Samples {
		if s.Event = m.events[side][s.Event]; s.Event < 0 {
			continue
		}
		count, period := s.Count, s.Period
		s.Node, s.Thread, s.Count, s.Period = m.nodes[side][s.Node], m.threads[side][s.Thread], 0, 0
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

// Each calls fn with the samples of a merged thread one by one, as far as their times are known. A time
// begins with the recording that it is of.
func (m *Merged) Each(thread int32, fn func(profile.Point) error) error {
	for _, from := range m.from[thread] {
		side := m.Sides[from.side]
		if side.Timeline == nil {
			continue
		}
		err := side.Timeline.Each(from.thread, func(p profile.Point) error {
			if p.Event = m.events[from.side][p.Event]; p.Event < 0 {
				return nil
			}
			p.Node, p.Time = m.nodes[from.side][p.Node], p.Time-min(p.Time, side.First)
			return fn(p)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
