package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/recorded"
	"unspool/capture/session"
	"unspool/capture/symbols"
	"unspool/capture/verdict/check"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas"
)

// Every recording that the tests make is checked against the code. As single recordings are short, the limits
// apply to all of them together: TestMain checks them after the tests. Whatever is wrong is shown with its sample,
// also where it is not enough to fail the run.
var edges struct {
	sync.Mutex
	recordings int
	all        check.Result
	wrong      []string
	names      []*edgeNames // that nobody uses at the moment
}

// edgeNames are the symbols of the files of some recordings: reading those of the C library again takes longer than
// all else that checking a short recording does.
type edgeNames struct {
	*symbols.Symbolizer
	uses int
}

// edgeLimits are in percent. Where callchains do not say how they were found the limit is that of CFI if
// nothing else was used.
var edgeLimits = []string{"0.1", "cfi=0.01"}

// fewWrong edges of a source are no failure whatever their share is: all counted recordings of a run together may
// have fewer edges than one that is wrong is a ten-thousandth of.
const fewWrong = 1

// checkEdges checks a recording. If the recording does not say how its frames were found, its statistics do.
func checkEdges(t testing.TB, path string, framesBy map[string]uint64) {
	t.Helper()
	if os.Getenv("UNSPOOL_LANE") == "kernel" {
		return // what code calls does not depend on the kernel, and reading it takes long in an emulator
	}
	names := takeEdgeNames()
	found, err := findEdges(path, names.Symbolizer)
	names.keep()
	if err == nil && len(found.Wrong) > 0 {
		// What was known of a file without a build ID may be that of another one that had its path before.
		found, err = findEdges(path, symbols.New(symbols.Options{}))
	}
	if err != nil {
		t.Errorf("%s: edges: %v", path, err)
		return
	}
	edges.Lock()
	defer edges.Unlock()
	edges.recordings++
	for source, counts := range found.BySource {
		if check.SourceName(unwind.Source(source)) == "unknown" && onlyCFI(framesBy) {
			source = int(unwind.ByCFI)
		}
		for verdict, n := range counts {
			edges.all.BySource[source][verdict] += n
		}
	}
	for _, w := range found.Wrong {
		text := fmt.Sprintf("%s: %d samples: %s called by %s, by %s: %s", t.Name(), w.Samples, w.Callee, w.Caller,
			w.Source, w.Why)
		t.Log(text)
		edges.wrong = append(edges.wrong, text)
	}
	edges.wrong = append(edges.wrong, found.stacks...)
}

// takeEdgeNames returns some that nobody uses.
func takeEdgeNames() *edgeNames {
	edges.Lock()
	defer edges.Unlock()
	n := len(edges.names)
	if n == 0 {
		return &edgeNames{Symbolizer: symbols.New(symbols.Options{})}
	}
	names := edges.names[n-1]
	edges.names = edges.names[:n-1]
	return names
}

// keep keeps them for the next recording. What they hold is bounded by how often they are used.
func (e *edgeNames) keep() {
	edges.Lock()
	defer edges.Unlock()
	if e.uses++; e.uses < 50 {
		edges.names = append(edges.names, e)
	}
}

// foundEdges are those of a recording, with some of the stacks that have wrong ones.
type foundEdges struct {
	*check.Result
	stacks []string
}

// findEdges checks a recording.
func findEdges(path string, names *symbols.Symbolizer) (foundEdges, error) {
	w := &edgeWatcher{Checker: check.New(names), names: names}
	o := recorded.Options{Input: path, MaxStack: defaultMaxStack}
	stats, err := recorded.Walk(context.Background(), o, w)
	if err != nil {
		return foundEdges{}, err
	}
	return foundEdges{w.Result(path, stats.Samples, nil), w.stacks}, nil
}

// An edgeWatcher checks edges, and keeps the stacks of some wrong ones.
type edgeWatcher struct {
	*check.Checker
	table  *vmas.Table
	names  *symbols.Symbolizer
	stacks []string
}

