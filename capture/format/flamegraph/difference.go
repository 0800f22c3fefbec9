package flamegraph

import (
	"bufio"
	_ "embed"
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

// DifferencePage is what the page of two recordings is.
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

// pageSide is what the page says of a recording.
type pageSide struct {
	Name, File string
	Facts      []fact
	Seconds    float64
}

// WriteDifference writes a page about two recordings, one of each side: a flame graph of both, whose colours say
// by how much each frame differs, and a table of functions.
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
		s := &m.Runs[side][0]
		sides = append(sides, pageSide{name, human.Printable(s.Name), summary(s.Profile), length(s).Seconds()})
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
	values["Amounts"], values["Data"] = o.Amounts, data
	out := bufio.NewWriter(w)
	if err := differencePage().Execute(out, values); err != nil {
		return err
	}
	return out.Flush()
}

// length is how long a recording is. Times that are made up may make it negative.
func length(r *difference.Run) time.Duration { return max(0, r.Duration) }

// bothTimed finds the times of both recordings' samples, nil if either has none.
func (g *graph) bothTimed(m *difference.Merged) (*steps, error) {
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
