package flamegraph

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"html/template"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

// header is the JSON at the beginning of the page's data.
type header struct {
	Events    []string    `json:"events"`
	Each      []float64   `json:"each"`           // seconds of CPU time of an event's sample; 0 if not known
	CPUs      int         `json:"cpus,omitempty"` // of the recorded machine; 0 if not known
	Threads   []threadRow `json:"threads"`
	Images    []string    `json:"images"`
	Files     []string    `json:"files"`
	Names     []string    `json:"names"` // of functions
	Functions int         `json:"functions"`
	Nodes     int         `json:"nodes"`
	Weights   int         `json:"weights"`

	Seconds float64 `json:"seconds,omitempty"` // of the recording, if the samples have times
	Steps   int     `json:"steps,omitempty"`   // of that time; 0 when it is left out
	Points  int     `json:"points,omitempty"`
}

type threadRow struct {
	PID     uint32 `json:"pid"`
	TID     uint32 `json:"tid"`
	Comm    string `json:"comm"`
	Program string `json:"program"`
}

// encode makes the page's data: base64 of a raw DEFLATE stream of a length (32 bits, little-endian), the
// header in that many bytes of JSON, and unsigned LEB128 numbers:
//
//	each function:       name, image, colour | shade<<4, file + 1 or 0
//	each node but 0:     depth of the node before it + 1 - its own depth, function, line
//	each weight:         node - node of the weight before it, event, thread, count
//	each point:          (step - step of this weight's point before it)<<1 | 1 and count, or without | 1 for 1
//
// Points are those of the first weight, as many as have its count together, then those of the next one.
// Without steps there are none.
func encode(g *graph, s *steps) (template.HTML, error) {
	h := header{CPUs: g.p.CPUs, Functions: len(g.functions), Nodes: len(g.nodes), Weights: len(g.weights)}
	event := make([]uint64, len(g.p.Events)) // those with samples only
	samples := make([]uint64, len(g.p.Events))
	for _, s := range g.p.Samples {
		samples[s.Event] += s.Count
	}
	for i, e := range g.events {
		event[e] = uint64(i)
		h.Events = append(h.Events, human.Printable(g.p.Events[e].Name))
		all, _ := g.p.CPUTime(e)
		h.Each = append(h.Each, all.Seconds()/float64(samples[e]))
	}
	for _, t := range g.p.Threads {
		h.Threads = append(h.Threads, threadRow{t.PID, t.TID, human.Printable(t.Comm), human.Printable(t.Program)})
	}
	for _, im := range g.p.Images {
		h.Images = append(h.Images, human.Printable(im.Name))
	}
	var body []byte
	put := func(values ...uint64) {
		for _, v := range values {
			body = binary.AppendUvarint(body, v)
		}
	}
	var names, files profile.StringTable
	for i := range g.functions {
		f := &g.functions[i]
		file := uint64(0)
		if g.files[i] != "" {
			file = 1 + uint64(files.Number(g.files[i]))
		}
		put(uint64(names.Number(f.name)), uint64(f.image), uint64(g.colour(f)|g.shade(f)<<4), file)
	}
	h.Names, h.Files = printable(names.List), printable(files.List)
	depth := int32(0)
	for _, n := range g.nodes[1:] {
		put(uint64(depth+1-n.depth), uint64(n.function), uint64(n.line))
		depth = n.depth
	}
	at := int32(0)
	for _, w := range g.weights {
		put(uint64(w.node-at), event[w.event], uint64(w.thread), w.count)
		at = w.node
	}
	if s != nil {
		h.Seconds, h.Steps, h.Points = float64(s.length)/1e9, s.n, len(s.points)
		body = s.encode(body)
	}
	text, err := json.Marshal(h)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	z, err := flate.NewWriter(&out, flate.DefaultCompression)
	if err != nil {
		return "", err
	}
	_, _ = z.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(text)))) // a bytes.Buffer takes everything
	_, _ = z.Write(text)
	_, _ = z.Write(body)
	if err := z.Close(); err != nil {
		return "", err
	}
	return template.HTML(base64.StdEncoding.EncodeToString(out.Bytes())), nil
}

// encode appends the points.
func (s *steps) encode(b []byte) []byte {
	weight, step := int32(-1), int32(0)
	for _, p := range s.points {
		if p.weight != weight {
			weight, step = p.weight, 0
		}
		if p.count == 1 {
			b = binary.AppendUvarint(b, uint64(p.step-step)<<1)
		} else {
			b = binary.AppendUvarint(b, uint64(p.step-step)<<1|1)
			b = binary.AppendUvarint(b, p.count)
		}
		step = p.step
	}
	return b
}

// printable are texts as they are shown.
func printable(texts []string) []string {
	var shown []string
	for _, s := range texts {
		shown = append(shown, human.Printable(s))
	}
	return shown
}
