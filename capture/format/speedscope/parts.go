package speedscope

import (
	"cmp"
	"fmt"
	"slices"

	"unspool/capture/profile"
)

// sample is the weight of a stack in a thread, or one sample.
type sample struct {
	time                uint64
	node, thread, event int32
	count               uint64
}

// mostInTime is how many samples are written one by one. With more, the file would be larger than what a
// browser opens.
const mostInTime = 200_000

// ordered returns the samples by event, and then one by one in the order of time. nodes has the nodes of p
// for those of the timeline. Without a timeline, or if the samples are too many, each stack of a thread is
// there once, heavy branches first.
func ordered(p *profile.Profile, timeline *profile.Timeline, nodes []int32) ([]sample, error) {
	if timeline == nil || p.Count() > mostInTime {
		return heaviest(p), nil
	}
	samples := make([]sample, 0, p.Count())
	for i := range p.Threads {
		thread := int32(i)
		if err := timeline.Each(thread, func(at profile.Point) error {
			samples = append(samples, sample{at.Time, nodes[at.Node], thread, at.Event, 1})
			return nil
		}); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(samples, func(a, b sample) int {
		return cmp.Or(cmp.Compare(a.event, b.event), cmp.Compare(a.time, b.time))
	})
	return samples, nil
}

// heaviest returns the samples by event, then by their places in the tree.
func heaviest(p *profile.Profile) []sample {
	samples := make([]sample, len(p.Samples))
	for i, s := range p.Samples {
		samples[i] = sample{0, s.Node, s.Thread, s.Event, s.Count}
	}
	rank := ranks(p.Nodes, p.Totals())
	slices.SortFunc(samples, func(a, b sample) int {
		return cmp.Or(cmp.Compare(a.event, b.event), cmp.Compare(rank[a.node], rank[b.node]))
	})
	return samples
}

// part is a profile of the file. Neighbours with the same stack are written as one.
type part struct {
	name    string
	samples []sample
}

// divide makes the profiles of the file from ordered samples. There is at least one.
func divide(p *profile.Profile, samples []sample, limit int) []part {
	var parts []part
	for len(samples) > 0 {
		event := samples[0].event
		n := slices.IndexFunc(samples, func(s sample) bool { return s.event != event })
		if n < 0 {
			n = len(samples)
		}
		of := byThread(p, samples[:n], limit)
		if lost := p.Lost(); lost > 0 {
			of[0].name += fmt.Sprintf(", %d lost", lost)
		}
		if len(parts) > 0 || n < len(samples) {
			for i := range of {
				of[i].name = p.Events[event].Name + ": " + of[i].name
			}
		}
		parts = append(parts, of...)
		samples = samples[n:]
	}
	if len(parts) == 0 {
		return []part{{name: "no samples"}}
	}
	return parts
}

// byThread makes the profiles of one event: that of all threads, then those of single threads.
func byThread(p *profile.Profile, samples []sample, limit int) []part {
	weights := make([]uint64, len(p.Threads))
	for _, s := range samples {
		weights[s.thread] += s.count
	}
	var threads []int32
	for i, w := range weights {
		if w > 0 {
			threads = append(threads, int32(i))
		}
	}
	if len(threads) == 1 {
		return []part{{threadName(p, threads[0]), samples}}
	}
	slices.SortStableFunc(threads, func(a, b int32) int { return cmp.Compare(weights[b], weights[a]) })

	parts := []part{{"all threads", samples}}
	if len(threads) == limit+1 {
		limit++ // the last one would be alone in the shared profile
	}
	place := make([]int, len(p.Threads)) // of a thread's profile among all
	for i, thread := range threads {
		if i < limit {
			parts = append(parts, part{name: threadName(p, thread)})
		} else if i == limit {
			parts = append(parts, part{name: fmt.Sprintf("%d more threads", len(threads)-limit)})
		}
		place[thread] = len(parts) - 1
	}
	samples = slices.Clone(samples)
	slices.SortStableFunc(samples, func(a, b sample) int { return place[a.thread] - place[b.thread] })
	for i := range parts[1:] {
		n := slices.IndexFunc(samples, func(s sample) bool { return place[s.thread] != i+1 })
		if n < 0 {
			n = len(samples)
		}
		parts[i+1].samples, samples = samples[:n], samples[n:]
	}
	return parts
}

func threadName(p *profile.Profile, thread int32) string {
	t := p.Threads[thread]
	return fmt.Sprintf("%s (%d/%d)", t.Comm, t.PID, t.TID)
}
