package compare

import (
	"bufio"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"sync"

	"unspool/capture/format/flamegraph"
	"unspool/capture/output/human"
	"unspool/capture/profile"
)

var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/result.html
	resultHTML string
	//go:embed page/style.css
	pageCSS string
	//go:embed page/page.js
	pageJS string
)

// pageTemplate is parsed when a page is written: to do so whenever the program starts would be a quarter of
// what that takes.
var pageTemplate = sync.OnceValue(func() *template.Template {
	page := flamegraph.Page(pageHTML, template.FuncMap{
		"text": human.Printable, "number": human.Number, "percent": pagePercent, "points": points,
		"bar": bar, "differenceBar": differenceBar,
		"percentOf": func(share float64) string { return fmt.Sprintf("%.3f", 100*share) },
		"kib":       func(bytes int) int { return bytes >> 10 },
	})
	return template.Must(page.New("result").Parse(resultHTML))
})

// graphSide is one of the page's two graphs.
type graphSide struct {
	ID, Name, Long string // Name is short, for columns
	Samples        uint64
	Data           template.HTML
}

// WritePage writes the result and the flame graphs of both answers as one page of HTML that fetches nothing:
// the tables of WriteText, and below them the graphs, DWARF on the left. Names of the recorded system are
// without control characters and escaped by the template, or in base64; the page runs only the script whose
// hash it has.
func (r *Result) WritePage(w io.Writer, c *Comparison, title string) error {
	sides := []graphSide{
		{ID: "left", Name: "DWARF", Long: "DWARF"}, {ID: "right", Name: "FP", Long: "Frame pointers"},
	}
	dwarf, fp, err := r.graphs(c)
	if err != nil {
		return err
	}
	for _, g := range []flamegraph.Graph{dwarf, fp} {
		if err := g.Profile.CheckIndices(); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
	}
	data, err := flamegraph.Data(ranks(c.DWARF, c.FP), dwarf, fp)
	if err != nil {
		return err
	}
	for i, p := range []*profile.Profile{c.DWARF, c.FP} {
		sides[i].Samples, sides[i].Data = p.Count(), data[i]
	}
	values := flamegraph.Head(title, flamegraph.Style()+pageCSS,
		flamegraph.Script()+flamegraph.StripScript()+pageJS)
	values["Result"], values["Classes"] = r, r.pageClasses()
	values["Tiles"], values["Tables"] = r.tiles(), r.tables()
	values["MostShares"], values["Sides"] = most(r.Shares), sides
	values["NotCode"], values["Unmapped"] = NotCode, int(profile.Unmapped)
	out := bufio.NewWriter(w)
	if err := pageTemplate().ExecuteTemplate(out, "page", values); err != nil {
		return err
	}
	return out.Flush()
}

// ranks orders functions by their shares of both profiles.
func ranks(a, b *profile.Profile) func(name, image string) float64 {
	type key struct{ name, image string }
	shares := make(map[key]float64)
	for _, p := range []*profile.Profile{a, b} {
		count := p.Count()
		for f, n := range totals(p) {
			frame := &p.Frames[f]
			shares[key{frame.Name, p.Images[frame.Image].Name}] += share(n, count)
		}
	}
	return func(name, image string) float64 { return shares[key{name, image}] }
}

// tile is one of the numbers at the top of the page.
type tile struct {
	Key, Words string
	Part       PortionResult
}

func (r *Result) tiles() []tile {
	v := r.Verdict
	return []tile{
		{"usable", "are usable by frame pointers", v.Usable}, {"false", "show a call that never was", v.False},
		{"reaches", "are usable by DWARF", v.Reaches},
	}
}

// table is the rows that add samples up by something.
type table struct {
	Key  string
	Rows []RowResult
}

func (r *Result) tables() (list []table) {
	for by := range RowsBy(numBy) {
		list = append(list, table{by.Key(), r.By(by)})
	}
	return list
}

// pageClass is a class's row.
type pageClass struct {
	Key string
	ClassResult
	From        float64 // share of the classes before it
	StacksShare float64
	Levels      []level
	Left        int // levels that are not shown
}

// mostLevels is how many frames of an example are shown.
const mostLevels = 300

func (r *Result) pageClasses() (rows []pageClass) {
	from := 0.0
	for class := range Class(NumClasses) {
		c := r.Classes[class.Key()]
		row := pageClass{Key: class.Key(), ClassResult: c, From: from, StacksShare: share(c.Stacks, r.Stacks)}
		if c.Example != nil {
			row.Levels = c.Example.levels()
			row.Left = max(0, len(row.Levels)-mostLevels)
			row.Levels = row.Levels[:len(row.Levels)-row.Left]
		}
		from += c.Share
		rows = append(rows, row)
	}
	return rows
}

// level is a row of an example: two frames side by side. A frame that only one side has is alone in its row,
// unless neither side goes on with a frame that the other has.
type level struct {
	DWARF, FP string // "" where the side has none
	Parted    bool
	Equal     bool
}

func (e *Example) levels() (levels []level) {
	put := func(at int, fp string, equal bool) {
		l := level{FP: fp, Equal: equal, Parted: at >= 0 && at == e.Parted}
		if at >= 0 && at < len(e.DWARF) {
			l.DWARF = e.DWARF[at]
		}
		levels = append(levels, l)
	}
	at := 0
	for i, name := range e.FP {
		next := at
		for next < len(e.DWARF) && e.DWARF[next] != name {
			next++
		}
		if next == len(e.DWARF) { // it is not there: the two sides have no more frames in common
			for _, name := range e.FP[i:] {
				put(at, name, false)
				at++
			}
			break
		}
		for ; at < next; at++ {
			put(at, "", false)
		}
		put(at, name, true)
		at++
	}
	for ; at < len(e.DWARF); at++ {
		put(at, "", false)
	}
	return levels
}

// Difference is by how much the share by frame pointers is larger.
func (s ShareResult) Difference() float64 { return s.FP - s.DWARF }

// pagePercent is a share as it is printed on a terminal, with a space.
func pagePercent(share float64) string {
	return strings.Replace(exact(share), "%", "\u00a0%", 1)
}

// points is a difference of shares in percentage points.
func points(difference float64) string {
	if math.Abs(difference) < 0.0005 {
		return "0.0"
	}
	return strings.Replace(fmt.Sprintf("%+.1f", 100*difference), "-", "−", 1)
}

// most is the largest difference in a table, which is the scale of its bars.
func most[T interface{ Difference() float64 }](rows []T) float64 {
	largest := 0.0
	for _, r := range rows {
		largest = max(largest, math.Abs(r.Difference()))
	}
	return largest
}

// bar draws a share as a bar, which begins at from. It is an SVG, as the page's policy does not allow style
// attributes of elements, but allows attributes of an SVG.
func bar(class string, from, share float64) template.HTML {
	return template.HTML(fmt.Sprintf(
		`<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true"><rect class="%s" `+
			`x="%.3f" width="%.3f" height="1"/></svg>`,
		template.HTMLEscapeString(class), 100*from, 100*share))
}

// differenceBar draws a difference as a bar to the left or right of the middle.
func differenceBar(difference, most float64) template.HTML {
	if most == 0 {
		return ""
	}
	half := math.Abs(difference) / most / 2
	if difference < 0 {
		return bar("less", 0.5-half, half)
	}
	return bar("more", 0.5, half)
}
