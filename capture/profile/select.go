package profile

import "unspool/capture/perfdata"

// Select returns what reports whether a sample of a recording is within t. It is asked in turn for the times of
// all samples, in ns of the recording's clock. Nil stands for all of them.
func (t Times) Select(r *perfdata.Reader) (func(time uint64) (bool, error), error) {
	if t == (Times{}) {
		return nil, nil
	}
	p, err := newPart(t, r)
	if err != nil {
		return nil, err
	}
	return p.sample, nil
}
