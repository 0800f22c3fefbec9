package report

import (
	"cmp"
	"slices"
	"strings"

	"unspool/capture/human"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

const (
	leastNameless = 1  // percent of the samples: below that, missing names are not worth a line at the top
	leastIn       = 10 // percent of the samples without names: below that, an image is not named
	mostAdvised   = 3  // files, those with most samples
)

// nameless says which share has no names, where most of that is, and of which files they can be had and how;
// "" if it is little. Time belongs to the innermost frame.
func (out *printer) nameless(p *profile.Profile) string {
	by := make([]uint64, len(p.Images))
	var none, all uint64
	for _, s := range p.Samples {
		all += s.Count
		if s.Node == 0 {
			continue
		}
		f := &p.Frames[p.Nodes[s.Node].Frame]
		if f.Known || !f.Kind.IsCode() {
			continue
		}
		none += s.Count
		by[f.Image] += s.Count
	}
	if none == 0 || 100*none < leastNameless*all {
		return ""
	}
	var worst []int32
	for i, n := range by {
		if n > 0 {
			worst = append(worst, int32(i))
		}
	}
	slices.SortFunc(worst, func(a, b int32) int { return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b)) })
	worst = slices.DeleteFunc(worst, func(i int32) bool { return 100*by[i] < leastIn*none })
	text := human.Percent(none, all) + " of the time has no names"
	if slices.ContainsFunc(p.Samples, func(s profile.Sample) bool { return !p.Events[s.Event].Clock }) {
		text = human.Percent(none, all) + " of the samples have no names"
	}
	how, advised := out.advice(p, worst)
	var of, rest []int32
	for _, i := range worst {
		if slices.Contains(advised, i) {
			of = append(of, i)
		} else {
			rest = append(rest, i)
		}
	}
	in := func(images []int32) string {
		var n uint64
		var names []string
		for _, i := range images {
			n += by[i]
			names = append(names, p.Images[i].Name)
		}
		return human.Percent(n, all) + " in " + strings.Join(names, ", ")
	}
	if len(rest) > 0 {
		text += "; " + in(rest)
	}
	if len(p.Notes().Names) > 0 && (len(rest) > 0 || len(of) == 0) {
		text += ": see the notes at the end"
	}
	if len(of) > 0 { // last, as it may end with a URL
		text += "; " + in(of) + ": " + how
	}
	return text
}

// advice says how the names of images are to be had, and of which of them.
func (out *printer) advice(p *profile.Profile, images []int32) (how string, of []int32) {
	var files []profile.Image
	var asked []int32
	for _, i := range images {
		if len(files) < mostAdvised && symbols.IsFile(p.Images[i].Path) {
			files, asked = append(files, p.Images[i]), append(asked, i)
		}
	}
	if out.o.Advice == nil || len(files) == 0 {
		return "", nil
	}
	how, helped := out.o.Advice(files)
	for n, i := range asked {
		if how != "" && helped[n] {
			of = append(of, i)
		}
	}
	return how, of
}
