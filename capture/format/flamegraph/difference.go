package flamegraph

import (
	"bufio"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"sync"
	"time"

	"unspool/capture/output/human"
	"unspool/capture/profile/difference"
)

var (
	//go:embed page/difference.html
	differenceHTML string
	//go:embed page/difference.css
	differenceCSS string
	//go:embed page/statistics.js
	statisticsJS string
	//go:embed page/difference.js
	differenceJS string
)

var differencePage = sync.OnceValue(func() *template.Template {
	return Page(differenceHTML, nil)
})

// DifferencePage is what the page of two sides is.
type DifferencePage struct {
	Title   string
	Amounts bool // go by CPU time at first, and not by shares
}

// pagePair is a pair of events as the page has it.
type pagePair struct {
	Name, Unit string
	Event      [2]int // in the page's data; -1 for one without samples
	Each       [2]float64
}

// pageSide is a side, and how long its recording is: 0 of several, whose samples have no common time.
type pageSide struct {
	Name    string
	Runs    []pageRun
	Seconds float64
}

// pageRun is what the page says of a recording.
type pageRun struct {
	Name, File string
	Facts      []fact
}

// WriteDifference writes a page about the recordings of two sides: a flame graph of both, whose colours say by how much
// each frame differs, and a table of functions. The samples of a side's recordings are added up. The difference has the
// error of sampling only, as the page counts again whenever a part of the samples is chosen.
func WriteDifference(w io.Writer, m *difference.Merged, o DifferencePage) error {
	g := newGraph(m.Profile)
	s, err := g.bothTimed(m)
	if err != nil {
		return err
	}
	data, err := encode(g, s)
	if err != nil {
		return err
	}
	var pairs []pagePair
	for _, p := range m.Pairs {
		page := pagePair{Name: human.Printable(p.Name), Unit: p.Unit}
		for side, event := range p.Event {
			page.Event[side], page.Each[side] = slices.Index(g.events, event), p.Whole[side].Each
		}
		if page.Unit != "s" {
			page.Unit = "amount"
		}
		pairs = append(pairs, page)
	}
	var sides []pageSide
	for side, name := range []string{"A", "B"} {
		of := pageSide{Name: name}
		for i := range m.Runs[side] {
			r := &m.Runs[side][i]
			run := pageRun{name, human.Printable(r.Name), summary(r.Profile)}
			if len(m.Runs[side]) > 1 {
				run.Name = fmt.Sprintf("%s%d", name, i+1)
			}
			of.Runs = append(of.Runs, run)
		}
		if single(m) {
			of.Seconds = length(&m.Runs[side][0]).Seconds()
		}
		sides = append(sides, of)
	}
	var names []string
	for i := range m.Unnamed {
		if u := &m.Unnamed[i]; u.Much {
			names = append(names, human.Printable(u.String()))
		}
	}
	values := Head(o.Title, Style()+differenceCSS,
		Script()+StripScript()+pageJS+statisticsJS+differenceJS+"start(DifferencePage);\n")
	values["Pairs"], values["Sides"], values["Names"] = pairs, sides, names
	values["Amounts"], values["Data"], values["Single"] = o.Amounts, data, single(m)
	out := bufio.NewWriter(w)
	if err := differencePage().Execute(out, values); err != nil {
		return err
	}
	return out.Flush()
}

// single reports whether each side has one recording.
func single(m *difference.Merged) bool {
	return len(m.Runs[difference.A]) == 1 && len(m.Runs[difference.B]) == 1
}

// length is how long a recording is. Times that are made up may make it negative.
func length(r *difference.Run) time.Duration { return max(0, r.Duration) }

// bothTimed finds the times of both recordings' samples, nil if either has none, or a side has several recordings.
func (g *graph) bothTimed(m *difference.Merged) (*steps, error) {
	if !single(m) {
		return nil, nil
	}
	for _, runs := range m.Runs {
		if runs[0].Timeline == nil {
			return nil, nil
		}
	}
	if m.Duration <= 0 {
		return nil, nil
	}
	return g.steps(m, 0, func(event int32) time.Duration { return length(&m.Runs[m.Side(event)][0]) })
}
