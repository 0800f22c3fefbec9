package difference

import (
	"maps"
	"slices"
	"testing"
	"time"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
)

// stacks makes a profile of functions that are given as "function image", outermost first.
type stacks struct {
	*profiletest.Builder
	frames map[[2]string]int32
}

func newStacks(events ...profile.Event) *stacks {
	if events == nil {
		events = []profile.Event{{Name: "cpu-clock", Clock: true}}
	}
	return &stacks{profiletest.New(&profile.Profile{Events: events}), make(map[[2]string]int32)}
}

func (s *stacks) frame(name, path string) int32 {
	key := [2]string{name, path}
	f, ok := s.frames[key]
	if !ok {
		at := slices.IndexFunc(s.Images, func(im profile.Image) bool { return im.Path == path })
		if at < 0 {
			at = len(s.Images)
			s.Images = append(s.Images, profile.Image{Name: path[slices.Index([]byte(path), '/')+1:], Path: path})
		}
		f = s.Frame(profile.Frame{Name: name, Image: int32(at), Known: true, Addr: uint64(0x1000 * len(s.Frames))})
		s.frames[key] = f
	}
	return f
}

// add adds samples of a stack of functions and the paths of their images.
func (s *stacks) add(comm string, event int32, n uint64, stack ...string) *stacks {
	var frames []int32
	for i := 0; i < len(stack); i += 2 {
		frames = append(frames, s.frame(stack[i], stack[i+1]))
	}
	thread := s.Thread(profile.Thread{PID: 1, TID: 1, Comm: comm})
	s.Sample(profile.Sample{
		Thread: thread, Node: s.Stack(frames...), Event: event, CPU: -1, Count: n, Period: n * 1e6,
	})
	return s
}

func (s *stacks) recording() Run { return Run{Profile: s.Profile} }

