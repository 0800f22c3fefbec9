package check

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"unspool/capture/output/human"
	"unspool/unwind"
)

// A Result is what a Checker has found.
type Result struct {
	File       string
	Samples    uint64 // all
	Stacks     uint64 // that have an edge
	Walks      Walks
	BySource   [NumSources]Counts
	Exceptions map[Exception]uint64
	Wrong      []Wrong  // most frequent first
	Problems   []string // in words
}

// Wrong is an edge that cannot be.
type Wrong struct {
	Caller  string `json:"caller"`
	Callee  string `json:"callee"`
	Source  string `json:"source"`
	Why     string `json:"why"`
	Samples uint64 `json:"samples"`
}

// mostWrong is how many of them a Result names.
const mostWrong = 100

// Result sums up. problems are those of the recording and of its files.
func (c *Checker) Result(file string, samples uint64, problems []string) *Result {
	r := &Result{File: file, Samples: samples, Stacks: c.Stacks, Walks: c.Walks(), BySource: c.BySource,
		Exceptions: c.Exceptions, Problems: problems}
	keys := slices.SortedFunc(maps.Keys(c.wrong), func(x, y wrongEdge) int {
		return cmp.Or(cmp.Compare(c.wrong[y], c.wrong[x]), cmp.Compare(x.caller, y.caller),
			cmp.Compare(x.callee, y.callee), cmp.Compare(x.source, y.source))
	})
	for _, w := range keys[:min(len(keys), mostWrong)] {
		r.Wrong = append(r.Wrong, Wrong{Caller: w.caller, Callee: w.callee, Source: SourceName(w.source),
			Why: w.verdict.Words(), Samples: c.wrong[w]})
	}
	return r
}

// All are the counts of all sources.
func (r *Result) All() Counts { return sum(&r.BySource) }

// countsJSON is the form of Counts.
type countsJSON struct {
	Edges      uint64  `json:"edges"`
	Unread     uint64  `json:"unread"`
	Undecided  uint64  `json:"undecided"`
	Exceptions uint64  `json:"exceptions"`
	NoCall     uint64  `json:"no_call"`
	Elsewhere  uint64  `json:"elsewhere"`
	Wrong      uint64  `json:"wrong"`
	Share      float64 `json:"share"`
}

func (c *Counts) json() countsJSON {
	return countsJSON{Edges: c.Edges(), Unread: c[Unread], Undecided: c[Undecided], Exceptions: c[Excepted],
		NoCall: c[NoCall], Elsewhere: c[Elsewhere], Wrong: c.Wrong(), Share: c.Share()}
}

// walksJSON is the form of Walks.
type walksJSON struct {
	User     uint64 `json:"user"`
	Complete uint64 `json:"complete"`
	CFIAlone uint64 `json:"cfi_alone"`
	TooDeep  uint64 `json:"too_deep"`
	Gap      uint64 `json:"gap"`
	NotCut   uint64 `json:"not_cut"`
}

func (w *Walks) json() walksJSON {
	return walksJSON{User: w.User, Complete: w.Complete, CFIAlone: w.CFIAlone, TooDeep: w.Cuts[TooDeep],
		Gap: w.Cuts[Gap], NotCut: w.Cuts[NotCut]}
}

// resultJSON is the form of check --json, documented by 'unspool help json'. Keys may be added, never
// renamed.
type resultJSON struct {
	Version    int                   `json:"version"`
	File       string                `json:"file"`
	Samples    uint64                `json:"samples"`
	Stacks     uint64                `json:"stacks"`
	Walks      walksJSON             `json:"walks"`
	Edges      countsJSON            `json:"edges"`
	Sources    map[string]countsJSON `json:"sources"`
	Exceptions map[Exception]uint64  `json:"exceptions"`
	Worst      []Wrong               `json:"worst"`
	Problems   []string              `json:"problems"`
}

