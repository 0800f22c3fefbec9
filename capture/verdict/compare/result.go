package compare

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"time"

	"unspool/capture/output/human"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// Result is the result of a comparison, for the terminal, the page and --json, whose keys these are. Keys
// may be added, never renamed. Shares are of all samples, from 0 to 1.
type Result struct {
	Version int            `json:"version"`
	Verdict *VerdictResult `json:"verdict"`
	Samples uint64         `json:"samples"`         // with a user stack: all shares are of these
	Others  uint64         `json:"other_samples"`   // without one
	Lost    uint64         `json:"lost"`            // records
	Stacks  uint64         `json:"distinct_stacks"` // by CFI

	Classes map[string]ClassResult `json:"classes"` // by key, every class

	Programs []RowResult `json:"by_program"`
	Comms    []RowResult `json:"by_comm"`
	Images   []RowResult `json:"by_image"`
	Packages []RowResult `json:"by_package"`

	Kernel *Agreement `json:"kernel_chain,omitempty"` // nil if the recording has no chains by the kernel

	BlameImages    []BlameResult `json:"blame_images"`
	BlameFunctions []BlameResult `json:"blame_functions"`

	Shares       []ShareResult `json:"shares"`
	WrongCallers []CallResult  `json:"wrong_callers"`

	StackSizes []SizeResult `json:"stack_sizes"`
	// for 99 % of the samples; 0 when no size that could be judged is
	Enough int `json:"enough_stack_bytes"`
	// share of the samples that are complete only with frames from outside of the copy
	Elsewhere float64 `json:"complete_elsewhere"`

	Cost *CostResult `json:"cost,omitempty"` // nil for recordings that were made elsewhere

	Price *PriceResult `json:"price,omitempty"` // nil if it was not measured

	Lint []FindingResult `json:"lint"`

	Problems []string `json:"problems"`

	rows rows
}

// rows are the rows of the lists above, to find those that a group counts for.
type rows struct {
	functions map[function]int
	images    map[int32]int // by index in the profiles' Images
	calls     map[call]int
}

// ClassResult is one class.
type ClassResult struct {
	Words    string  `json:"words"`
	Samples  uint64  `json:"samples"`
	Share    float64 `json:"share"`
	Stacks   uint64  `json:"distinct_stacks"`
	MeanLost float64 `json:"mean_frames_lost"`

	Example *Example `json:"example,omitempty"`
}

// Example is the most frequent sample of a class: both stacks, leaf first.
type Example struct {
	Samples uint64   `json:"samples"`
	DWARF   []string `json:"dwarf"`
	FP      []string `json:"fp"`
	// the first index in dwarf whose frame is not at its place in fp; -1 if there is none
	Parted int    `json:"parted"`
	End    string `json:"end"` // why the walk by CFI ends
}

// Agreement is how often the kernel's own chain is the same as the result of its walk repeated on the copy.
type Agreement struct {
	Samples uint64  `json:"samples"`
	Share   float64 `json:"share"`
}

// BlameResult is a Blame.
type BlameResult struct {
	Image    string  `json:"image"`
	Path     string  `json:"path"`
	Package  string  `json:"package,omitempty"`
	Function string  `json:"function,omitempty"`
	Cause    string  `json:"cause"`
	Words    string  `json:"words"`
	Samples  uint64  `json:"samples"`
	Share    float64 `json:"share_of_lost_stacks"`
	Lost     uint64  `json:"frames_lost"`
}

// ShareResult is a Share.
type ShareResult struct {
	Function string  `json:"function"`
	Image    string  `json:"image"`
	DWARF    float64 `json:"dwarf"`
	FP       float64 `json:"fp"`
}

// CallResult is an Edge.
type CallResult struct {
	Caller  string  `json:"caller"`
	Callee  string  `json:"callee"`
	Image   string  `json:"image"`
	Samples uint64  `json:"samples"`
	Share   float64 `json:"share"`
}

// SizeResult is a Size.
type SizeResult struct {
	Bytes    int     `json:"bytes"`
	Complete float64 `json:"complete"`
}

// CostResult is Costs.
type CostResult struct {
	StackSize int        `json:"stack_size"`
	Chain     SampleCost `json:"callchain"`
	Stack     SampleCost `json:"stack"`
}

