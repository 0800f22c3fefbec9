package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"unspool/capture/profile"
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

// each calls fn with the samples of each group and task, by block of time. Without times, all are in one block.
func (c *Comparison) each(fn func(task int32, group int32, block int, n uint64)) error {
	if c.Times == nil {
		for i := range c.Groups {
			fn(0, int32(i), 0, c.Groups[i].Count)
		}
		return nil
	}
	length := uint64(max(0, c.DWARF.Duration))
	for task := range c.Tasks {
		if err := c.Times.Each(int32(task), func(p profile.Point) error {
			fn(int32(task), c.group(p.Node), int(difference.BlockOf(p.Time-min(c.DWARF.First, p.Time), length)), 1)
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// rowNames are the names of the rows that samples of a task and a group are in.
func (c *Comparison) rowNames(packages []string) func(task, group int32) [numBy]string {
	return func(task, group int32) (names [numBy]string) {
		if int(task) < len(c.Tasks) {
			names[ByProgram], names[ByComm] = c.Tasks[task].Program, c.Tasks[task].Comm
		}
		if im := c.sampled(&c.Groups[group]); im >= 0 {
			names[ByImage], names[ByPackage] = c.DWARF.Images[im].Name, c.owner(im, packages)
		}
		return names
	}
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

// Rows adds the samples up, for each RowsBy, with the largest of an order first, at most mostRows of each. packages are
// those of the images.
func (c *Comparison) Rows(packages []string, order Order) (rows [numBy][]RowResult, err error) {
	names := c.rowNames(packages)
	// What rows count for in the order, and samples, first: what is kept of a row by block is not small.
	type weights struct{ order, samples uint64 }
	var counts [numBy]map[string]*weights
	for by := range counts {
		counts[by], rows[by] = make(map[string]*weights), []RowResult{}
	}
	if err := c.each(func(task, group int32, _ int, n uint64) {
		for by, name := range names(task, group) {
			w := counts[by][name]
			if w == nil {
				w = new(weights)
				counts[by][name] = w
			}
			w.order += c.Groups[group].weight(order) * n
			w.samples += n
		}
	}); err != nil {
		return rows, err
	}
	var tallies [numBy]map[string]*rowTally
	for by, of := range counts {
		tallies[by] = make(map[string]*rowTally)
		var all []string
		for name := range of {
			all = append(all, name)
		}
		slices.SortFunc(all, func(a, b string) int {
			return cmp.Or(cmp.Compare(of[b].order, of[a].order), cmp.Compare(of[b].samples, of[a].samples), cmp.Compare(a, b))
		})
		for _, name := range firstOf(all) {
			tallies[by][name] = &rowTally{blamed: make(map[string]uint64)}
			rows[by] = append(rows[by], RowResult{Name: name})
		}
	}
	if err := c.each(func(task, group int32, block int, n uint64) {
		for by, name := range names(task, group) {
			if t := tallies[by][name]; t != nil {
				t.add(c, &c.Groups[group], block, n, packages)
			}
		}
	}); err != nil {
		return rows, err
	}
	for by := range rows {
		for i := range rows[by] {
			r := &rows[by][i]
			tallies[by][r.Name].result(r, c.Samples)
		}
	}
	return rows, nil
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

func (t *rowTally) add(c *Comparison, g *PairGroup, block int, n uint64, packages []string) {
	t.samples += n
	t.lost += n * uint64(g.PairState.Lost)
	count(&t.usable, block, n, g.Usable == Yes)
	count(&t.wrong, block, n, g.False)
	if g.Usable != No {
		return
	}
	t.unusable += n
	if f := c.blamed(g); f >= 0 {
		t.blamed[c.shortOwner(c.DWARF.Frames[f].Image, packages)] += n
	}
}

// count adds samples to a portion.
func count(p *difference.Portion, block int, n uint64, is bool) {
	p.Whole[block] += float64(n)
	if is {
		p.Part[block] += float64(n)
	}
}

func (t *rowTally) result(r *RowResult, all uint64) {
	r.Samples, r.Share = t.samples, share(t.samples, all)
	r.Usable, r.False = portionResult(difference.Strata{&t.usable}, 1), portionResult(difference.Strata{&t.wrong}, 1)
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
	digits := 2
	switch half := max(e.High-e.Value, e.Value-e.Low); {
	case half >= 0.01:
		digits = 0
	case half >= 0.001:
		digits = 1
	}
	return fmt.Sprintf("%s %% (%s–%s)", rounded(e.Value, digits, nearest), rounded(e.Low, digits, down),
		rounded(e.High, digits, up))
}

// Interval is where the share lies, for the page.
func (p PortionResult) Interval() string {
	return fmt.Sprintf(" (%s to %s\u00a0%%)", rounded(p.Low, 1, down), rounded(p.High, 1, up))
}
