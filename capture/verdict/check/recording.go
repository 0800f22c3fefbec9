package check

import (
	"context"
	"errors"

	"unspool/capture/perfdata"
	"unspool/capture/recorded"
	"unspool/capture/symbols"
)

// Recording checks a recording. One that is damaged is checked up to the damage, which is the error beside
// the result.
func Recording(ctx context.Context, o recorded.Options, sym *symbols.Symbolizer) (*Result, error) {
	c := New(sym)
	stats, err := recorded.Walk(ctx, o, c)
	var damage *perfdata.DamageError
	switch {
	case errors.Is(err, perfdata.ErrStopped):
		return nil, errors.New("interrupted")
	case err != nil && !errors.As(err, &damage):
		return nil, err
	}
	return c.Result(o.Input, stats.Samples, sym.Problems()), err
}
