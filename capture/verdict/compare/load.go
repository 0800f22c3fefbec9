package compare

import (
	"fmt"
	"slices"

	"unspool/capture/perfdata"
	"unspool/capture/perfdata/replay"
	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/perfring"
	"unspool/unwind"
)

// Comparison is the result of loading a recording with pairs.
type Comparison struct {
	// The same samples with the stacks of either kind, kernel part included. They share Images, Frames and
	// Threads.
	DWARF, FP *profile.Profile
	Groups    []PairGroup // samples with the same two stacks, the most frequent first

	Samples uint64 // with a user stack
	Others  uint64 // without one, as of kernel threads
	Checked uint64 // with the kernel's own chain
	Agreed  uint64 // of these, those with the same result of the walk that was repeated on the copy

	// Reach counts samples by the bytes of stack that their walk needed, in KiB rounded up. It leaves out
	// samples that did not reach the root with the copy alone.
	Reach map[int]uint64
	// Packages, if set, returns name and version of the packages that images' files are of, "" where that is not known.
	Packages func(images []profile.Image) []string
	// Tasks are what was sampled. Times has the samples one by one: as its threads the Tasks, as its nodes the Groups.
	Tasks  []TaskName
	Times  *profile.Timeline
	sorted []int32          // the group for each node of Times; nil for the same
	wrong  map[int32][]call // by group, by Judge: those of the groups that are False, each once

	// Elsewhere counts samples whose root was found outside of the copy: on another stack, or by the kernel's
	// chain. They would not be complete with a copy of any size.
	Elsewhere uint64
}

// NotCode is shown in the place of a word that frame pointers led to and that is not an address of code. The
// word itself is not shown, as it may be data of the program that was recorded.
const NotCode = "not code"

// A TaskName is all threads of a name in processes of a name.
type TaskName struct{ Program, Comm string }

// PairGroup is the samples that have the same two stacks.
type PairGroup struct {
	PairState // by Judge
	Class     Class
	DWARF, FP int32 // the leaf nodes in the two profiles
	Kernel    int   // number of kernel frames at the leaf of both
	// Where FP first differs, counted in user frames of DWARF from the leaf; their number if FP goes on with
	// others; -1 if it does not differ.
	Parted int
	Missed int // user frames of DWARF that are not in FP, start code included
	End    profile.End
	// Open: where frame pointers ended, the recording has no memory, and DWARF's stack is not wholly in what it has.
	Open  bool
	Count uint64
}

// Load reads a recording that was made with pairs, and judges. The Timeline of the options becomes the comparison's
// Times. If no sample passes the filter, the error is a [profile.NothingError].
func Load(r *perfdata.Reader, sym *symbols.Symbolizer, o profile.Options) (*Comparison, error) {
	l := newLoader(profile.MostNodes)
	l.c.Times = o.Timeline
	o.Watcher, o.NoStacks, o.Timeline, o.Lines = l, true, nil, false
	p, err := profile.Load(r, sym, o)
	if err == nil {
		err = l.failed
	}
	if err != nil {
		return nil, err
	}
	if l.pending {
		l.unpaired++
	}
	if l.unpaired > 0 {
		p.Problems = append(p.Problems,
			fmt.Sprintf("%d samples were recorded without their pair and are left out", l.unpaired))
	}
	if l.cut > 0 {
		p.Problems = append(p.Problems, fmt.Sprintf("%d samples are left out, as the recording has too many different stacks",
			l.cut))
	}
	for i := range p.Frames {
		if f := &p.Frames[i]; f.Kind == profile.Unmapped {
			f.Name = NotCode
		}
	}
	c := l.c
	c.sort()
	c.DWARF = withStacks(p, l.dwarf.Nodes(), c.Groups, func(g *PairGroup) int32 { return g.DWARF })
	c.FP = withStacks(p, l.fp.Nodes(), c.Groups, func(g *PairGroup) int32 { return g.FP })
	c.Judge()
	return c, nil
}

// loader combines samples with their pairs, in the order of the recording.
type loader struct {
	c         *Comparison
	dwarf, fp *profile.StackSet
	groups    map[PairGroup]int32 // indices in c.Groups, by group without Count
	tasks     map[TaskName]int32  // indices in c.Tasks
	p         *profile.Profile
	failed    error // of c.Times

	pending  bool // a sample waits for its pair
	first    half
	second   half
	unpaired uint64
	cut      uint64 // samples for whose stacks there was no room
	thread   int32  // of the sample
}

// half is one of the two samples.
type half struct {
	time   uint64
	pid    uint32
	tid    uint32
	kernel int      // addresses before the user part
	user   []uint64 // addresses
	frames []int32  // of all addresses, leaf first
	end    profile.End
}

// newLoader returns a loader of samples whose stacks of either kind have so many nodes at most.
func newLoader(nodes int) *loader {
	return &loader{
		groups: make(map[PairGroup]int32), tasks: make(map[TaskName]int32),
		dwarf: profile.NewStacks(nodes), fp: profile.NewStacks(nodes),
		c: &Comparison{Reach: make(map[int]uint64)},
	}
}

