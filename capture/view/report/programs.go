package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

const (
	leastProgram = 1  // percent of the samples: those below that are not named
	widestComm   = 15 // columns: the kernel's names are no longer
)

// programs names the programs with most samples of an event, as many as a line of so many columns holds, and
// counts the others; "" if there is but one, or all threads are of one name.
func programs(p *profile.Profile, event int32, columns int) string {
	var all uint64
	threads := make([]uint64, len(p.Threads))
	for i := range p.Samples {
		if s := &p.Samples[i]; s.Event == event {
			all += s.Count
			threads[s.Thread] += s.Count
		}
	}
	by, comms := make(map[string]uint64), make(map[string]bool)
	for thread, n := range threads {
		if n > 0 {
			by[p.Threads[thread].Program] += n
			comms[p.Threads[thread].Comm] = true
		}
	}
	if len(by) < 2 || len(comms) < 2 {
		return ""
	}
	names := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), strings.Compare(a, b))
	})
	const how = " (--by comm)"
	text, named := "", ""
	for i, name := range names {
		if i > 0 && 100*by[name] < leastProgram*all {
			break
		}
		named += human.Shorten(human.Clean(name), widestComm) + " " + human.Percent(by[name], all)
		line := named
		if left := len(names) - i - 1; left > 0 {
			line += ", " + human.Plural(uint64(left), "other")
		}
		switch fits := human.Columns(line+how) <= columns; {
		case fits:
			text = line + how
		case i == 0:
			return human.Shorten(line, columns)
		default:
			return text
		}
		named += ", "
	}
	return text
}
