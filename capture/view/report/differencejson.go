package report

import (
	"io"
	"maps"
	"slices"

	"unspool/capture/output/jsontext"
	"unspool/capture/profile"
	"unspool/capture/profile/difference"
)

// differenceVersion is 3: in version 2, differences of single runs could be significant. `compare A B` wrote other
// keys before.
const differenceVersion = 3

// jsonSide is what the recordings of a side are, together and one by one.
type jsonSide struct {
	jsonHeader
	Runs     []jsonHeader `json:"runs"`
	Depth    float64      `json:"mean_depth"`
	Unpaired []string     `json:"unpaired_events"`
	Unnamed  []string     `json:"unnamed_images"`
}

// jsonWhole is all samples of an event on a side.
type jsonWhole struct {
	Samples uint64         `json:"samples"`
	Amount  float64        `json:"amount"`
	Hidden  uint64         `json:"hidden"`
	Runs    []jsonRunWhole `json:"runs"`
}

// jsonRunWhole is all samples of an event in a recording.
type jsonRunWhole struct {
	Samples uint64  `json:"samples"`
	Amount  float64 `json:"amount"`
}

type jsonEstimate struct {
	Difference   float64 `json:"difference"`
	Low          float64 `json:"low"`
	High         float64 `json:"high"`
	ExcludesZero bool    `json:"excludes_zero"`
	BetweenRuns  bool    `json:"between_runs"`
	Significant  bool    `json:"significant"`
}

type jsonChange struct {
	A      uint64       `json:"a"`
	B      uint64       `json:"b"`
	Share  jsonEstimate `json:"share"`
	Amount jsonEstimate `json:"amount"`
}

type jsonChangedFunction struct {
	Name    string     `json:"name"`
	Image   string     `json:"image"`
	Kind    string     `json:"kind"`
	Known   bool       `json:"known"`
	Inlined bool       `json:"inlined"`
	Self    jsonChange `json:"self"`
	Total   jsonChange `json:"total"`
}

type jsonChangedNode struct {
	Parent   int        `json:"parent"`
	Function int        `json:"function"`
	SelfA    uint64     `json:"self_a"`
	SelfB    uint64     `json:"self_b"`
	Total    jsonChange `json:"total"`
}

type jsonChangedGroup struct {
	Name  string     `json:"name"`
	Self  jsonChange `json:"self"`
	Total jsonChange `json:"total"`
}

// WriteDifferenceJSON writes what differs between two recordings as one JSON object, with all functions and
// the whole tree.
func WriteDifferenceJSON(w io.Writer, m *difference.Merged, o Difference) error {
	out := &jsonWriter{jsontext.New(w)}
	out.OpenLines('{')
	out.Field("version", differenceVersion)
	for side, name := range []string{"a", "b"} {
		s := jsonSide{Depth: meanDepth(m.Runs[side]), Unpaired: m.Left[side], Unnamed: []string{}}
		for _, r := range m.Runs[side] {
			o.File = r.Name
			s.Runs = append(s.Runs, header(r.Profile, o.Options))
		}
		if s.jsonHeader = together(s.Runs); s.Unpaired == nil {
			s.Unpaired = []string{}
		}
		for i := range m.Unnamed {
			if u := &m.Unnamed[i]; u.Side == side {
				s.Unnamed = append(s.Unnamed, u.Image.Name)
			}
		}
		out.Field(name, s)
	}
	out.Field("confidence", difference.Confidence)
	out.Field("decided_by", map[bool]string{false: "share", true: "amount"}[o.Amounts])
	var err error
	out.list("events", func() {
		for i := 0; i < len(m.Pairs) && err == nil; i++ {
			var c *pairView
			if c, err = newPairView(m, i, &o); err == nil {
				err = out.pair(c, &o)
			}
		}
	})
	if err != nil {
		return err
	}
	out.Close()
	return out.Flush()
}

