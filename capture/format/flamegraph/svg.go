package flamegraph

import (
	"bufio"
	_ "embed"
	"fmt"
	"html"
	"slices"
	"unicode/utf8"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

//go:embed page/svg.js
var svgJS string

//go:embed page/svg.css
var svgCSS string

// The picture in its own units, CSS pixels until it is scaled.
const (
	svgWidth  = 1200
	svgMargin = 16
	svgTop    = 84 // of the first row
	svgRow    = 17
	svgLetter = 6.65 // width of a letter of a frame's text

	leastShare = 0.0005 // share of the samples that a rectangle must have
	mostFrames = 5000   // if there are more rectangles, the least share is raised,
	wideShare  = 0.01   // at most to this one
)

// writeSVG writes the picture. Every rectangle has its name and figures as a title, which viewers show as a
// tooltip and the script reads.
func writeSVG(w *bufio.Writer, g *graph, o Options) {
	event := int32(-1)
	name := "nothing"
	if len(g.events) > 0 {
		event = g.events[0]
		name = g.p.Events[event].Name
	}
	self, total := g.counts(event)
	drawn, least, left := prune(g, total)
	depth := int32(0)
	for _, i := range drawn {
		depth = max(depth, g.nodes[i].depth)
	}
	facts := summary(g.p)
	bottom := svgTop + (int(depth)+1)*svgRow
	height := bottom + 24 + len(facts)*18 + 16

	text := func(s string) string { return html.EscapeString(human.Printable(s)) }
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">`+"\n",
		svgWidth, height, svgWidth, height)
	fmt.Fprintf(w, "<title>%s</title>\n<style>%s%s@media (prefers-color-scheme: dark){%s}</style>\n",
		text(o.Title), svgCSS, rules(".k%d%d rect{fill:%s}", false), rules(".k%d%d rect{fill:%s}", true))
	fmt.Fprintf(w, `<rect class="ground" width="100%%" height="100%%"/>`+"\n"+
		`<text class="title" x="%d" y="28">%s</text>`+"\n", svgMargin, text(o.Title))
	writeLegend(w, g, self, total[0])
	note := fmt.Sprintf("Widths are shares of the %s of %s.", human.Plural(total[0], "sample"), name)
	if left > 0 {
		why := ""
		if least > wideShare {
			why = " or deeper"
		}
		note += fmt.Sprintf(" Left out: %s narrower than %.2g %%%s.", human.Plural(left, "frame"), 100*least, why)
	}
	fmt.Fprintf(w, `<text id="detail" class="soft" x="%d" y="74">%s</text>`+"\n", svgMargin, text(note))

	fmt.Fprintf(w, `<g id="frames" data-left="%d">`+"\n", left)
	scale := 0.0
	if total[0] > 0 {
		scale = (svgWidth - 2*svgMargin) / float64(total[0])
	}
	start := starts(g, total)
	for _, i := range drawn {
		n := &g.nodes[i]
		label, class, title := "all", "all", ""
		if i > 0 {
			f := &g.functions[n.function]
			label, class = human.Printable(f.name), fmt.Sprintf("k%d%d", g.colour(f), g.shade(f))
			title = palette[g.colour(f)].word
			if image := g.p.Images[f.image].Name; image != "" {
				title += ", " + image
			}
			title = human.Printable(title + place(g.files[n.function], n.line))
		}
		title = fmt.Sprintf("%s\n%s\ntotal %s (%s)", label, title, human.Percent(total[i], total[0]),
			human.Number(total[i]))
		if i > 0 {
			title += fmt.Sprintf(", self %s (%s)", human.Percent(self[i], total[0]), human.Number(self[i]))
		}
		x, width := svgMargin+float64(start[i])*scale, float64(total[i])*scale
		if width > 3 {
			width-- // a gap
		}
		y := svgTop + int(n.depth)*svgRow
		fmt.Fprintf(w, `<g class="%s" data-at="%d %d %d"><title>%s</title><rect x="%.2f" y="%d" width="%.2f" `+
			`height="%d"/>`, class, start[i], total[i], n.depth, html.EscapeString(title), x, y, width, svgRow-1)
		if label = cut(label, int((width-8)/svgLetter)); label != "" {
			fmt.Fprintf(w, `<text x="%.2f" y="%d">%s</text>`, x+4, y+12, html.EscapeString(label))
		}
		fmt.Fprint(w, "</g>\n")
	}
	fmt.Fprint(w, "</g>\n<g id=\"summary\">\n")
	for i, f := range facts {
		fmt.Fprintf(w, `<text class="soft" x="%d" y="%d">%s</text><text x="%d" y="%d">%s</text>`+"\n", svgMargin,
			bottom+34+i*18, text(f.Name), svgMargin+90, bottom+34+i*18, text(cut(f.Value, 165)))
	}
	fmt.Fprintf(w, "</g>\n<script><![CDATA[\n%s]]></script>\n</svg>\n", svgJS)
}

