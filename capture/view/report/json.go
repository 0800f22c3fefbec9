package report

import (
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"unspool/capture/output/jsontext"
	"unspool/capture/profile"
	"unspool/unwind"
)

// jsonVersion changes when a key changes its meaning, but not when keys are added.
const jsonVersion = 1

// jsonHeader is what was recorded.
type jsonHeader struct {
	File        string      `json:"file"`
	Command     []string    `json:"command"`
	Hostname    string      `json:"hostname"`
	OSRelease   string      `json:"os_release"`
	Arch        string      `json:"arch"`
	Began       *time.Time  `json:"began"` // null when unknown
	Duration    float64     `json:"duration_s"`
	Only        string      `json:"only"`
	Samples     uint64      `json:"samples"`
	Recorded    uint64      `json:"recorded_samples"`
	CPUs        int         `json:"cpus"` // 0 when unknown
	Threads     int         `json:"threads"`
	LostRecords uint64      `json:"lost_records"`
	LostSamples uint64      `json:"lost_samples"`
	Throttled   uint64      `json:"throttled"`
	Stacks      *jsonStacks `json:"stacks"` // null when the recording does not say
	Notes       []string    `json:"notes"`
}

type jsonStacks struct {
	Total    uint64            `json:"total"`
	Complete uint64            `json:"complete"`
	Joined   uint64            `json:"joined"`
	Ended    map[string]uint64 `json:"ended"`
}

type jsonImage struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	BuildID string `json:"build_id"`
}

type jsonFunction struct {
	Name    string `json:"name"`
	Image   string `json:"image"`
	ImageAt int32  `json:"image_index"` // in the images
	Kind    string `json:"kind"`
	Known   bool   `json:"known"`
	Inlined bool   `json:"inlined"`
	Self    uint64 `json:"self"`
	Total   uint64 `json:"total"`
}

type jsonNode struct {
	Parent   int    `json:"parent"`   // in the tree, -1 for none
	Function int    `json:"function"` // of the event's
	Self     uint64 `json:"self"`
	Total    uint64 `json:"total"`
}

// jsonGroup has those of comm, pid and tid that all its samples have in common; or the image; or the file.
type jsonGroup struct {
	Comm    *string `json:"comm,omitempty"`
	PID     *uint32 `json:"pid,omitempty"`
	TID     *uint32 `json:"tid,omitempty"`
	Cmdline string  `json:"cmdline,omitempty"`
	Image   *string `json:"image,omitempty"`
	File    *string `json:"file,omitempty"`
	Self    uint64  `json:"self"`
	Total   uint64  `json:"total"`

	Functions []jsonFunction `json:"functions,omitempty"`
	Lines     []jsonLine     `json:"lines,omitempty"`
}

type jsonLine struct {
	Line     int32  `json:"line"` // 0 when unknown
	Function string `json:"function"`
	Image    string `json:"image"`
	Self     uint64 `json:"self"`
	Total    uint64 `json:"total"`
}

// WriteJSON writes the profile as one JSON object, with all functions and the whole tree:
// Options.PercentLimit and Top do not apply. Numbers are samples. The tree is a list in which parents come
// before their children, as stacks can be deeper than JSON readers allow objects to be nested.
func WriteJSON(w io.Writer, p *profile.Profile, o Options) error {
	if err := p.CheckIndices(); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	byFunction := p.ByFunction()
	out := &jsonWriter{jsontext.New(w)}
	out.OpenLines('{')
	out.Field("version", jsonVersion)
	out.Field("header", header(p, o))
	out.list("images", func() {
		for _, im := range p.Images {
			out.Value(jsonImage{im.Name, im.Path, hex.EncodeToString(im.BuildID)})
		}
	})
	out.list("events", func() {
		for _, event := range p.Sampled() {
			out.event(newView(byFunction, event, o.NoKernel), p, o)
		}
	})
	out.Close()
	return out.Flush()
}

