package report

import (
	"cmp"
	"slices"

	"unspool/capture/human"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

const (
	leastNameless = 1  // percent of the samples: below that, missing names are not worth a line at the top
	mostAdvised   = 3  // files, those with most samples,
	leastAdvised  = 10 // percent of the samples without names, at least
)

// nameless says which share has no names, where most of that is, and how to get them; "" if it is
// little. Time belongs to the innermost frame.
func (out *printer) nameless(p *profile.Profile) string {
	by := make([]uint64, len(p.Images))
	var none, all uint64
	for _, s := range p.Samples {
		all += s.Count
		if s.Node == 0 {
			continue
		}
		f := &p.Frames[p.Nodes[s.Node].Frame]
		if f.Known || f.Kind == profile.Unmapped || f.Kind == profile.Guest {
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
	share, most := " of the time has no names", ", most of it in "
	if slices.ContainsFunc(p.Samples, func(s profile.Sample) bool { return !p.Events[s.Event].Clock }) {
		share, most = " of the samples have no names", ", most of these in "
	}
	text := human.Percent(none, all) + share
	if first := worst[0]; 2*by[first] > none {
		text += most + p.Images[first].Name
	}
	var files []profile.Image
	for _, i := range worst {
		im := p.Images[i]
		if len(files) < mostAdvised && 100*by[i] >= leastAdvised*none && symbols.IsFile(im.Path) {
			files = append(files, im)
		}
	}
	advice := ""
	if out.o.Advice != nil && len(files) > 0 {
		advice = out.o.Advice(files)
	}
	switch {
	case advice != "":
		text += ": " + advice
	case len(p.Notes().Names) > 0:
		text += ": see the notes at the end"
	}
	return text
}
