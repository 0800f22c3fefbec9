package main

import (
	"fmt"
	"io"
	"time"

	"unspool/bench/section"
)

const reportsIntro = `python3, flat, at 999 Hz. *Until then* is from the end of the program's work to the end of the
report (wall time, on a busy machine): the recorder's end and the report into '/dev/null'. *CPU* is that of the
report alone.

`

// reportLimit is how long a report may take.
const reportLimit = 3 * time.Minute

// reports measures the time from the end of a program until there is a report of it.
func (b *bench) reports() (string, error) {
	t := section.NewTable("", "recording, s of CPU time", "MB", "end of the recorder, s", "report, s", "until then, s",
		"CPU of the report, s")
	tasks, err := b.tasks("python3, flat")
	if err != nil {
		return "", err
	}
	for _, seconds := range []float64{2, 15} {
		var cells []string
		for _, w := range []*way{
			b.byPerf("`perf record -g`", 999, "fp"),
			b.byPerf("`perf record --call-graph dwarf`", 999, "dwarf,8192"),
			b.byUnspool("`unspool record`", 999),
		} {
			r, err := b.record(w, &tasks[0], tasks[0].rounds(seconds))
			if err != nil {
				return "", err
			}
			for _, reader := range b.reporters(w) {
				c, err := execute(reportLimit, io.Discard, append(reader.args, r.path)...)
				if err != nil {
					return "", err
				}
				more := ""
				if c.cut {
					more = "> "
				}
				cells = append(cells, fmt.Sprintf("%s%.1f s", more, (r.finish+c.elapsed).Seconds()))
				row := []string{w.name + ", " + reader.name, fmt.Sprint(seconds),
					fmt.Sprintf("%.1f", float64(r.bytes)/1e6), fmt.Sprintf("%.2f", r.finish.Seconds()),
					fmt.Sprintf("%s%.2f", more, c.elapsed.Seconds()),
					fmt.Sprintf("%s%.2f", more, (r.finish + c.elapsed).Seconds()),
					fmt.Sprintf("%s%.2f", more, c.cpu.Seconds())}
				b.say("reports: %s", row)
				t.Add(row...)
			}
		}
		n := len(b.perfs)
		var perfs []string
		for i := range n {
			perfs = append(perfs, "frame pointers "+cells[i]+", DWARF "+cells[n+i])
		}
		b.claim(fmt.Sprintf("python3, flat: until there is a report of %v s", seconds),
			"DWARF \"requires offline post-processing\"", perfs, cells[2*n])
	}
	return reportsIntro + t.String(), nil
}

// reporters are the commands that report a recording.
func (b *bench) reporters(w *way) (list []way) {
	if w.args[0] == b.unspool {
		return []way{{"`unspool report`", []string{b.unspool, "report"}}}
	}
	for _, p := range b.perfs {
		list = append(list, way{p.version + " `report --stdio`", []string{p.path, "report", "--stdio", "-i"}})
	}
	return list
}
