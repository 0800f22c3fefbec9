package compare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"unspool/capture/profile/difference"
)

// RowsBy is what rows add samples up by.
type RowsBy uint8

const (
	ByProgram RowsBy = iota // the name of the process
	ByComm                  // the name of the thread
	ByImage                 // the file that the sampled code is of
	ByPackage               // the package of that file, or its name where it is of none
	numBy     = iota
)

var byKeys = [numBy]string{"program", "comm", "image", "package"}

// Key is the name in JSON and on the command line.
func (b RowsBy) Key() string { return byKeys[b] }

// ByKeys are the names that ByOf knows.
func ByKeys() []string { return byKeys[:] }

// ByOf finds what rows add up by, by its Key.
func ByOf(key string) (RowsBy, bool) {
	i := slices.Index(byKeys[:], key)
	return RowsBy(max(i, 0)), i >= 0
}

// Order is what rows are sorted by, the largest first.
type Order uint8

const (
	BySamples  Order = iota
	ByLost           // frames that frame pointers miss, in all samples of the row
	ByFalse          // samples that show a call that never was
	ByUnusable       // samples that are not usable
	numOrders  = iota
)

var orderKeys = [numOrders]string{"samples", "lost", "false", "unusable"}

// OrderKeys are the names that OrderOf knows.
func OrderKeys() []string { return orderKeys[:] }

// OrderOf finds an order by its name.
func OrderOf(key string) (Order, bool) {
	i := slices.Index(orderKeys[:], key)
	return Order(max(i, 0)), i >= 0
}

