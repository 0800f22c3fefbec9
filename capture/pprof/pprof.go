// Package pprof writes profiles for go tool pprof and everything else that reads its format (profile.proto), through pprof's own
// package.
//
// A location is an address in an image, with a line for each function inlined there. Addresses of images are virtual addresses,
// and those of different images meet; so each image is put at a place of its own in an address space that is made up, whose
// mappings lead back to the image as those of a process would (see addresses.go): pprof disassembles and lists the source where it finds the file.
// Code without an address, such as that made at run time, has a name only.
//
// Every sample is counted in "samples"; where one event was sampled and it is a clock, "cpu" is its time. Where several were sampled, each has a
// count under its own name, and clocks a time beside it, "cpu-clock-time". Labels of samples are pid, tid, comm, and if the profile has
// them cpu, and unwind: why the user part of the stack ends.
package pprof

import (
	"io"

	proto "github.com/google/pprof/profile"

	"unspool/capture/profile"
)

// Write writes p, compressed.
func Write(w io.Writer, p *profile.Profile) error {
	out, err := Convert(p)
	if err != nil {
		return err
	}
	return out.Write(w)
}

// Convert returns p as pprof's own packages have it.
func Convert(p *profile.Profile) (*proto.Profile, error) {
	if err := p.CheckValid(); err != nil {
		return nil, err
	}
	out := &proto.Profile{
		DurationNanos: p.Duration.Nanoseconds(),
		Comments:      comments(p),
	}
	if !p.Began.IsZero() {
		out.TimeNanos = p.Began.UnixNano()
	}
	values := newValues(p)
	values.describe(out)
	stacks := newStacks(p, out)
	labels := newLabels(p)
	for i := range p.Samples {
		s := &p.Samples[i]
		sample := &proto.Sample{Location: stacks.at(s.Node), Value: values.of(s)}
		labels.put(sample, s)
		out.Sample = append(out.Sample, sample)
	}
	return out, out.CheckValid()
}
