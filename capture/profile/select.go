package profile

import "unspool/capture/perfdata"

// Select returns a function that reports whether a sample is within t, or nil if all are. Call it once for each
// sample of the recording r, in the order of the recording, with its time in ns of the recording's clock. Both return
// an error if the recording does not say what t needs: times, the time of day, or when its last sample was taken.
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