func place(file string, line int32) string {
	switch {
	case file == "":
		return ""
	case line == 0:
		return ", " + file
	}
	return fmt.Sprintf(", %s:%d", file, line)
}

// writeLegend explains the colours that occur, with the share of samples that end in each.
func writeLegend(w *bufio.Writer, g *graph, self []uint64, all uint64) {
	var present [colours]bool
	var sum [colours]uint64
	for i, n := range g.nodes[1:] {
		c := g.colour(&g.functions[n.function])
		present[c] = true
		sum[c] += self[i+1]
	}
	x := svgMargin
	for _, c := range legend {
		if !present[c] {
			continue
		}
		words := palette[c].word
		if c != int(profile.Process) { // no sample ends in one
			words += " " + human.Percent(sum[c], all)
		}
		fmt.Fprintf(w, `<g class="k%d1"><title>%s</title><rect x="%d" y="42" width="11" height="11" `+
			`rx="3"/></g><text x="%d" y="52">%s</text>`+"\n", c, palette[c].title, x, x+16, words)
		x += 16 + len(words)*7 + 18
	}
}

// prune returns the nodes that are drawn, the least share that they have, and the number of nodes with
// samples that are not drawn. These have less than that share; if this does not leave out enough, also the
// deepest nodes are left out.
func prune(g *graph, total []uint64) (drawn []int32, least float64, left uint64) {
	for least = leastShare; ; least *= 2 {
		drawn, left = drawn[:0], 0
		for i := range g.nodes {
			switch {
			case i == 0 || float64(total[i]) >= least*float64(total[0]) && total[i] > 0:
				drawn = append(drawn, int32(i))
			case total[i] > 0:
				left++
			}
		}
		if len(drawn) <= mostFrames {
			return drawn, least, left
		}
		if least > wideShare {
			wide := len(drawn)
			drawn = outermost(g, drawn, mostFrames)
			return drawn, least, left + uint64(wide-len(drawn))
		}
	}
}

// outermost leaves out the deepest frames, always all of one depth, until there are few enough.
func outermost(g *graph, frames []int32, most int) []int32 {
	var count []int // by depth
	for _, i := range frames {
		for int(g.nodes[i].depth) >= len(count) {
			count = append(count, 0)
		}
		count[g.nodes[i].depth]++
	}
	depth, sum := 0, 0
	for depth < len(count) && sum+count[depth] <= most {
		sum += count[depth]
		depth++
	}
	return slices.DeleteFunc(frames, func(i int32) bool { return int(g.nodes[i].depth) >= depth })
}

// starts are the numbers of samples to the left of each node.
func starts(g *graph, total []uint64) []uint64 {
	start, used := make([]uint64, len(g.nodes)), make([]uint64, len(g.nodes))
	for i, n := range g.nodes {
		if i > 0 {
			start[i] = start[n.parent] + used[n.parent]
			used[n.parent] += total[i]
		}
	}
	return start
}

// cut shortens s to n letters; the result is empty if n is less than three.
func cut(s string, n int) string {
	switch {
	case utf8.RuneCountInString(s) <= n:
		return s
	case n < 3:
		return ""
	}
	return string([]rune(s)[:n-1]) + "…"
}