// PortionResult is a part of the samples, as a share, and the interval in which the share lies.
type PortionResult struct {
	Samples uint64  `json:"samples"`
	Share   float64 `json:"share"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
}

// within is how far an interval may go from its share for the share to be said, in points of 1: with more, there are
// not enough samples.
const within = 0.05

func (p *PortionResult) estimate() difference.Estimate {
	return difference.Estimate{Low: p.Low, Value: p.Share, High: p.High}
}

// Enough reports whether there are samples enough to say the share.
func (p *PortionResult) Enough() bool { e := p.estimate(); return e.Within(within) }

func portionResult(s difference.Strata, tests int) PortionResult {
	e, n := s.Estimate(tests), 0.0
	for _, p := range s {
		for _, part := range p.Part {
			n += part
		}
	}
	return PortionResult{uint64(n), e.Value, e.Low, e.High}
}

// RowResult is what frame pointers do to the samples of a program, a thread's name, an image or a package.
type RowResult struct {
	Name    string        `json:"name"`
	Samples uint64        `json:"samples"`
	Share   float64       `json:"share"` // of all samples; the rest is of these
	Usable  PortionResult `json:"usable"`
	False   PortionResult `json:"false"`
	Lost    float64       `json:"mean_frames_lost"` // start code left out
	// Whose code loses most of the row's stacks that are not usable, "" for none: a package, without its version, or an
	// image that is of none. BlameShare is of all of the row's stacks that are not usable. Of those that were cut, or that
	// DWARF does not know either, nobody's code is to blame.
	Blame      string  `json:"blame"`
	BlameShare float64 `json:"blame_share"`
}

// rowTally adds up samples.
type rowTally struct {
	samples       uint64
	usable, wrong difference.Portion
	lost          uint64
	unusable      uint64
	blamed        map[string]uint64
}

// rowNames are the names of the rows that samples of a group in a task are in.
func (c *Comparison) rowNames(of *taskGroup, packages []string) (names [numBy]string) {
	if int(of.task) < len(c.Tasks) {
		names[ByProgram], names[ByComm] = c.Tasks[of.task].Program, c.Tasks[of.task].Comm
	}
	if im := c.sampled(&c.Groups[of.group]); im >= 0 {
		names[ByImage], names[ByPackage] = c.DWARF.Images[im].Name, c.owner(im, packages)
	}
	return names
}

// sampled is the image of the innermost user frame of a group, -1 for none.
func (c *Comparison) sampled(g *PairGroup) int32 {
	node := above(c.DWARF, g.DWARF, g.Kernel)
	if node == 0 {
		return -1
	}
	return c.DWARF.Frames[c.DWARF.Nodes[node].Frame].Image
}

// owner is the package of an image, or its name.
func (c *Comparison) owner(image int32, packages []string) string {
	if packages[image] != "" {
		return packages[image]
	}
	return c.DWARF.Images[image].Name
}

// shortOwner is the package of an image without its version, or the image's name.
func (c *Comparison) shortOwner(image int32, packages []string) string {
	if name, _, ok := strings.Cut(packages[image], " "); ok {
		return name
	}
	return c.owner(image, packages)
}

// rowsBy adds the samples up, for each RowsBy, with the largest of an order first, at most mostRows of each. packages
// are those of the images.
func (c *Comparison) rowsBy(samples []taskGroup, packages []string, order Order) (rows [numBy][]RowResult) {
	// What rows count for in the order, and samples, first: what is kept of a row by block is not small.
	type weights struct {
		name           string
		order, samples uint64
		tally          *rowTally // of the first rows
	}
	var found [numBy]map[string]*weights
	for by := range found {
		found[by] = make(map[string]*weights)
	}
	in := make([][numBy]*weights, len(samples))
	for i := range samples {
		of := &samples[i]
		for by, name := range c.rowNames(of, packages) {
			w := found[by][name]
			if w == nil {
				w = &weights{name: name}
				found[by][name] = w
			}
			w.order += c.Groups[of.group].weight(order) * of.samples
			w.samples += of.samples
			in[i][by] = w
		}
	}
	var first [numBy][]*weights
	for by, all := range found {
		first[by] = firstOf(slices.SortedFunc(maps.Values(all), func(a, b *weights) int {
			return cmp.Or(cmp.Compare(b.order, a.order), cmp.Compare(b.samples, a.samples), cmp.Compare(a.name, b.name))
		}))
		for _, w := range first[by] {
			w.tally = &rowTally{blamed: make(map[string]uint64)}
		}
	}
	for i := range samples {
		for _, w := range in[i] {
			if w.tally != nil {
				w.tally.add(c, &samples[i], packages)
			}
		}
	}
	for by := range rows {
		rows[by] = []RowResult{}
		for _, w := range first[by] {
			rows[by] = append(rows[by], w.tally.result(w.name, c.Samples))
		}
	}
	return rows
}

// weight is what a sample of a group counts for in an order.
func (g *PairGroup) weight(order Order) uint64 {
	switch {
	case order == BySamples, order == ByFalse && g.False, order == ByUnusable && g.Usable == No:
		return 1
	case order == ByLost:
		return uint64(g.PairState.Lost)
	}
	return 0
}

func (t *rowTally) add(c *Comparison, of *taskGroup, packages []string) {
	g := &c.Groups[of.group]
	t.samples += of.samples
	t.lost += of.samples * uint64(g.PairState.Lost)
	of.count(&t.usable, g.Usable == Yes)
	of.count(&t.wrong, g.False)
	if g.Usable != No {
		return
	}
	t.unusable += of.samples
	if f := c.blamed(g); f >= 0 {
		t.blamed[c.shortOwner(c.DWARF.Frames[f].Image, packages)] += of.samples
	}
}

func (t *rowTally) result(name string, all uint64) RowResult {
	r := RowResult{Name: name, Samples: t.samples, Share: share(t.samples, all),
		Usable: portionResult(difference.Strata{&t.usable}, 1), False: portionResult(difference.Strata{&t.wrong}, 1)}
	if t.samples > 0 {
		r.Lost = float64(t.lost) / float64(t.samples)
	}
	var most uint64
	for name, n := range t.blamed {
		if n > most || n == most && name < r.Blame {
			most, r.Blame = n, name
		}
	}
	r.BlameShare = share(most, t.unusable)
	return r
}

// Text is the share and its interval, or that there are not enough samples to say it.
func (p PortionResult) Text() string {
	if !p.Enough() {
		return "not enough"
	}
	return percentRange(&p)
}

// percentRange is a share and its interval, with as many digits as the interval is wide: "43 % (41–45)".
func percentRange(p *PortionResult) string {
	e := p.estimate()
	n := digits(max(e.High-e.Value, e.Value-e.Low))
	return fmt.Sprintf("%s %% (%s–%s)", rounded(e.Value, n, nearest), rounded(e.Low, n, down), rounded(e.High, n, up))
}

// digits is with how many digits behind the point percentages are printed whose interval goes so far to a side.
func digits(half float64) int {
	switch {
	case half >= 0.01:
		return 0
	case half >= 0.001:
		return 1
	}
	return 2
}

// Interval is where the share lies, for the page.
func (p PortionResult) Interval() string {
	return fmt.Sprintf(" (%s to %s\u00a0%%)", rounded(p.Low, 1, down), rounded(p.High, 1, up))
}