// together is the header of several recordings of a side: what is counted is added up, and what else there is, is
// that of the first one.
func together(runs []jsonHeader) jsonHeader {
	all := runs[0]
	all.Notes = slices.Clone(all.Notes)
	if s := all.Stacks; s != nil {
		all.Stacks = &jsonStacks{s.Total, s.Complete, s.Joined, maps.Clone(s.Ended)}
	}
	for i := range runs[1:] {
		r := &runs[1+i]
		all.File += "," + r.File
		all.Duration += r.Duration
		all.Samples += r.Samples
		all.Recorded += r.Recorded
		all.Threads += r.Threads
		all.LostRecords += r.LostRecords
		all.LostSamples += r.LostSamples
		all.Throttled += r.Throttled
		all.CPUs = max(all.CPUs, r.CPUs)
		for _, note := range r.Notes {
			if !slices.Contains(all.Notes, note) {
				all.Notes = append(all.Notes, note)
			}
		}
		if all.Stacks == nil || r.Stacks == nil {
			all.Stacks = nil
			continue
		}
		all.Stacks.Total += r.Stacks.Total
		all.Stacks.Complete += r.Stacks.Complete
		all.Stacks.Joined += r.Stacks.Joined
		for reason, n := range r.Stacks.Ended {
			all.Stacks.Ended[reason] += n
		}
	}
	return all
}

// meanDepth is how many frames the stacks have.
func meanDepth(runs []difference.Run) float64 {
	var frames, samples uint64
	for _, p := range runs {
		depth := make([]uint64, len(p.Nodes))
		for i, n := range p.Nodes[1:] {
			if depth[i+1] = depth[n.Parent]; p.Frames[n.Frame].Kind != profile.Process {
				depth[i+1]++
			}
		}
		for _, s := range p.Samples {
			frames, samples = frames+depth[s.Node]*s.Count, samples+s.Count
		}
	}
	if samples == 0 {
		return 0
	}
	return float64(frames) / float64(samples)
}

// pair writes the differences of one event.
func (out *jsonWriter) pair(c *pairView, o *Difference) error {
	t := functionTable(c.of[0].p)
	functions, err := c.changes(t, everyThread)
	if err != nil {
		return err
	}
	nodes, err := c.nodes(c.of[0])
	if err != nil {
		return err
	}
	out.OpenLines('{')
	out.Field("name", c.pair.Name)
	out.Field("unit", c.pair.Unit)
	for side, name := range []string{"a", "b"} {
		whole := jsonWhole{Samples: c.pair.Whole[side].Samples, Amount: c.pair.Whole[side].Amount(),
			Hidden: c.tree[side].hidden}
		for _, run := range c.pair.Runs[side] {
			whole.Runs = append(whole.Runs, jsonRunWhole{run.Samples, run.Amount()})
		}
		out.Field(name, whole)
	}
	out.Field("whole", jsonChangeOf(&c.whole).Amount)
	numbers := make([]int, len(t.rows)) // of functions, by row
	out.list("functions", func() {
		for i := range functions {
			x := &functions[i]
			numbers[x.row] = i
			f := &c.m.Frames[t.rows[x.row].frame]
			out.Value(jsonChangedFunction{f.Name, c.m.Images[f.Image].Name, f.Kind.String(), f.Known, f.Inlined,
				jsonChangeOf(&x.self), jsonChangeOf(&x.total)})
		}
	})
	out.changedTree(c, t, nodes, numbers)
	out.Field("by", o.By.String())
	if o.By == Function {
		out.list("groups", func() {})
	} else {
		groups, names, _, err := c.groups(o.By)
		if err != nil {
			return err
		}
		out.list("groups", func() {
			for i := range groups {
				x := &groups[i]
				out.Value(jsonChangedGroup{names.rows[x.row].name, jsonChangeOf(&x.self), jsonChangeOf(&x.total)})
			}
		})
	}
	out.Close()
	return nil
}

func (out *jsonWriter) changedTree(c *pairView, t *table, nodes []difference.Delta, numbers []int) {
	out.list("tree", func() {
		v := c.of[difference.A]
		places := make([]int, len(v.nodes)) // in the list
		places[0] = -1
		n := 0
		for node := 1; node < len(v.nodes); node++ {
			if x := &nodes[node]; x.Samples != [2]uint64{} {
				places[node] = n
				n++
				out.Value(jsonChangedNode{places[v.nodes[node].Parent], numbers[t.row[v.nodes[node].Frame]],
					v.self[node], c.of[difference.B].self[node], jsonChangeOf(x)})
			}
		}
	})
}

func jsonChangeOf(c *difference.Delta) jsonChange {
	of := func(e *difference.Estimate) jsonEstimate {
		return jsonEstimate{e.Value, e.Low, e.High, e.ExcludesZero(), e.Spread, e.Significant()}
	}
	return jsonChange{c.Samples[difference.A], c.Samples[difference.B], of(&c.Share), of(&c.Amount)}
}