// total counts the samples of each function on both sides, with those of the functions that it calls.
func total(t *testing.T, m *Merged, pair int) map[string][2]uint64 {
	t.Helper()
	lists, err := m.Changes(pair, Rows{N: len(m.Frames), Of: func(_, leaf int32, add func(int32)) {
		on := make(map[int32]bool)
		for ; leaf > 0; leaf = m.Nodes[leaf].Parent {
			on[m.Nodes[leaf].Frame] = true
		}
		for f := range on {
			add(f)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	samples := make(map[string][2]uint64)
	for i, c := range lists[0] {
		f := &m.Frames[i]
		samples[f.Name+" "+m.Images[f.Image].Name] = c.Samples
	}
	return samples
}

func TestMerge(t *testing.T) {
	a := newStacks().add("app-old", 0, 25, "main", "/app-old", "work", "/app-old").
		add("app-old", 0, 75, "main", "/app-old", "work", "/app-old", "memcpy", "/libc")
	b := newStacks().add("app-new", 0, 30, "memcpy", "/libc").
		add("app-new", 0, 100, "main", "/app-new", "work", "/app-new", "memcpy", "/libc").
		add("app-new", 0, 70, "main", "/app-new", "other", "/app-new")
	m := merged(t, a.recording(), b.recording())
	want := map[string][2]uint64{
		"main app-old / app-new": {100, 170}, "work app-old / app-new": {100, 100}, "memcpy libc": {75, 130},
		"other app-old / app-new": {0, 70},
	}
	if got := total(t, m, 0); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	const program = "app-old / app-new"
	if len(m.Nodes) != 6 || len(m.Threads) != 1 || m.Threads[0].Program != program || m.Threads[0].Comm != program {
		t.Errorf("%d nodes, %+v", len(m.Nodes), m.Threads)
	}
	p := m.Pairs[0]
	if len(m.Pairs) != 1 || p.Name != "cpu-clock" || p.Unit != "s" ||
		p.Whole != [2]Whole{{100, 1e-3}, {200, 1e-3}} {
		t.Errorf("%+v", m.Pairs)
	}
}

// A function that is in two images of the same name, one called by the other, counts once for each sample.
func TestImagesOfOneNameCountOnce(t *testing.T) {
	a := newStacks().add("x", 0, 10, "f", "/a/plugin.so", "f", "/b/plugin.so").
		add("x", 0, 30, "g", "/a/plugin.so")
	for i := range a.Images {
		a.Images[i].Name = "plugin.so"
	}
	m := merged(t, a.recording(), a.recording())
	want := map[string][2]uint64{"f plugin.so": {10, 10}, "g plugin.so": {30, 30}}
	if got := total(t, m, 0); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Names are changed only for what half of the samples or more have, and nothing for a recording and itself.
func TestCounterparts(t *testing.T) {
	app := func(name string, half uint64, library string) *profile.Profile {
		return newStacks().add(name, 0, 50-half, "main", "/x").add(name, 0, half, "main", "/x", "work", library).
			add("sh", 0, 50, "main", "/sh", "read", "/libc").Profile
	}
	for _, c := range []struct {
		a, b   *profile.Profile
		images map[string]string
		comms  map[string]string
	}{
		{app("x", 50, "/old.so"), app("x", 50, "/new.so"), map[string]string{"old.so": "old.so / new.so"}, nil},
		{app("x", 49, "/old.so"), app("x", 50, "/new.so"), nil, nil},
		{app("x", 50, "/old.so"), app("x", 50, "/old.so"), nil, nil},
		{app("x", 50, "/old.so"), app("y", 50, "/old.so"), nil, map[string]string{"x": "x / y"}},
		{app("x", 50, "/old.so"), newStacks().Profile, nil, nil},
	} {
		got := alike([]Run{{Profile: c.a}}, []Run{{Profile: c.b}})[A]
		if !maps.Equal(got.images, c.images) || !maps.Equal(got.programs, c.comms) {
			t.Errorf("%v, want %v and %v", got, c.images, c.comms)
		}
	}
}

func TestEventsArePaired(t *testing.T) {
	name := func(names ...string) (events []profile.Event) {
		for _, n := range names {
			events = append(events, profile.Event{Name: n})
		}
		return events
	}
	a := newStacks(name("faults", "cycles", "only A", "never")...).add("x", 1, 5, "f", "/x").
		add("x", 0, 3, "f", "/x").add("x", 2, 1, "f", "/x")
	b := newStacks(name("never", "only B", "cycles", "faults")...).add("x", 2, 7, "f", "/x").
		add("x", 1, 9, "f", "/x")
	m := merged(t, a.recording(), b.recording())
	var got []string
	for i, p := range m.Pairs {
		got = append(got, p.Name)
		want := map[string][2]uint64{"cycles": {5, 7}, "faults": {3, 0}}[p.Name]
		if total(t, m, i)["f x"] != want ||
			p.Unit != p.Name || p.Whole[A].Each != 1e6 {
			t.Errorf("%+v: %v", p, total(t, m, i))
		}
	}
	if !slices.Equal(got, []string{"faults", "cycles"}) || !slices.Equal(m.Left[A], []string{"only A"}) ||
		!slices.Equal(m.Left[B], []string{"only B"}) {
		t.Errorf("%q, left %q", got, m.Left)
	}
	// What each has alone is a pair.
	m = merged(t, newStacks(name("cycles")...).add("x", 0, 1, "f", "/x").recording(),
		newStacks(name("dummy", "cpu-clock")...).add("x", 1, 1, "f", "/x").recording())
	if len(m.Pairs) != 1 || m.Pairs[0].Name != "cycles / cpu-clock" {
		t.Errorf("%+v", m.Pairs)
	}
}

// Programs stand above the stacks if both recordings together have several.
func TestProgramsAboveStacks(t *testing.T) {
	one := newStacks().add("make", 0, 4, "main", "/make")
	two := newStacks()
	two.Images = []profile.Image{{Path: "[process]"}}
	for _, name := range []string{"make", "cc1"} {
		thread := two.Thread(profile.Thread{PID: 2, TID: 2, Comm: name})
		process := two.Frame(profile.Frame{Name: name, Kind: profile.Process, Known: true})
		node := two.Stack(process, two.frame("main", "/make"))
		two.Sample(profile.Sample{Thread: thread, Node: node, CPU: -1, Count: 8})
	}
	for _, processes := range []bool{true, false} {
		m, err := Merge([]Run{one.recording()}, []Run{two.recording()}, Options{Processes: processes})
		if err != nil {
			t.Fatal(err)
		}
		below := 0
		for _, n := range m.Nodes[1:] {
			if n.Parent > 0 && m.Frames[n.Frame].Name == "main" && m.Frames[m.Nodes[n.Parent].Frame].Name == "make" {
				below++
			}
		}
		if (below == 1 && len(m.Nodes) == 5) != processes {
			t.Errorf("%v: %d below make of %+v", processes, below, m.Nodes)
		}
	}
	m := merged(t, one.recording(), one.recording())
	if len(m.Nodes) != 2 {
		t.Errorf("one program: %+v", m.Nodes)
	}
}

// Without the kernel, its samples are those of its caller; a program has them where no function called it.
func TestWithoutTheKernel(t *testing.T) {
	s := newStacks().add("x", 0, 5, "main", "/x", "read", "/kernel").add("x", 0, 7, "irq", "/kernel")
	for i := range s.Frames {
		if s.Images[s.Frames[i].Image].Name == "kernel" {
			s.Frames[i].Kind = profile.Kernel
		}
	}
	m, err := Merge([]Run{s.recording()}, []Run{s.recording()}, Options{NoKernel: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Totals(); !slices.Equal(got, []uint64{24, 10}) || m.Frames[m.Nodes[1].Frame].Name != "main" {
		t.Errorf("%v", got)
	}
}

// Times begin with the recording that they are of.
func TestTimesOfBoth(t *testing.T) {
	a, b := making(t, 2), making(t, 2)
	a.add(t, 0, 100*time.Millisecond)
	b.First = 90e9
	b.add(t, 1, 700*time.Millisecond)
	m := merged(t, a.recording(), b.recording())
	times := make(map[string]time.Duration)
	if err := m.Each(0, func(p profile.Point) error {
		times[m.Frames[m.Nodes[p.Node].Frame].Name+[]string{"A", "B"}[p.Event]] = time.Duration(p.Time)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := map[string]time.Duration{"f00A": 1e8, "f01B": 7e8}; !maps.Equal(times, want) {
		t.Errorf("%v, want %v", times, want)
	}
}

func TestInvalidProfilesAreRefused(t *testing.T) {
	valid := newStacks().recording()
	if _, err := Merge([]Run{valid}, []Run{{Profile: &profile.Profile{}}}, Options{}); err == nil {
		t.Error("a profile without a root is merged")
	}
}

// The shares are Newcombe's first example; the numbers of samples, 48 and 56, are 48 + 1.92 ± 13.71 and
// 56 + 1.92 ± 14.79, each of a millisecond.
func TestChange(t *testing.T) {
	a := newStacks().add("x", 0, 32, "main", "/x").add("x", 0, 48, "main", "/x", "f", "/x")
	b := newStacks().add("x", 0, 14, "main", "/x").add("x", 0, 56, "main", "/x", "f", "/x")
	m := merged(t, a.recording(), b.recording())
	lists, err := m.Changes(0, Rows{N: 1, Of: func(_, leaf int32, add func(int32)) {
		if m.Frames[m.Nodes[leaf].Frame].Name == "f" {
			add(0)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := lists[0][0]
	for _, e := range []struct {
		have       Estimate
		low, value float64
		high       float64
	}{
		{c.Share, 0.0524, 0.2, 0.3339},
		{c.Amount, -0.01225, 0.008, 0.02845},
	} {
		if !near(e.have.Low, e.low, 0.00005) || !near(e.have.Value, e.value, 1e-9) ||
			!near(e.have.High, e.high, 0.00005) {
			t.Errorf("%+v, want %v to %v", e.have, e.low, e.high)
		}
	}
	if c.Samples != [2]uint64{48, 56} || !c.Judged() {
		t.Errorf("%+v", c)
	}
}

// Where one recording is four times as long, 9 samples that it has none of would be significant, but fewer
// than 10 are not judged.
func TestFewSamplesAreNotJudged(t *testing.T) {
	a := newStacks().add("x", 0, 4000, "main", "/x")
	b := newStacks().add("x", 0, 981, "main", "/x").add("x", 0, 9, "few", "/x").add("x", 0, 10, "enough", "/x")
	changes := byName(t, merged(t, a.recording(), b.recording()))
	for name, want := range map[string]bool{"few": false, "enough": true} {
		c := changes[name]
		if c.Judged() != want || c.Share.ExcludesZero() != want || c.Amount.ExcludesZero() != want {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// Compilers make copies of a function in one build and not in another: it is the same function.
func TestCopiesAreTheirFunction(t *testing.T) {
	a := newStacks().add("app", 0, 7, "main", "/app", "app::run", "/app")
	b := newStacks().add("app", 0, 3, "main", "/app", "app::run [clone .constprop.0]", "/app").
		add("app", 0, 2, "main", "/app", "app::run [clone .isra.0] [clone .cold]", "/app")
	m := merged(t, a.recording(), b.recording())
	want := map[string][2]uint64{"main app": {7, 5}, "app::run app": {7, 5}}
	if got := total(t, m, 0); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A function that is inlined in one build, or in some of its callers, is one function.
func TestInlinedFunctionsAreOne(t *testing.T) {
	a := newStacks().add("app", 0, 7, "main", "/app", "called", "/app").
		add("app", 0, 5, "main", "/app", "always", "/app")
	b := newStacks().add("app", 0, 3, "main", "/app", "called", "/app").
		add("app", 0, 2, "main", "/app", "always", "/app").add("app", 0, 1, "main", "/app")
	inline := func(s *stacks, names ...string) {
		for i := range s.Frames {
			f := &s.Frames[i]
			f.Addr = 0
			f.Inlined = slices.Contains(names, f.Name)
		}
	}
	inline(a, "always")
	inline(b, "always", "called")
	m := merged(t, a.recording(), b.recording())
	want := map[string][2]uint64{"main app": {12, 6}, "called app": {7, 3}, "always app": {5, 2}}
	if got := total(t, m, 0); !maps.Equal(got, want) || len(m.Nodes) != 4 {
		t.Errorf("%v in %d nodes, want %v", got, len(m.Nodes), want)
	}
	for i := range m.Frames {
		if f := &m.Frames[i]; f.Inlined != (f.Name == "always") {
			t.Errorf("%+v", f)
		}
	}
}
