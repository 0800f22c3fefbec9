package speedscope

import (
	"cmp"
	"io"
	"strings"

	"unspool/capture/profile"
)

// Options say what is written.
type Options struct {
	Name    string // of the recording, shown as the page's title; "" for the recorder's command line
	Lines   bool   // a frame for each line of a function
	Threads int    // this many threads at most have profiles of their own, 0 means DefaultThreads

	// Timeline has the samples one by one; nil if they are not to be in the order of time. It stays the
	// caller's.
	Timeline *profile.Timeline
}

// DefaultThreads is how many threads have profiles of their own unless Options.Threads says otherwise: more
// are hard to choose from.
const DefaultThreads = 250

// Write writes a profile. The error is the first one of w or of Options.Timeline, or says why the profile is not valid.
func Write(w io.Writer, p *profile.Profile, o Options) error {
	if err := p.CheckIndices(); err != nil {
		return err
	}
	if o.Threads <= 0 {
		o.Threads = DefaultThreads
	}
	frames, now := places(p, o.Lines)
	p, nodes := p.RegroupNodes(nil, now)
	samples, err := ordered(p, o.Timeline, nodes)
	if err != nil {
		return err
	}

	out := newWriter(w, p.Nodes)
	out.Open('{')
	out.Field("$schema", "https://www.speedscope.app/file-format-schema.json")
	out.Field("exporter", "unspool")
	out.Field("name", cmp.Or(o.Name, strings.Join(p.Command, " "), "unspool"))
	out.Field("activeProfileIndex", 0)
	out.Key("shared")
	out.Open('{')
	out.Key("frames")
	out.OpenLines('[')
	for _, f := range frames {
		out.place(f)
	}
	out.Close()
	out.Close()
	out.Key("profiles")
	out.OpenLines('[')
	for _, part := range divide(p, samples, o.Threads) {
		out.part(part)
	}
	out.Close()
	out.Close()
	return out.Flush()
}
