package pprof

import (
	"math"

	proto "github.com/google/pprof/profile"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

// values are the numbers of a sample, one for each type of value.
type values struct {
	types   []*proto.ValueType
	columns []columns        // by event
	main    int              // the event that is shown at first, -1 without samples
	period  int64            // the mean period of its samples
	unit    *proto.ValueType // of period
}

// columns are the indices of an event's own types of values, 0 for none: the type 0 counts all samples.
type columns struct{ count, time int }

func newValues(p *profile.Profile) *values {
	v := &values{columns: make([]columns, len(p.Events)), main: -1}
	count, period := make([]uint64, len(p.Events)), make([]uint64, len(p.Events))
	sampled := 0
	for _, s := range p.Samples {
		if count[s.Event] == 0 {
			sampled++
		}
		count[s.Event] += s.Count
		period[s.Event] += s.Period
	}
	v.add("samples", "count")
	for i, e := range p.Events {
		if count[i] == 0 {
			continue
		}
		if v.main < 0 {
			v.main, v.period = i, number(period[i]/count[i])
			v.unit = &proto.ValueType{Type: human.Printable(e.Name), Unit: "count"}
			if e.Clock {
				v.unit = &proto.ValueType{Type: "cpu", Unit: "nanoseconds"}
			}
		}
		c := &v.columns[i]
		name := "cpu"
		if sampled > 1 {
			c.count = v.add(human.Printable(e.Name), "count")
			name = human.Printable(e.Name) + "-time"
		}
		if e.Clock {
			c.time = v.add(name, "nanoseconds")
		}
	}
	return v
}

// add adds a type of value. It makes names different, as pprof selects by them.
func (v *values) add(name, unit string) int {
	for i := 0; i < len(v.types); i++ {
		if v.types[i].Type == name {
			name += "'"
			i = -1
		}
	}
	v.types = append(v.types, &proto.ValueType{Type: name, Unit: unit})
	return len(v.types) - 1
}

// describe returns which values there are.
func (v *values) describe(out *proto.Profile) {
	out.SampleType = v.types
	if v.main < 0 {
		return
	}
	c := v.columns[v.main]
	shown := max(c.count, c.time) // the time, if there is one
	out.DefaultSampleType = v.types[shown].Type
	out.PeriodType, out.Period = v.unit, v.period
}

// row returns the numbers of a sample, one for each type of value.
func (v *values) row(s *profile.Sample) []int64 {
	all := make([]int64, len(v.types))
	c := v.columns[s.Event]
	all[c.count] = number(s.Count)
	if c.time > 0 {
		all[c.time] = number(s.Period)
	}
	all[0] = number(s.Count)
	return all
}

func number(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
