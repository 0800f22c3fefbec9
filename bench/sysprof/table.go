package main

import (
	"fmt"
	"strings"
)

// A table is a table in Markdown. All columns but the first two are numbers.
type table struct {
	head []string
	rows [][]string
}

// leastRatio is how many times less CPU time than Sysprof's helper a sample must take.
const leastRatio = 5

// add adds what both helpers came to in a scene.
func (t *table) add(s *scene, results *[2]result) {
	theirs, ours := &results[0], &results[1]
	ratio := theirs.perSample() / ours.perSample()
	cells := func(name, helper string, r *result, asked, times string) []string {
		return []string{name, helper, fmt.Sprint(r.samples), fmt.Sprint(r.lost), fmt.Sprintf("%.1f", r.share()),
			fmt.Sprintf("%.1f", r.perSample()), asked, times, fmt.Sprintf("%.1f", r.memory),
			fmt.Sprintf("%.1f", r.grown), fmt.Sprint(r.files)}
	}
	times := fmt.Sprintf("%.1f", ratio)
	if ratio < leastRatio {
		times = "**" + times + "**"
	}
	t.rows = append(t.rows, cells(s.name, "Sysprof's", theirs, "", ""),
		cells("", "unspool", ours, fmt.Sprintf("≥ %d", leastRatio), times))
}

func (t *table) String() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	b.WriteString("|---|---|" + strings.Repeat("---:|", len(t.head)-2) + "\n")
	for _, r := range t.rows {
		line(r)
	}
	return b.String()
}
