package speedscope

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

// writer writes JSON piece by piece. Errors stay in w until it is flushed.
type writer struct {
	w     *bufio.Writer
	nodes []profile.Node

	quoted  bytes.Buffer
	encoder *json.Encoder // to quoted
	path    []int32
}

func newWriter(w io.Writer, nodes []profile.Node) *writer {
	out := &writer{w: bufio.NewWriter(human.JSON(w)), nodes: nodes}
	out.encoder = json.NewEncoder(&out.quoted)
	out.encoder.SetEscapeHTML(false) // this is no HTML, and C++ has many angle brackets
	return out
}

func (out *writer) text(s string) { out.w.WriteString(s) }

func (out *writer) number(n uint64) { out.w.Write(strconv.AppendUint(out.w.AvailableBuffer(), n, 10)) }

// quote writes a string. Bytes that are not UTF-8 become U+FFFD.
func (out *writer) quote(s string) {
	out.quoted.Reset()
	out.encoder.Encode(s) // a string and a buffer: it cannot fail
	out.w.Write(bytes.TrimSuffix(out.quoted.Bytes(), []byte("\n")))
}

func (out *writer) place(at place) {
	out.text("\n{\"name\":")
	out.quote(at.name)
	if at.file != "" {
		out.text(`,"file":`)
		out.quote(at.file)
	}
	if at.line > 0 {
		out.text(`,"line":`)
		out.number(uint64(at.line))
	}
	if at.column > 0 {
		out.text(`,"col":`)
		out.number(uint64(at.column))
	}
	out.text("}")
}

// part writes a profile.
func (out *writer) part(p part) {
	var total uint64
	for _, s := range p.samples {
		total += s.count
	}
	out.text("\n{\"type\":\"sampled\",\"name\":")
	out.quote(p.name)
	out.text(`,"unit":"none","startValue":0,"endValue":`)
	out.number(total)
	out.text(`,"samples":[`)
	p.each(func(i int, node int32, _ uint64) {
		if i > 0 {
			out.text(",")
		}
		out.stack(node)
	})
	out.text("\n],\"weights\":[")
	p.each(func(i int, _ int32, count uint64) {
		if i > 0 {
			out.text(",")
		}
		out.number(count)
	})
	out.text("]}")
}

// each calls fn with the stacks of a profile and their weights.
func (p part) each(fn func(i int, node int32, count uint64)) {
	n := 0
	for i := 0; i < len(p.samples); n++ {
		node, count := p.samples[i].node, uint64(0)
		for ; i < len(p.samples) && p.samples[i].node == node; i++ {
			count += p.samples[i].count
		}
		fn(n, node, count)
	}
}

// stack writes the frames from the outermost to the leaf.
func (out *writer) stack(node int32) {
	out.path = out.path[:0]
	for ; node > 0; node = out.nodes[node].Parent {
		out.path = append(out.path, out.nodes[node].Frame)
	}
	out.text("\n[")
	for i, frame := range slices.Backward(out.path) {
		out.number(uint64(frame))
		if i > 0 {
			out.text(",")
		}
	}
	out.text("]")
}
