// Package speedscope writes a profile in the format of speedscope
// (https://www.speedscope.app/file-format-schema.json): frames with a name, a file, a line and a column, and profiles, lists of stacks
// with weights.
//
// For each event that has samples there are, in this order, a profile of all threads and, if there is more than one, a profile
// for each thread, the heaviest first. The profile of all threads is the sum of the others: who adds up profiles counts every sample
// twice. speedscope shows the first when it opens the file. Threads beyond Options.Threads share the last
// profile. With several events, a profile's name begins with its event's.
//
// Weights are numbers of samples, and stacks are not in the order of time: each stands once in a profile, heavy
// branches first, so that speedscope's "Time Order" is as good a flame graph as its "Left Heavy".
//
// A frame is a function, and its line the one that most of the function's samples are at. With Options.Lines, each line of a function is a
// frame of its own. Where the source file is unknown, the image stands in its place, which speedscope chooses colours by. The format
// cannot tell inlined frames, kernel frames or generated code from others, and has no place for gaps; the number of lost samples is in the name of
// an event's first profile.
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
}

// DefaultThreads is how many threads have profiles of their own unless Options.Threads says otherwise: more are hard to choose from.
const DefaultThreads = 250

// Write writes a profile.
func Write(w io.Writer, p *profile.Profile, o Options) error {
	if err := p.CheckValid(); err != nil {
		return err
	}
	if o.Threads <= 0 {
		o.Threads = DefaultThreads
	}
	frames, now := places(p, o.Lines)
	p = p.Regroup(make([]profile.Frame, len(frames)), now)

	out := newWriter(w, p.Nodes)
	out.text(`{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"unspool","name":`)
	out.quote(cmp.Or(o.Name, strings.Join(p.Command, " "), "unspool"))
	out.text(`,"activeProfileIndex":0,"shared":{"frames":[`)
	for i, f := range frames {
		if i > 0 {
			out.text(",")
		}
		out.place(f)
	}
	out.text("\n]},\"profiles\":[")
	for i, part := range divide(p, ordered(p), o.Threads) {
		if i > 0 {
			out.text(",")
		}
		out.part(part)
	}
	out.text("\n]}\n")
	return out.w.Flush()
}