// SampleCost is a Cost.
type SampleCost struct {
	Bytes  float64 `json:"bytes"`
	Kernel float64 `json:"kernel_us"`
	User   float64 `json:"user_us"`
	Total  float64 `json:"total_us"` // the median, and between which it lies
	Low    float64 `json:"total_us_low"`
	High   float64 `json:"total_us_high"`
}

// FindingResult is a Finding.
type FindingResult struct {
	Flaw     string  `json:"flaw"`
	Words    string  `json:"words"`
	Image    string  `json:"image"`
	Path     string  `json:"path"`
	Package  string  `json:"package,omitempty"`
	Function string  `json:"function,omitempty"`
	Offset   int64   `json:"offset"`
	Addr     uint64  `json:"addr"`
	Samples  uint64  `json:"samples"`
	Share    float64 `json:"share"`
}

// mostRows bounds each list.
const mostRows = 100

// version is that of the result's keys. In 2, classes.lacks_start_code has samples that other classes had in 1, and the
// verdict and rows are new.
const version = 2

// Options are what a result is computed with.
type Options struct {
	StackSize int    // of the copies of stacks, in bytes
	Costs     *Costs // nil if not known
	Price     *Price // nil if not measured
	Order     Order  // of rows
}

// Result computes the result. The error is that of the comparison's Times.
func (c *Comparison) Result(sym *symbols.Symbolizer, o Options) (*Result, error) {
	costs := o.Costs
	r := &Result{Version: version, Samples: c.Samples, Others: c.Others, Lost: c.DWARF.Lost(),
		Problems: c.DWARF.Problems, Classes: c.classes()}
	stacks := make(map[int32]bool)
	for i := range c.Groups {
		stacks[c.Groups[i].DWARF] = true
	}
	r.Stacks = uint64(len(stacks))
	if c.Checked > 0 {
		r.Kernel = &Agreement{c.Checked, float64(c.Agreed) / float64(c.Checked)}
	}
	functions, images := c.Blames(sym)
	lint := firstOf(c.Lint(sym))
	packages := c.findPackages(functions, images, lint)
	var lost uint64
	for _, b := range images {
		lost += b.Samples
	}
	blames := func(all []Blame) []BlameResult {
		list := []BlameResult{}
		for _, b := range firstOf(all) {
			list = append(list, BlameResult{
				Image: b.Image.Name, Path: b.Image.Path, Package: b.Package, Function: b.Function, Cause: b.Cause.Key(),
				Words:   b.Cause.String(),
				Samples: b.Samples, Share: share(b.Samples, lost), Lost: b.Lost,
			})
		}
		return list
	}
	r.BlameImages, r.BlameFunctions = blames(images), blames(functions)
	r.rows = rows{make(map[function]int), make(map[int32]int), make(map[call]int)}
	for i, b := range firstOf(functions) {
		r.rows.functions[function{b.Function, b.image}] = i
	}
	for i, b := range firstOf(images) {
		r.rows.images[b.image] = i
	}
	r.Shares, r.WrongCallers, r.StackSizes, r.Lint = []ShareResult{}, []CallResult{}, []SizeResult{},
		[]FindingResult{}
	for _, s := range firstOf(c.Shares()) {
		r.Shares = append(r.Shares, ShareResult{s.Function, s.Image.Name, share(s.DWARF, c.Samples),
			share(s.FP, c.Samples)})
	}
	for i, call := range firstOf(c.WrongCallers()) {
		r.rows.calls[call.key] = i
		r.WrongCallers = append(r.WrongCallers,
			CallResult{call.Caller, call.Callee, call.Image.Name, call.Samples, share(call.Samples, c.Samples)})
	}
	sizes, enough := c.StackSizes(o.StackSize)
	r.Enough, r.Elsewhere = enough, share(c.Elsewhere, c.Samples)
	for _, s := range sizes {
		r.StackSizes = append(r.StackSizes, SizeResult{s.Bytes, share(s.Complete, c.Samples)})
	}
	for _, f := range lint {
		r.Lint = append(r.Lint, FindingResult{
			f.Flaw.Key(), f.Flaw.String(), f.Image.Name, f.Image.Path, f.Package, f.Function, f.Offset, f.Addr,
			f.Samples, share(f.Samples, c.Samples),
		})
	}
	if costs != nil {
		cost := func(c Cost) SampleCost {
			us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
			return SampleCost{c.Bytes, us(c.Kernel), us(c.User), us(c.Total), us(c.Low), us(c.High)}
		}
		r.Cost = &CostResult{costs.StackSize, cost(costs.Chain), cost(costs.Stack)}
	}
	if o.Price != nil {
		r.Price = o.Price.result()
	}
	if r.Problems == nil {
		r.Problems = []string{}
	}
	samples, err := c.byBlock()
	if err != nil {
		return nil, err
	}
	r.Verdict = c.verdict(samples, images, packages)
	r.Verdict.Sentence += priceSentence(r.Price, costs)
	rows := c.rowsBy(samples, packages, o.Order)
	r.Programs, r.Comms, r.Images, r.Packages = rows[ByProgram], rows[ByComm], rows[ByImage], rows[ByPackage]
	return r, nil
}

