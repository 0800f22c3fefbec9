// Package flamegraph writes a profile as a picture for any browser: a flame graph in one file that fetches nothing.
//
// A rectangle is a function called by the one above it, as wide as its share of the samples; the heaviest callee comes first. Stacks
// are merged by function: the source line that is shown is the one most sampled there. Weights are numbers of samples.
//
// HTML is a page that draws on a canvas what is wide enough to be seen, so that a hundred thousand distinct stacks stay fluid. It
// holds all threads and events, and has the reader choose; it begins with the first event that has samples. Its data is
// compressed: see encode. SVG is a static picture that a script brings to life where scripts run: all threads, the first event
// that has samples, and no rectangle that is too narrow to be seen, which it says.
//
// The page's style and scripts are in page/: data.js and graph.js know nothing of the page around them, so that another page can
// show two graphs, with Data, Script and Style.
package flamegraph

import (
	"bufio"
	"fmt"
	"io"

	"unspool/capture/profile"
)

// Format is what is written.
type Format uint8

const (
	HTML Format = iota
	SVG
)

// Options say what is written. The zero value is a page with the title "Flame graph".
type Options struct {
	Format Format
	Title  string // such as the recording's name
}

// Write writes the profile. It returns the first error of w, or says what is wrong with a profile that is not valid. The same
// profile always gives the same bytes.
func Write(w io.Writer, p *profile.Profile, o Options) error {
	if err := p.CheckValid(); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	if o.Title == "" {
		o.Title = "Flame graph"
	}
	out := bufio.NewWriter(w)
	g := newGraph(p)
	switch o.Format {
	case HTML:
		if err := writeHTML(out, g, o); err != nil {
			return err
		}
	case SVG:
		writeSVG(out, g, o)
	default:
		return fmt.Errorf("flame graph format %d", o.Format)
	}
	return out.Flush()
}
