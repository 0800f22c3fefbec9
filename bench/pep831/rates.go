package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"unspool/bench/section"
)

const ratesIntro = `The same work of about %d s of CPU time without a recorder and with each, by turns; of %d runs the
least counts, as other programs on the machine can only add to it. *Program* is how much more CPU time the program
itself took, *with recorder* that of all processes (wait4): what the kernel does at a sample is in the program's time.
*A sample* is what all took more than at 20 Hz, divided by the samples more. *Lost* are samples that the rings had no
room for, of those that were due. What begins and ends a recording is in all rows but in no *sample*; at 20 Hz it is
nearly all that there is. *Program* should be 0 there: what it is instead shows how far other load disturbs a row.

`

const rateSeconds = 2

// rates measures what recording costs.
func (b *bench) rates() (string, error) {
	t := section.NewTable("program / with recorder / a sample / lost", "`perf record -g`",
		"`perf record --call-graph dwarf`", "`unspool record --stack-size 8k`", "`unspool record`")
	tasks, err := b.tasks("C, 64 frames", "python3, flat")
	if err != nil {
		return "", err
	}
	for i := range tasks {
		few, err := b.rate(t, &tasks[i], 20, nil)
		if err != nil {
			return "", err
		}
		for _, freq := range []int{999, 10_000} {
			if _, err := b.rate(t, &tasks[i], freq, few); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf(ratesIntro, rateSeconds, b.runs) + t.String(), nil
}

// An extra is what a recorder adds to a run.
type extra struct {
	cpu     time.Duration
	samples int
}

// rate adds the row for one task and one rate, and returns what each recorder adds. few is that of few samples, nil if
// these are few.
func (b *bench) rate(t *section.Table, k *task, freq int, few []extra) (extras []extra, err error) {
	ways := []*way{nil, b.byPerf("`perf record -g`", freq, "fp"), b.byPerf("`perf record --call-graph dwarf`", freq,
		"dwarf,8192"), b.byUnspool("`unspool record --stack-size 8k`", freq, "--stack-size", "8192"),
		b.byUnspool("`unspool record`", freq)}
	best := make([]recording, len(ways))
	for n := range b.runs {
		for i := range ways {
			at := (i + n) % len(ways)
			r, err := b.record(ways[at], k, k.rounds(rateSeconds))
			if err != nil {
				return nil, err
			}
			s := &best[at]
			if n == 0 {
				s.program, s.all = r.program, r.all
			}
			s.program, s.all = min(s.program, r.program), min(s.all, r.all)
			s.samples, s.lost = s.samples+r.samples, s.lost+r.lost
		}
	}
	more := func(took, alone time.Duration) string {
		return fmt.Sprintf("%+.1f %%", 100*(float64(took)/float64(alone)-1))
	}
	var cells []string
	row := []string{fmt.Sprintf("%s, %d Hz", k.name, freq)}
	for i, w := range ways {
		r := &best[i]
		if w == nil {
			continue
		}
		e, each := extra{r.all - best[0].all, r.samples / b.runs}, ""
		if few != nil {
			begun := few[len(extras)]
			each = fmt.Sprintf(" / %.0f µs", float64((e.cpu-begun.cpu).Nanoseconds())/1e3/
				float64(max(1, e.samples-begun.samples)))
		}
		extras = append(extras, e)
		all, lost := more(r.all, best[0].all), percent(r.lost, r.samples+r.lost)
		row = append(row, fmt.Sprintf("%s / %s%s / %s", more(r.program, best[0].program), all, each, lost))
		cells = append(cells, fmt.Sprintf("%s, %s lost", all, lost))
	}
	b.say("rates: %s", strings.Join(row, ", "))
	t.Add(row...)
	if freq == 10_000 {
		both := "frame pointers " + cells[0] + "; DWARF " + cells[1]
		b.claim(k.name+": CPU time at 10,000 Hz", "frame pointers \"negligible\", DWARF \"cannot be used\"",
			slices.Repeat([]string{both}, len(b.perfs)), cells[3])
	}
	return extras, nil
}