// By returns the rows that add samples up by something.
func (r *Result) By(by RowsBy) []RowResult {
	return [numBy][]RowResult{r.Programs, r.Comms, r.Images, r.Packages}[by]
}

// findPackages finds the packages of images, by one question: all that is installed is looked through for it. These
// are those of the most samples, sampled or blamed, and of the flaws. It returns the packages by image, "" for none.
func (c *Comparison) findPackages(functions, images []Blame, lint []Finding) (packages []string) {
	packages = make([]string, len(c.DWARF.Images))
	if c.Packages == nil {
		return packages
	}
	weight := make([]uint64, len(packages))
	for i := range c.Groups {
		if im := c.sampled(&c.Groups[i]); im >= 0 {
			weight[im] += c.Groups[i].Count
		}
	}
	for i := range images {
		weight[images[i].image] += images[i].Samples
	}
	var asked []int32
	for im, n := range weight {
		if n > 0 {
			asked = append(asked, int32(im))
		}
	}
	slices.SortStableFunc(asked, func(a, b int32) int { return cmp.Compare(weight[b], weight[a]) })
	asked = firstOf(asked)
	for _, f := range lint {
		if !slices.Contains(asked, f.image) {
			asked = append(asked, f.image)
		}
	}
	var of []profile.Image
	for _, im := range asked {
		of = append(of, c.DWARF.Images[im])
	}
	for i, name := range c.Packages(of) {
		packages[asked[i]] = name
	}
	for _, list := range [][]Blame{functions, images} {
		for i := range list {
			list[i].Package = packages[list[i].image]
		}
	}
	for i := range lint {
		lint[i].Package = packages[lint[i].image]
	}
	return packages
}

func firstOf[T any](list []T) []T { return list[:min(len(list), mostRows)] }

func share(n, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// classes adds up the groups by class.
func (c *Comparison) classes() map[string]ClassResult {
	all := make(map[string]ClassResult, NumClasses)
	for class := range Class(NumClasses) {
		r := ClassResult{Words: class.String()}
		stacks := make(map[int32]bool)
		var lost uint64
		for i := range c.Groups {
			g := &c.Groups[i]
			if g.Class != class {
				continue
			}
			if r.Example == nil { // they are sorted
				r.Example = c.example(g)
			}
			r.Samples += g.Count
			lost += g.Count * uint64(g.Missed)
			stacks[g.DWARF] = true
		}
		r.Stacks = uint64(len(stacks))
		r.Share = share(r.Samples, c.Samples)
		if r.Samples > 0 {
			r.MeanLost = float64(lost) / float64(r.Samples)
		}
		all[class.Key()] = r
	}
	return all
}

// example shows the stacks of a group, without the kernel's part.
func (c *Comparison) example(g *PairGroup) *Example {
	names := func(p *profile.Profile, leaf int32) []string {
		list := []string{}
		for _, f := range userFrames(p, leaf, g.Kernel) {
			list = append(list, p.Frames[f].Name)
		}
		return list
	}
	return &Example{g.Count, names(c.DWARF, g.DWARF), names(c.FP, g.FP), g.Parted, g.End.String()}
}

// WriteJSON writes the result as one JSON object and a newline.
func (r *Result) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(human.JSON(w))
	e.SetEscapeHTML(false)
	return e.Encode(r)
}