func (e *edgeWatcher) Begin(s *session.Session) {
	e.table = s.Table()
	e.Checker.Begin(s)
}

func (e *edgeWatcher) WriteSample(w *perfdata.Walked) error {
	const shown = 3
	all := e.All()
	err := e.Checker.WriteSample(w)
	if now := e.All(); now.Wrong() > all.Wrong() && len(e.stacks) < shown {
		e.stacks = append(e.stacks, e.stack(w))
	}
	return err
}

// stack shows the user stack of a sample, a frame a line.
func (e *edgeWatcher) stack(w *perfdata.Walked) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  a sample that has it: process %d, thread %d, at %d ns; leaf first:", w.Sample.PID, w.Sample.TID,
		w.Sample.Time)
	space := e.table.Space(w.Sample.PID)
	user := false
	for i, ip := range w.Chain {
		if !user {
			user = ip == perfring.ContextUser
			continue
		}
		fmt.Fprintf(&b, "\n    %#14x", ip)
		if w.Result != nil && w.Result.Frames != nil {
			if at := i - (len(w.Chain) - len(w.Result.Frames)); at >= 0 {
				fmt.Fprintf(&b, " by %-10s", w.Result.Frames[at].Source)
			}
		}
		if space == nil {
			continue
		}
		m := space.Find(ip)
		if m == nil {
			b.WriteString(" unmapped")
			continue
		}
		off := ip - m.Start + m.Offset
		fmt.Fprintf(&b, " %s+%#x", m.File.Name(), off)
		if f, ok := e.names.Image(m.File.Name(), m.File.BuildID.Bytes(), m.File.FileID).Lookup(off); ok {
			fmt.Fprintf(&b, " %s", f.Name)
		}
	}
	return b.String()
}

func onlyCFI(framesBy map[string]uint64) bool {
	for source, n := range framesBy {
		if n > 0 && source != "sample" && source != "cfi" {
			return false
		}
	}
	return len(framesBy) > 0
}

// edgesAreRight prints the result for all recordings on stderr, and reports whether it is within the limits.
func edgesAreRight() bool {
	limits := check.NoLimits()
	for _, text := range edgeLimits {
		if err := limits.Lower(text); err != nil {
			panic(err)
		}
	}
	all := edges.all.All()
	if edges.recordings > 0 {
		fmt.Fprintf(os.Stderr, "edges: %d of %d recordings' %d are wrong, %d could not be checked\n",
			all.Wrong(), edges.recordings, all.Checked(), all.Edges()-all.Checked())
	}
	for _, text := range edges.wrong {
		fmt.Fprintln(os.Stderr, text)
	}
	exceeded := tooManyWrong(&limits, &edges.all)
	if len(exceeded) > 0 {
		fmt.Fprintln(os.Stderr, strings.Join(exceeded, "\n"))
	}
	return len(exceeded) == 0
}

// tooManyWrong says, in words, of which sources so many edges are wrong that the run fails: more than fewWrong,
// and more than the limits.
func tooManyWrong(limits *check.Tolerances, r *check.Result) []string {
	judged := *r
	for source := range judged.BySource {
		if judged.BySource[source].Wrong() <= fewWrong {
			judged.BySource[source] = check.Counts{}
		}
	}
	return limits.Exceeded(&judged)
}

// TestFewWrongEdges holds the rule by which wrong edges fail a run.
func TestFewWrongEdges(t *testing.T) {
	limits := check.NoLimits()
	if err := limits.Lower("cfi=0.01"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		right, wrong uint64
		fails        bool
	}{
		{1000, 0, false}, {1000, 1, false}, {1000, 2, true}, {100_000, 9, false}, {100_000, 12, true},
	} {
		var r check.Result
		r.BySource[unwind.ByCFI][check.Right] = c.right
		r.BySource[unwind.ByCFI][check.Elsewhere] = c.wrong
		if fails := len(tooManyWrong(&limits, &r)) > 0; fails != c.fails {
			t.Errorf("%d wrong edges beside %d: fails is %v", c.wrong, c.right, fails)
		}
	}
}
