package speedscope

import (
	"io"
	"slices"

	"unspool/capture/output/jsontext"
	"unspool/capture/profile"
)

// writer writes frames, and stacks of them, each on a line of its own.
type writer struct {
	*jsontext.Writer
	nodes []profile.Node
	path  []int32
}

func newWriter(w io.Writer, nodes []profile.Node) *writer {
	return &writer{jsontext.New(w), nodes, nil}
}

func (out *writer) place(at place) {
	out.Open('{')
	out.Field("name", at.name)
	if at.file != "" {
		out.Field("file", at.file)
	}
	if at.line > 0 {
		out.Field("line", at.line)
	}
	if at.column > 0 {
		out.Field("col", at.column)
	}
	out.Close()
}

// part writes a profile.
func (out *writer) part(p part) {
	var total uint64
	for _, s := range p.samples {
		total += s.count
	}
	out.Open('{')
	out.Field("type", "sampled")
	out.Field("name", p.name)
	out.Field("unit", "none")
	out.Field("startValue", 0)
	out.Field("endValue", total)
	out.Key("samples")
	out.OpenLines('[')
	p.each(func(node int32, _ uint64) { out.stack(node) })
	out.Close()
	out.Key("weights")
	out.Open('[')
	p.each(func(_ int32, count uint64) { out.Uint(count) })
	out.Close()
	out.Close()
}

// each calls fn with the stacks of a profile and their weights.
func (p part) each(fn func(node int32, count uint64)) {
	for i := 0; i < len(p.samples); {
		node, count := p.samples[i].node, uint64(0)
		for ; i < len(p.samples) && p.samples[i].node == node; i++ {
			count += p.samples[i].count
		}
		fn(node, count)
	}
}

// stack writes the frames from the outermost to the leaf.
func (out *writer) stack(node int32) {
	out.path = out.path[:0]
	for ; node > 0; node = out.nodes[node].Parent {
		out.path = append(out.path, out.nodes[node].Frame)
	}
	out.Open('[')
	for _, frame := range slices.Backward(out.path) {
		out.Int(int64(frame))
	}
	out.Close()
}