// WriteJSON writes the result as one JSON object and a newline.
func (r *Result) WriteJSON(w io.Writer) error {
	all := r.All()
	j := resultJSON{Version: 1, File: r.File, Samples: r.Samples, Stacks: r.Stacks, Walks: r.Walks.json(),
		Edges: all.json(), Sources: make(map[string]countsJSON), Exceptions: r.Exceptions, Worst: r.Wrong,
		Problems: r.Problems}
	for i := range r.BySource {
		if c := &r.BySource[i]; c.Edges() > 0 {
			j.Sources[SourceName(unwind.Source(i))] = c.json()
		}
	}
	if j.Worst == nil {
		j.Worst = []Wrong{}
	}
	if j.Problems == nil {
		j.Problems = []string{}
	}
	e := json.NewEncoder(human.JSON(w))
	e.SetEscapeHTML(false)
	return e.Encode(&j)
}

// mostShown is how many wrong edges the text names.
const mostShown = 10

// WriteText prints the result for people.
func (r *Result) WriteText(to io.Writer) error {
	w := bufio.NewWriter(to)
	all := r.All()
	fmt.Fprintf(w, "%s: %s, %s with a caller, %s\n\n", human.Clean(r.File), human.Plural(r.Samples, "sample"),
		human.Number(r.Stacks), human.Plural(all.Edges(), "edge"))
	r.writeWalks(w)
	fmt.Fprintf(w, "%-15s %12s %12s %12s %12s %10s\n", "caller found by", "edges", "no code", "undecided",
		"exceptions", "wrong")
	row := func(name string, c *Counts) {
		line := fmt.Sprintf("%-15s %12s %12s %12s %12s %10s  %s", name, human.Number(c.Edges()),
			human.Number(c[Unread]), human.Number(c[Undecided]), human.Number(c[Excepted]),
			human.Number(c.Wrong()), percent(c))
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	rows := 0
	for i := range r.BySource {
		if c := &r.BySource[i]; c.Edges() > 0 {
			row(SourceName(unwind.Source(i)), c)
			rows++
		}
	}
	if rows > 1 {
		row("all", &all)
	}
	r.writeExceptions(w)
	r.writeWrong(w)
	for _, p := range r.Problems {
		fmt.Fprintf(w, "note: %s\n", human.Clean(p))
	}
	return w.Flush()
}

// percent is the share of wrong edges among those that were checked.
func percent(c *Counts) string {
	switch share := 100 * c.Share(); {
	case c.Wrong() == 0:
		return ""
	case share < 0.001:
		return "< 0.001 %"
	default:
		return fmt.Sprintf("%.3f %%", share)
	}
}

// writeWalks prints how the walks over raw stacks ended, each way with its share of all walks.
func (r *Result) writeWalks(w *bufio.Writer) {
	k := &r.Walks
	if k.User == 0 {
		return
	}
	of := func(n uint64) string { return human.Percent(n, k.User) }
	fmt.Fprintf(w, "%s of the %s are complete, %s by CFI alone; too deep for the copy %s, a gap in it %s\n",
		of(k.Complete), human.Plural(k.User, "user stack"), of(k.CFIAlone), of(k.Cuts[TooDeep]),
		of(k.Cuts[Gap]))
	if n := k.Cuts[NotCut]; n > 0 {
		fmt.Fprintf(w, "%s leave a copy that holds the whole stack, for another stack or by mistake\n", of(n))
	}
	fmt.Fprintln(w)
}

func (r *Result) writeExceptions(w *bufio.Writer) {
	var parts []string
	for _, x := range slices.Sorted(maps.Keys(r.Exceptions)) {
		parts = append(parts, fmt.Sprintf("%s %s", x, human.Number(r.Exceptions[x])))
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "\nexceptions: %s\n", strings.Join(parts, ", "))
	}
}

func (r *Result) writeWrong(w *bufio.Writer) {
	if len(r.Wrong) == 0 {
		return
	}
	fmt.Fprintf(w, "\nwrong, most frequent first:\n")
	for _, x := range r.Wrong[:min(len(r.Wrong), mostShown)] {
		fmt.Fprintf(w, "%8s  %s, by %s: %s\n          called by %s\n", human.Number(x.Samples),
			human.Clean(x.Callee), x.Source, x.Why, human.Clean(x.Caller))
	}
	if more := len(r.Wrong) - mostShown; more > 0 {
		fmt.Fprintf(w, "          and %s\n", human.Plural(uint64(more), "other"))
	}
}