func (h *half) take(s *perfring.Sample, frames []int32) {
	first, kernel := s.UserPart()
	h.time, h.pid, h.tid, h.kernel, h.user = s.Time, s.PID, s.TID, kernel, h.user[:0]
	h.frames = append(h.frames[:0], frames...)
	for i := first; i < s.Callchain.Len(); i++ {
		h.user = append(h.user, s.Callchain.At(i))
	}
}

func (l *loader) Begin(p *profile.Profile) { l.p = p }

func (l *loader) Record(*replay.Change, *perfring.SampleFormat, uint64) {}

func (l *loader) Sample(s *perfring.Sample, frames []int32, thread int32) {
	reason, walked := perfdata.End(s.Misc)
	switch {
	case walked:
		if l.pending {
			l.unpaired++
		}
		l.first.take(s, frames)
		l.first.end = profile.Ended(reason)
		l.pending = true
	case l.pending && s.Time == l.first.time && s.TID == l.first.tid:
		l.pending, l.thread = false, thread
		l.second.take(s, frames)
		l.pair()
	default:
		l.c.Others++
	}
}

// pair adds the two samples to the sums.
func (l *loader) pair() {
	d, f := &l.first, &l.second
	last := len(f.user) - 1
	if last < 1 || len(d.user) == 0 || len(d.frames) != d.kernel+len(d.user) ||
		len(f.frames) != f.kernel+len(f.user) {
		l.unpaired++
		return
	}
	info := perfdata.DecodePair(f.user[last])
	for last > 1 && f.user[last-1] == 0 { // the walk has read above the outermost frame
		last--
	}
	f.user, f.frames = f.user[:last], f.frames[:f.kernel+last]
	dwarf, room := l.dwarf.Leaf(d.pid, l.thread, d.frames)
	fp, roomToo := l.fp.Leaf(f.pid, l.thread, f.frames)
	if !room || !roomToo {
		l.cut++
		return
	}
	v := classify(&stacks{
		dwarf: d.user, dwarfEnd: d.end, fp: f.user, fpEnd: info.End,
		code: func(i int) bool { return f.user[i] != perfdata.NotCode && f.user[i] != 0 },
	})
	l.c.Samples++
	if info.Kernel {
		l.c.Checked++
		if info.Agrees {
			l.c.Agreed++
		}
	}
	if info.Reach > 0 {
		l.c.Reach[(info.Reach+1023)/1024]++
	} else if d.end == profile.Complete {
		l.c.Elsewhere++
	}
	g := PairGroup{
		Class: v.class, DWARF: dwarf, FP: fp,
		Kernel: d.kernel, Parted: v.parted, Missed: v.lost, End: d.end,
		Open: info.Reach == 0 && (info.End == unwind.OffStack || info.End == unwind.CopyEnds),
	}
	l.add(g)
}

// add adds a sample to a group.
func (l *loader) add(g PairGroup) {
	c := l.c
	at, ok := l.groups[g]
	if !ok {
		at = int32(len(c.Groups))
		l.groups[g] = at
		c.Groups = append(c.Groups, g)
	}
	c.Groups[at].Count++
	if c.Times == nil || l.failed != nil {
		return
	}
	of := TaskName{l.p.Threads[l.thread].Program, l.p.Threads[l.thread].Comm}
	task, ok := l.tasks[of]
	if !ok {
		task = int32(len(c.Tasks))
		l.tasks[of] = task
		c.Tasks = append(c.Tasks, of)
	}
	l.failed = c.Times.Add(l.first.time, &profile.Sample{Thread: task, Node: at, CPU: -1, Period: 1})
}

// sort puts the most frequent groups first.
func (c *Comparison) sort() {
	order := make([]int32, len(c.Groups))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return compareGroups(&c.Groups[a], &c.Groups[b]) })
	groups := make([]PairGroup, len(order))
	c.sorted = make([]int32, len(order))
	for to, from := range order {
		groups[to], c.sorted[from] = c.Groups[from], int32(to)
	}
	c.Groups = groups
}

// withStacks returns p with stacks of one kind.
func withStacks(p *profile.Profile, nodes []profile.Node, groups []PairGroup,
	leaf func(*PairGroup) int32) *profile.Profile {
	q := *p
	q.Nodes, q.Samples = nodes, nil
	q.Threads, q.Events = []profile.Thread{{Comm: "all", Program: "all"}}, p.Events[:min(1, len(p.Events))]
	type key struct {
		node int32
		end  profile.End
	}
	at := make(map[key]int)
	for i := range groups {
		g := &groups[i]
		k := key{leaf(g), g.End}
		j, ok := at[k]
		if !ok {
			j = len(q.Samples)
			at[k] = j
			q.Samples = append(q.Samples, profile.Sample{Node: k.node, End: k.end, CPU: -1})
		}
		q.Samples[j].Count += g.Count
		q.Samples[j].Period += g.Count
	}
	return &q
}

func compareGroups(a, b *PairGroup) int {
	switch {
	case a.Count != b.Count:
		if a.Count > b.Count {
			return -1
		}
		return 1
	case a.DWARF != b.DWARF:
		return int(a.DWARF - b.DWARF)
	case a.FP != b.FP:
		return int(a.FP - b.FP)
	}
	return a.Parted - b.Parted
}
