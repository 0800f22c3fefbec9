package pprof

import (
	"fmt"
	"slices"
	"strings"

	proto "github.com/google/pprof/profile"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

// labels makes the labels of samples. Samples of the same thread, CPU and end share them.
type labels struct {
	p       *profile.Profile
	several bool // programs: then each sample is labelled with its own
	numbers map[numbersKey]map[string][]int64
	texts   map[textsKey]map[string][]string
}

type (
	numbersKey struct{ thread, cpu int32 }
	textsKey   struct {
		thread int32
		end    profile.End
	}
)

// units are the units of labels that are numbers. pprof uses the label's key if there is no unit; but its
// readers ignore a zero without a unit.
var units = map[string][]string{"pid": {"pid"}, "tid": {"tid"}, "cpu": {"cpu"}}

func newLabels(p *profile.Profile) *labels {
	l := &labels{
		p: p, numbers: make(map[numbersKey]map[string][]int64), texts: make(map[textsKey]map[string][]string),
	}
	for i := range p.Threads {
		l.several = l.several || p.Threads[i].Program != p.Threads[0].Program
	}
	return l
}

func (l *labels) put(sample *proto.Sample, s *profile.Sample) {
	t := &l.p.Threads[s.Thread]
	nk := numbersKey{s.Thread, s.CPU}
	numbers := l.numbers[nk]
	if numbers == nil {
		numbers = map[string][]int64{"pid": {int64(t.PID)}, "tid": {int64(t.TID)}}
		if s.CPU >= 0 {
			numbers["cpu"] = []int64{int64(s.CPU)}
		}
		l.numbers[nk] = numbers
	}
	tk := textsKey{s.Thread, s.End}
	texts := l.texts[tk]
	if texts == nil {
		texts = map[string][]string{}
		if t.Comm != "" {
			texts["comm"] = []string{human.Printable(t.Comm)}
		}
		if l.several && t.Program != "" {
			texts["process"] = []string{human.Printable(t.Program)}
		}
		if line := l.p.CommandLines[t.PID]; line != "" {
			texts["cmdline"] = []string{human.Printable(line)}
		}
		if s.End != profile.Unsaid {
			texts["unwind"] = []string{s.End.String()}
		}
		l.texts[tk] = texts
	}
	sample.NumLabel, sample.NumUnit, sample.Label = numbers, units, texts
}

// comments returns where a profile is from and what it lacks, a line each.
func comments(p *profile.Profile) []string {
	var c []string
	add := func(format string, args ...any) { c = append(c, human.Printable(fmt.Sprintf(format, args...))) }
	if p.Hostname != "" {
		add("host: %s", strings.TrimSpace(p.Hostname+" "+p.OSRelease+" "+p.Arch))
	}
	if len(p.Command) > 0 {
		add("command: %s", strings.Join(p.Command, " "))
	}
	if p.LostSamples > 0 {
		add("lost samples: %d", p.LostSamples)
	}
	if p.LostRecords > 0 {
		add("lost records: %d", p.LostRecords)
	}
	if p.Throttled > 0 {
		add("throttled by the kernel: %d times", p.Throttled)
	}
	notes := p.Notes() // pprof prints all comments before every table
	names := profile.Few(notes.Names, "unspool report -v lists them")
	for _, note := range slices.Concat(notes.Recording, names) {
		add("%s", note)
	}
	return c
}
