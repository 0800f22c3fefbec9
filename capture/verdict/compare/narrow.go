package compare

import (
	"fmt"
	"strings"

	"unspool/capture/format/flamegraph"
	"unspool/capture/profile"
)

// The page can be narrowed to a program and to a part of the time. So its graphs have the samples by program,
// with their times, and as events, what of the tables a sample counts for.

// graphs are those of the page.
func (r *Result) graphs(c *Comparison) (dwarf, fp flamegraph.Graph, err error) {
	marks, of := r.marks(c)
	if dwarf, err = c.graph(c.DWARF, marks, of, func(g *PairGroup) int32 { return g.DWARF }); err != nil {
		return dwarf, fp, err
	}
	fp, err = c.graph(c.FP, marks, of, func(g *PairGroup) int32 { return g.FP })
	return dwarf, fp, err
}

// marks returns what each group counts for, as page.js reads it: its class, frames that are missed, which of the tiles
// it counts for (a bit for each), rows of the
// functions and the images to blame (-1 for none), and rows of calls that were not made. of is the mark of
// each group.
func (r *Result) marks(c *Comparison) (marks []profile.Event, of []int32) {
	var texts profile.StringTable
	for i := range c.Groups {
		g := &c.Groups[i]
		row := func(row int, ok bool) int {
			if !ok {
				return mostRows // of a longer list: not shown
			}
			return row
		}
		inFunction, inImage := -1, -1
		if f := c.blamed(g); f >= 0 {
			frame := &c.DWARF.Frames[f]
			n, ok := r.rows.functions[function{frame.Name, frame.Image}]
			inFunction = row(n, ok)
			n, ok = r.rows.images[frame.Image]
			inImage = row(n, ok)
		}
		var calls []string
		for _, call := range c.wrong[int32(i)] {
			if n, ok := r.rows.calls[call]; ok {
				calls = append(calls, fmt.Sprint(n))
			}
		}
		tiles := 0
		for i, is := range []bool{g.Usable == Yes, g.False, g.Reaches} {
			if is {
				tiles |= 1 << i
			}
		}
		text := fmt.Sprintf("%d %d %d %d %d %s", g.Class, g.Missed, tiles, inFunction, inImage, strings.Join(calls, ","))
		of = append(of, texts.Number(text))
	}
	for _, text := range texts.List {
		marks = append(marks, profile.Event{Name: text})
	}
	return marks, of
}

// graph is one of the two graphs, of the stacks whose leaves leaf finds.
func (c *Comparison) graph(p *profile.Profile, marks []profile.Event, of []int32,
	leaf func(*PairGroup) int32) (g flamegraph.Graph, err error) {
	q := *p
	q.Events, q.Threads, q.Samples = marks, []profile.Thread{{Comm: "all", Program: "all"}}, nil
	at := make(map[profile.Sample]int)
	add := func(thread int32, group int32, n uint64) {
		key := profile.Sample{Thread: thread, Node: leaf(&c.Groups[group]), Event: of[group], CPU: -1}
		i, ok := at[key]
		if !ok {
			i = len(q.Samples)
			at[key] = i
			q.Samples = append(q.Samples, key)
		}
		q.Samples[i].Count += n
		q.Samples[i].Period += n
	}
	if c.Times == nil {
		for i := range c.Groups {
			add(0, int32(i), c.Groups[i].Count)
		}
		return flamegraph.Graph{Profile: &q}, nil
	}
	q.Threads = nil
	for i, task := range c.Tasks {
		q.Threads = append(q.Threads, profile.Thread{PID: uint32(i + 1), TID: uint32(i + 1), Comm: task.Program,
			Program: task.Program})
		err := c.Times.Each(int32(i), func(p profile.Point) error {
			add(int32(i), c.group(p.Node), 1)
			return nil
		})
		if err != nil {
			return g, err
		}
	}
	return flamegraph.Graph{Profile: &q, Samples: sideTimes{c, of, leaf}}, nil
}

// group is the group of a node of Times.
func (c *Comparison) group(node int32) int32 {
	if c.sorted == nil {
		return node
	}
	return c.sorted[node]
}

// sideTimes are the samples of a graph one by one.
type sideTimes struct {
	c    *Comparison
	of   []int32
	leaf func(*PairGroup) int32
}

// Each implements flamegraph.Samples.
func (s sideTimes) Each(thread int32, fn func(profile.Point) error) error {
	return s.c.Times.Each(thread, func(p profile.Point) error {
		group := s.c.group(p.Node)
		p.Node, p.Event = s.leaf(&s.c.Groups[group]), s.of[group]
		return fn(p)
	})
}
