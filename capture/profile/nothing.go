package profile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"unspool/capture/output/human"
)

// A refusal is how many samples a filter has left out of threads that are told apart by what it asks for.
type refusal struct {
	label   string
	samples uint64
}

const (
	// mostRefused bounds the threads that a filter leaves out and that are told apart.
	mostRefused = 1 << 12
	// mostNamed is how many of them are named.
	mostNamed = 8
)

// refuse notes that the samples of a thread do not pass the filter.
func (l *loader) refuse(key uint64, t *Thread) {
	label := t.Comm
	switch f := &l.options.Filter; {
	case len(f.TIDs) > 0:
		label = fmt.Sprintf("%d (%s)", t.TID, t.Comm)
	case len(f.PIDs) > 0:
		label = fmt.Sprintf("%d (%s)", t.PID, cmp.Or(l.comms[threadKey(t.PID, t.PID)], t.Comm))
	}
	r := l.refused[label]
	if r == nil {
		if len(l.refused) >= mostRefused {
			return
		}
		r = &refusal{label: label}
		l.refused[label] = r
	}
	l.refusedOf[key] = r
}

// A NothingError means that no sample passes the filter, and what the recording has instead.
type NothingError struct{ text string }

func (e *NothingError) Error() string { return e.text }

// nothing is the error for a filter that has left no sample.
func (l *loader) nothing() *NothingError { return &NothingError{l.nothingInWords()} }

func (l *loader) nothingInWords() string {
	f := &l.options.Filter
	if l.part.samples == 0 {
		return l.p.WhyEmpty()
	}
	within := ""
	for _, n := range l.recorded {
		if n > 0 {
			within = " " + f.Times.Within()
		}
	}
	if within == "" {
		return fmt.Sprintf("no samples %s: the recording has %s", f.Times.Within(), l.part.span())
	}
	all := slices.SortedFunc(maps.Values(l.refused), func(a, b *refusal) int {
		return cmp.Or(cmp.Compare(b.samples, a.samples), cmp.Compare(a.label, b.label))
	})
	var names []string
	for _, r := range all[:min(len(all), mostNamed)] {
		names = append(names, r.label)
	}
	have := strings.Join(names, ", ")
	if more := len(all) - len(names); more > 0 {
		have += fmt.Sprintf(" and %s more", human.Number(uint64(more)))
	}
	threads := *f
	threads.Times = Times{}
	return fmt.Sprintf("no samples of %s%s: the recording has those of %s", threads.String(),
		strings.TrimRight(within, " "), have)
}

// span returns how long the recording is and, if it is known, when it was made.
func (p *part) span() string {
	text := fmt.Sprintf("%.1f s", nanoseconds(p.last-p.first).Seconds())
	if began := p.wall(p.first); !began.IsZero() {
		text += ", " + human.Span(began, began.Add(nanoseconds(p.last-p.first)))
	}
	return text
}

// WhyEmpty says of a recording without samples that it has none, and what may be the reason.
func (p *Profile) WhyEmpty() string {
	const none = "the recording has no samples"
	var names []string
	ticks := false
	var rate uint64
	for _, e := range p.Events {
		names = append(names, e.Name)
		if e.Clock || e.Cycles {
			ticks, rate = true, max(rate, e.Frequency)
		}
	}
	switch {
	case p.Damage != nil:
		return none + ": it is damaged before the first one"
	case p.Lost() > 0:
		return fmt.Sprintf("%s: %s did not fit into the ring buffers (-m makes them larger)", none,
			human.Plural(p.Lost(), "record"))
	case ticks && rate > 0:
		return fmt.Sprintf("%s: what was recorded waited, or used less CPU time than one sample takes, %.2g ms at %s Hz",
			none, 1000/float64(rate), human.Number(rate))
	case len(names) > 0:
		return fmt.Sprintf("%s: %s did not occur in what was recorded, or too seldom", none, strings.Join(names, ", "))
	}
	return none
}
