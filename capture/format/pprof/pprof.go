package pprof

import (
	"io"

	proto "github.com/google/pprof/profile"

	"unspool/capture/profile"
)

// Write writes p, compressed by gzip. The error is the first one of w, or says why the profile is not valid.
func Write(w io.Writer, p *profile.Profile) error {
	out, err := Convert(p)
	if err != nil {
		return err
	}
	return out.Write(w)
}

// Convert returns p as pprof's own packages have it.
func Convert(p *profile.Profile) (*proto.Profile, error) {
	if err := p.CheckIndices(); err != nil {
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
		sample := &proto.Sample{Location: stacks.at(s.Node), Value: values.row(s)}
		labels.put(sample, s)
		out.Sample = append(out.Sample, sample)
	}
	return out, out.CheckValid()
}
