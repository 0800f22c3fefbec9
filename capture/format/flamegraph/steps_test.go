package flamegraph

import (
	"bufio"
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"unspool/capture/profile"
	"unspool/testdata/browser"
)

// clock is when a thread's sample is taken, by its number.
type clock func(profile.Thread, int) time.Duration

// timeline returns a timeline with the samples of a profile. at gives the time of each.
func timeline(t testing.TB, p *profile.Profile, at clock) *profile.Timeline {
	t.Helper()
	line, err := profile.NewTimeline()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	p.First = 1e12
	n := make([]int, len(p.Threads))
	for i := range p.Samples {
		s := &p.Samples[i]
		for range s.Count {
			after := at(p.Threads[s.Thread], n[s.Thread])
			n[s.Thread]++
			p.Duration = max(p.Duration, after)
			if err := line.Add(p.First+uint64(after), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	return line
}

// phases are those of the build: shells in the first two seconds, compilers in six more, then the linker.
func phases(t profile.Thread, n int) time.Duration {
	switch {
	case t.Comm == "sh":
		return time.Duration(t.PID-1000) * 3 * time.Millisecond
	case t.Comm == "cc1":
		return 2100*time.Millisecond + time.Duration(n)*time.Second
	}
	return 8100*time.Millisecond + time.Duration(n)*1900*time.Millisecond/99
}

func TestSteps(t *testing.T) {
	s := &steps{n: mostSteps, most: 100}
	for _, c := range []struct {
		after uint64
		want  int32
	}{{0, 0}, {1, 1}, {512, 512}, {1023, 1023}, {1024, 1023}, {math.MaxUint64, 1023}} {
		if got := s.at(c.after, 1023); got != c.want {
			t.Errorf("%d is in step %d, want %d", c.after, got, c.want)
		}
	}
	if got := s.at(math.MaxUint64, math.MaxInt64); got != 1023 {
		t.Errorf("the last step is %d", got)
	}
}

// However many samples there are, few points are left, and none of their samples is.
func TestStepsGetLonger(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ weights, most, want int }{
		{1, 2000, 1024}, {1, 1023, 512}, {1, 600, 512}, {4, 300, 64}, {50, 1000, 16}, {50, 799, 0}, {1000, 500, 0},
	} {
		s := &steps{n: mostSteps, most: c.most}
		const samples = 100_000
		for range samples {
			s.add(int32(random.IntN(c.weights)), random.Uint64N(1e9), 1e9)
		}
		s.merge()
		var sum uint64
		for _, p := range s.points {
			sum += p.count
		}
		if s.n != c.want || len(s.points) > c.most || s.n > 0 && sum != samples {
			t.Errorf("%+v: %d steps, %d points, %d samples", c, s.n, len(s.points), sum)
		}
	}
}

// The points of each weight have its samples, in the order in which the page reads them.
func TestTimedWeights(t *testing.T) {
	p := build()
	line := timeline(t, p, phases)
	g := newGraph(p)
	s, err := g.timed(line)
	if err != nil {
		t.Fatal(err)
	}
	sums := make([]uint64, len(g.weights))
	for i, at := range s.points {
		if i > 0 && (at.weight < s.points[i-1].weight || at.weight == s.points[i-1].weight &&
			at.step <= s.points[i-1].step) {
			t.Fatalf("%+v after %+v", at, s.points[i-1])
		}
		sums[at.weight] += at.count
	}
	if !slices.EqualFunc(sums, g.weights, func(n uint64, w weight) bool { return n == w.count }) {
		t.Error("the points do not add up to the weights")
	}
	other := example()
	other.Duration = time.Second
	if _, err := newGraph(other).timed(line); err == nil {
		t.Error("the timeline of another profile")
	}
}

func TestStripInABrowser(t *testing.T) {
	build := build()
	p := open(t, build, Options{Timeline: timeline(t, build, phases)})
	strip := browser.Eval[[]float64](p.Page, `(() => {
		const b = document.querySelector('#strip canvas').getBoundingClientRect();
		return [b.left, b.top, b.width];
	})()`)
	drag := func(from, to float64) {
		p.Drag(strip[0]+from*strip[2], strip[1]+20, strip[0]+to*strip[2], strip[1]+25)
	}
	total := func(want string) {
		t.Helper()
		p.MoveTo(p.frame(0, 0.5))
		p.text("#tip table tr", "total100 %"+want)
		p.MoveTo(5, 5)
	}
	const all = "10 s in bars of 68.4 ms · draw a range to see its part, exact to 9.77 ms"
	p.text(".strip .when", all)
	p.text(".strip .programs", "cc166.7 %sh20.0 %ld13.3 %")
	total("3,000")

	// A part, which narrows the graph, the colours' shares and the list of threads.
	drag(0.8, 0.2)
	p.text(".strip .when", "1.99 s to 8.01 s · 66.7 % of 3,000 samples")
	p.text(".strip .programs", "cc1100 %sh0 %ld0 %")
	p.text("#legend [data-word=user] b", "100 %")
	total("2,000")
	p.Click("[popovertarget=threads]")
	p.text("#thread-list", "All threads1,104100 %▸cc1500 processes100 %▸ld20000 %▸sh600 processes0 %")
	p.Press(browser.Escape)
	p.Until("!document.querySelector('#threads').matches(':popover-open')")
	total("2,000")

	// The zoom stays while its frame has samples; Escape ends it first, then the range.
	p.ClickAt(p.frame(2, 0.5))
	p.text("#crumbs", "allmaincompile")
	drag(0.2, 0.5)
	p.text(".strip .when", "1.99 s to 5.01 s · 50.0 % of 3,000 samples")
	p.text("#crumbs", "allmaincompile")
	p.Press(browser.Escape)
	p.text("#crumbs", "all")
	total("1,500")
	p.Press(browser.Escape)
	p.text(".strip .when", all)
	total("3,000")

	// The button, a click, the keyboard.
	drag(0, 0.2)
	total("600")
	p.Click(".strip .whole:not([hidden])")
	p.text(".strip .when", all)
	drag(0.81, 1)
	total("400")
	p.ClickAt(strip[0]+50, strip[1]+20)
	p.text(".strip .when", all)
	p.Press(browser.ArrowRight)
	p.text(".strip .when", "0 s to 1.01 s · 11.2 % of 3,000 samples")
	p.Press(browser.ArrowRight)
	p.text(".strip .when", "205 ms to 1.21 s · 11.2 % of 3,000 samples")
	p.Press(browser.Escape)

	// A bin under the mouse, and a program of the legend.
	p.MoveTo(strip[0]+0.9*strip[2], strip[1]+20)
	p.text("#tip th", "ld")
	p.Click("[title='Show only cc1']")
	p.text("#thread", "all cc1")
	p.text(".strip .programs", "cc1100 %sh0 %ld0 %")
	total("2,000")
	if c := p.Complaints(); len(c) > 0 {
		t.Error(c)
	}
}

// TestStripNamesTheProgramsOfTheRange draws twenty programs one after the other, the later the fewer samples they have.
func TestStripNamesTheProgramsOfTheRange(t *testing.T) {
	const programs = 20
	p := build()
	p.Threads, p.Samples = nil, nil
	for i := range programs {
		name := string(rune('a' + i))
		p.Threads = append(p.Threads, profile.Thread{PID: uint32(i + 1), TID: uint32(i + 1), Comm: name, Program: name})
		p.Samples = append(p.Samples, profile.Sample{Node: 1, Thread: int32(i), Count: uint64(programs*10 - i)})
	}
	line := timeline(t, p, func(of profile.Thread, n int) time.Duration {
		return time.Duration(of.PID-1)*time.Second + time.Duration(n)*4*time.Millisecond
	})
	page := open(t, p, Options{Timeline: line})
	page.text(".strip .programs", "a5.25 %b5.22 %c5.20 %d5.17 %e5.14 %f5.12 %g5.09 %13 others63.8 %")
	strip := browser.Eval[[]float64](page.Page, `(() => {
		const b = document.querySelector('#strip canvas').getBoundingClientRect();
		return [b.left, b.top, b.width];
	})()`)
	// The last two, and a part of the one before, whose samples are over by then.
	length := p.Duration.Seconds()
	page.Drag(strip[0]+17.9/length*strip[2], strip[1]+20, strip[0]+strip[2], strip[1]+25)
	page.text(".strip .programs", "s50.1 %t49.9 %a0 %b0 %c0 %d0 %e0 %")
}

// What is not shown, or not in full, is told.
func TestCoarseTimeInABrowser(t *testing.T) {
	page := open(t, example(), Options{})
	if !browser.Eval[bool](page.Page, "document.querySelector('#strip').hidden") {
		t.Error("time, of samples that have none")
	}
	p := build()
	for i := range p.Samples {
		p.Samples[i].Period = p.Samples[i].Count * 5e5
	}
	line := timeline(t, p, phases)
	for _, c := range []struct {
		steps int
		want  string
	}{
		{0, "Time is left out: there are too many samples that differ"},
		// The 500 samples of a bar at most are of half a millisecond each.
		{64, "10 s in bars of 156 ms, full height 1.6 CPUs · draw a range to see its part, exact to 156 ms, " +
			"as there are many samples"},
	} {
		g := newGraph(p)
		s, err := g.timed(line)
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.points {
			s.points[i].step /= int32(s.n / max(c.steps, 1))
		}
		s.n = c.steps
		if s.merge(); s.n == 0 {
			s.points = nil
		}
		var b bytes.Buffer
		w := bufio.NewWriter(&b)
		file := filepath.Join(t.TempDir(), "page.html")
		err = errors.Join(writeHTML(w, g, s, Options{}), w.Flush(), os.WriteFile(file, b.Bytes(), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		page := opened{t, browser.Open(t, file, 1200, 800)}
		page.Until("document.documentElement.dataset.ready")
		page.text(".strip .when", c.want)
		page.MoveTo(page.frame(0, 0.5))
		page.text("#tip table tr", "total100 %3,000")
		if c := page.Complaints(); len(c) > 0 {
			t.Error(c)
		}
	}
}
