package flamegraph

import (
	"bufio"
	"fmt"
	"io"

	"unspool/capture/profile"
)

// FileType is what is written.
type FileType uint8

const (
	HTML FileType = iota
	SVG
)

// Options say what is written. The zero value is a page with the title "Flame graph".
type Options struct {
	Format FileType
	Title  string // such as the recording's name
	// Timeline has the profile's samples one by one: a page shows them over time. nil for a page without that.
	Timeline *profile.Timeline
}

// Write writes the profile. The error is the first one of w, or says why the profile is not valid. The same
// profile always gives the same bytes.
func Write(w io.Writer, p *profile.Profile, o Options) error {
	if err := p.CheckIndices(); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	if o.Title == "" {
		o.Title = "Flame graph"
	}
	out := bufio.NewWriter(w)
	g := newGraph(p)
	switch o.Format {
	case HTML:
		s, err := g.timed(o.Timeline)
		if err != nil {
			return err
		}
		if err := writeHTML(out, g, s, o); err != nil {
			return err
		}
	case SVG:
		writeSVG(out, g, o)
	default:
		return fmt.Errorf("flame graph format %d", o.Format)
	}
	return out.Flush()
}