func header(p *profile.Profile, o Options) jsonHeader {
	h := jsonHeader{
		File: o.File, Command: p.Command, Hostname: p.Hostname, OSRelease: p.OSRelease, Arch: p.Arch,
		Duration: p.Duration.Seconds(), Only: o.Filter, Samples: p.Count(), Threads: len(p.Threads),
		LostRecords: p.LostRecords, LostSamples: p.LostSamples, Throttled: p.Throttled, Notes: p.Problems,
	}
	h.CPUs = p.CPUs
	for _, e := range p.Events {
		h.Recorded += e.Recorded
	}
	h.Recorded = max(h.Recorded, h.Samples)
	if !p.Began.IsZero() {
		began := p.Began.UTC()
		h.Began = &began
	}
	if h.Command == nil {
		h.Command = []string{}
	}
	if h.Notes == nil {
		h.Notes = []string{}
	}
	if all, ended := outcomes(p); all > 0 {
		h.Stacks = &jsonStacks{Total: all, Ended: make(map[string]uint64)}
		h.Stacks.Joined = ended[profile.Joined]
		h.Stacks.Complete = ended[profile.Complete] + h.Stacks.Joined
		for r := range unwind.Reason(unwind.NumReasons) {
			h.Stacks.Ended[r.String()] = ended[profile.Ended(r)]
		}
		h.Stacks.Ended[unwind.Root.String()] += h.Stacks.Joined
	}
	return h
}

// event writes the content of v. all is the profile from which that of v was made.
func (out *jsonWriter) event(v *view, all *profile.Profile, o Options) {
	e := &v.p.Events[v.event]
	out.OpenLines('{')
	out.Field("name", e.Name)
	out.Field("clock", e.Clock)
	out.Field("samples", v.samples)
	out.Field("period", v.period)
	cpu, idle := all.CPUTime(v.event)
	out.Field("cpu_s", cpu.Seconds())
	out.Field("idle_s", idle.Seconds())
	out.Field("hidden", v.hidden)
	numbers := make([]int, len(v.p.Frames)) // of functions, by frame
	t := functionTable(v.p)
	out.list("functions", func() {
		for i, s := range v.sums(t) {
			numbers[t.rows[s.row].frame] = i
			out.Value(jsonFunctionOf(v, t, s))
		}
	})
	out.list("tree", func() {
		places := make([]int, len(v.nodes)) // in the list
		places[0] = -1
		n := 0
		for i, node := range v.nodes {
			if i == 0 || v.total[i] == 0 {
				continue
			}
			places[i] = n
			n++
			out.Value(jsonNode{places[node.Parent], numbers[node.Frame], v.self[i], v.total[i]})
		}
	})
	out.Field("by", o.By.String())
	out.list("groups", func() {
		if o.By == Function {
			return
		}
		if o.By == Source {
			v = newView(all, v.event, o.NoKernel)
		}
		groups, rows := v.groups(o.By)
		for i := range groups {
			out.Value(jsonGroupOf(v, rows, &groups[i], o.By))
		}
	})
	out.Close()
}

func jsonFunctionOf(v *view, t *table, s sum) jsonFunction {
	f := &v.p.Frames[t.rows[s.row].frame]
	return jsonFunction{f.Name, v.p.Images[f.Image].Name, f.Image, f.Kind.String(), f.Known, f.Inlined, s.self,
		s.total}
}

func jsonGroupOf(v *view, t *table, g *group, by By) jsonGroup {
	j := jsonGroup{Self: g.self, Total: g.total, Cmdline: g.cmdline}
	switch by {
	case Thread:
		j.TID = &g.thread.TID
		fallthrough
	case Process:
		j.PID = &g.thread.PID
		fallthrough
	case Comm:
		j.Comm = &g.thread.Comm
	case Source:
		j.File = &v.p.Frames[g.frame].File
		fallthrough
	case Image:
		if by == Image || *j.File == "" {
			j.Image = &v.p.Images[v.p.Frames[g.frame].Image].Name
		}
	}
	for _, s := range g.rows {
		if by != Source {
			j.Functions = append(j.Functions, jsonFunctionOf(v, t, s))
			continue
		}
		f := &v.p.Frames[t.rows[s.row].frame]
		j.Lines = append(j.Lines, jsonLine{f.Line, f.Name, v.p.Images[f.Image].Name, s.self, s.total})
	}
	return j
}

// jsonWriter writes one value after the other, each on a line of its own.
type jsonWriter struct{ *jsontext.Writer }

// list writes a field that is a list; fn writes its items.
func (out *jsonWriter) list(name string, fn func()) {
	out.Key(name)
	out.OpenLines('[')
	fn()
	out.Close()
}
