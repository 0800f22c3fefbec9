package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"unspool/capture"
	"unspool/capture/check"
	"unspool/capture/symbols"
	"unspool/unwind"
)

// Every recording that the tests make is checked against the code. As single recordings are short, the limits
// apply to all of them together: TestMain checks them after the tests.
var edges struct {
	sync.Mutex
	recordings int
	all        check.Result
	worst      []string
}

// edgeLimits are in percent. Where callchains do not say how they were found the limit is that of CFI if
// nothing else was used.
var edgeLimits = []string{"0.1", "cfi=0.01"}

// checkEdges checks a recording. If the recording does not say how its frames were found, its statistics do.
func checkEdges(t testing.TB, path string, framesBy map[string]uint64) {
	t.Helper()
	o := capture.ConvertOptions{Input: path, MaxStack: defaultMaxStack}
	r, err := check.Recording(context.Background(), o, symbols.New(symbols.Options{}))
	if err != nil {
		t.Errorf("%s: edges: %v", path, err)
		return
	}
	edges.Lock()
	defer edges.Unlock()
	edges.recordings++
	for source, counts := range r.BySource {
		if check.SourceName(unwind.Source(source)) == "unknown" && onlyCFI(framesBy) {
			source = int(unwind.ByCFI)
		}
		for verdict, n := range counts {
			edges.all.BySource[source][verdict] += n
		}
	}
	for _, w := range r.Wrong {
		text := fmt.Sprintf("%s: %d samples: %s called by %s: %s", t.Name(), w.Samples, w.Callee, w.Caller,
			w.Why)
		t.Log(text)
		edges.worst = append(edges.worst, text)
	}
}

func onlyCFI(framesBy map[string]uint64) bool {
	for source, n := range framesBy {
		if n > 0 && source != "sample" && source != "cfi" {
			return false
		}
	}
	return len(framesBy) > 0
}

// edgesAreRight prints the result for all recordings on stderr, and says whether it is within the limits.
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
	exceeded := limits.Exceeded(&edges.all)
	if len(exceeded) > 0 {
		fmt.Fprintf(os.Stderr, "%s\n%s\n", strings.Join(exceeded, "\n"), strings.Join(edges.worst, "\n"))
	}
	return len(exceeded) == 0
}
