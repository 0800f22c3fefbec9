package main

import (
	"fmt"

	"unspool/bench/section"
)

// leastRatio is how many times less CPU time than Sysprof's helper a sample must take.
const leastRatio = 5

// addScene adds what both helpers came to in a scene.
func addScene(t *section.Table, s *scene, results *[2]result) {
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
	t.Add(cells(s.name, "Sysprof's", theirs, "", "")...)
	t.Add(cells("", "unspool", ours, fmt.Sprintf("≥ %d", leastRatio), times)...)
}
