package difference

import "unspool/capture/profile"

// names are the names that an image and a program of one side get to be those of the other: what was recorded
// may be called app-old in A, and app-new in B.
type names struct{ images, programs map[string]string }

func (n names) image(name string) string   { return renamed(n.images, name) }
func (n names) program(name string) string { return renamed(n.programs, name) }

func renamed(names map[string]string, name string) string {
	if to, ok := names[name]; ok {
		return to
	}
	return name
}

// alike finds an image that only a has and one that only b has, each of which is on the stacks of half of the
// samples or more, and gives both a name made of both names; and likewise programs.
func alike(runs ...[]Run) [sides]names {
	var both [sides]names
	var images, progs [sides]map[string]uint64
	var all [sides]uint64
	for side, runs := range runs {
		images[side], progs[side] = make(map[string]uint64), make(map[string]uint64)
		for _, r := range runs {
			addTo(images[side], onStacks(r.Profile))
			addTo(progs[side], programs(r.Profile))
			all[side] += r.Count()
		}
	}
	both[A].images, both[B].images = counterparts(images[A], images[B], all[A], all[B])
	both[A].programs, both[B].programs = counterparts(progs[A], progs[B], all[A], all[B])
	return both
}

func addTo(sum, counts map[string]uint64) {
	for name, n := range counts {
		sum[name] += n
	}
}

// counterparts renames the name with most samples of those that the other side does not have.
func counterparts(a, b map[string]uint64, inA, inB uint64) (forA, forB map[string]string) {
	x, y := own(a, b, inA), own(b, a, inB)
	if x == "" || y == "" {
		return nil, nil
	}
	name := x + " / " + y
	return map[string]string{x: name}, map[string]string{y: name}
}

func own(names, others map[string]uint64, all uint64) (best string) {
	most := uint64(0)
	for name, n := range names {
		if _, known := others[name]; !known && 2*n >= all && (n > most || n == most && name < best) {
			best, most = name, n
		}
	}
	return best
}

// programs counts the samples of each program.
func programs(p *profile.Profile) map[string]uint64 {
	count := make(map[string]uint64)
	for _, s := range p.Samples {
		count[p.Threads[s.Thread].Program] += s.Count
	}
	return count
}

// onStacks counts the samples whose stacks have a file, by the file's name.
func onStacks(p *profile.Profile) map[string]uint64 {
	var files profile.StringTable // names
	of := make([]int32, len(p.Images))
	for i, im := range p.Images {
		of[i] = files.Number(im.Name)
	}
	count := make([]uint64, len(files.List))
	seen := make([]int, len(files.List)) // the last sample that was counted, plus one
	for i, s := range p.Samples {
		for n := s.Node; n > 0; n = p.Nodes[n].Parent {
			f := &p.Frames[p.Nodes[n].Frame]
			at := of[f.Image]
			if f.Kind != profile.User || seen[at] == i+1 {
				continue
			}
			seen[at] = i + 1
			count[at] += s.Count
		}
	}
	by := make(map[string]uint64)
	for at, name := range files.List {
		by[name] = count[at]
	}
	return by
}
