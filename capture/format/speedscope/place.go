package speedscope

import (
	"cmp"

	"unspool/capture/profile"
)

// place is a frame of the file.
type place struct {
	name, file   string
	line, column int32 // 0 when unknown
}

// places returns the frames of the file, and for each frame of the profile its own.
func places(p *profile.Profile, lines bool) (all []place, now []int32) {
	now = make([]int32, len(p.Frames))
	for i := range now {
		now[i] = int32(i)
	}
	if !lines {
		now = hottest(p)
	}
	index := make(map[place]int32)
	for i, j := range now {
		f := &p.Frames[j]
		at := place{f.Name, f.File, f.Line, f.Column}
		if at.file == "" {
			im := &p.Images[f.Image]
			at.file = cmp.Or(im.Path, im.Name)
		}
		k := at
		if !lines {
			k.line, k.column = 0, 0
		}
		n, ok := index[k]
		if !ok {
			n = int32(len(all))
			all = append(all, at)
			index[k] = n
		}
		now[i] = n
	}
	return all, now
}

// hottest returns, for each frame, the frame that is shown for its function: the one with the most samples
// among those with a known file.
func hottest(p *profile.Profile) []int32 {
	weight := make([]uint64, len(p.Frames))
	for node, n := range p.Totals()[1:] {
		weight[p.Nodes[node+1].Frame] += n
	}
	type function struct {
		name  string
		image int32
	}
	best := make(map[function]int32)
	for i, f := range p.Frames {
		k := function{f.Name, f.Image}
		j, ok := best[k]
		better := !ok
		if ok {
			known, before := f.File != "", p.Frames[j].File != ""
			better = known && !before || known == before && weight[i] > weight[j]
		}
		if better {
			best[k] = int32(i)
		}
	}
	stands := make([]int32, len(p.Frames))
	for i, f := range p.Frames {
		stands[i] = best[function{f.Name, f.Image}]
	}
	return stands
}
