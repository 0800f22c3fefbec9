package compare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"unspool/capture/human"
	"unspool/capture/profile"
)

// Two is the comparison of two recordings, for instance of a build with frame pointers and one without. They
// have different samples, so there are no classes: it compares the shares of functions.
type Two struct {
	Version int         `json:"version"`
	A       Side        `json:"a"`
	B       Side        `json:"b"`
	Shares  []SideShare `json:"shares"`
}

// Side is one of the recordings.
type Side struct {
	File    string  `json:"file"`
	Samples uint64  `json:"samples"`
	Lost    uint64  `json:"lost"`
	Seconds float64 `json:"duration_s"`
	// share of the user stacks that reach their root, among those for which this is known
	Complete float64  `json:"complete"`
	Depth    float64  `json:"mean_depth"` // frames, the kernel's included
	Problems []string `json:"problems"`
}

// SideShare is how much of the time a function takes in each recording, with the functions that it calls
// and by itself.
type SideShare struct {
	Function string  `json:"function"`
	Image    string  `json:"image"`
	A        float64 `json:"a"`
	B        float64 `json:"b"`
	SelfA    float64 `json:"self_a"`
	SelfB    float64 `json:"self_b"`
}

// CompareTwo compares two recordings by functions and images of the same name. If each has images that the
// other does not have, those with the most samples on either side are taken for counterparts, such as
// "app-fp" and "app-nofp", and both get a name made of both names.
func CompareTwo(a, b *profile.Profile, fileA, fileB string) *Two {
	nameAlike(a, b)
	t := &Two{Version: 1, A: side(a, fileA), B: side(b, fileB), Shares: []SideShare{}}
	type key struct{ function, image string }
	sums := make(map[key]*SideShare)
	add := func(p *profile.Profile, total, self func(*SideShare) *float64) {
		count := p.Count()
		at := func(f int32) *SideShare {
			frame := &p.Frames[f]
			k := key{frame.Name, p.Images[frame.Image].Name}
			if sums[k] == nil {
				sums[k] = &SideShare{Function: k.function, Image: k.image}
			}
			return sums[k]
		}
		for f, n := range totals(p) {
			if n > 0 {
				*total(at(int32(f))) += share(n, count)
			}
		}
		for _, s := range p.Samples {
			if s.Node > 0 {
				*self(at(p.Nodes[s.Node].Frame)) += share(s.Count, count)
			}
		}
	}
	add(a, func(s *SideShare) *float64 { return &s.A }, func(s *SideShare) *float64 { return &s.SelfA })
	add(b, func(s *SideShare) *float64 { return &s.B }, func(s *SideShare) *float64 { return &s.SelfB })
	for _, s := range sums {
		t.Shares = append(t.Shares, *s)
	}
	difference := func(s *SideShare) float64 { return max(s.A-s.B, s.B-s.A) }
	slices.SortFunc(t.Shares, func(x, y SideShare) int {
		return cmp.Or(cmp.Compare(difference(&y), difference(&x)), cmp.Compare(x.Function, y.Function),
			cmp.Compare(x.Image, y.Image))
	})
	t.Shares = firstOf(t.Shares)
	return t
}

// nameAlike gives one name to two images: of the images that only a has, the one on the stacks of most
// samples; and likewise of those that only b has.
func nameAlike(a, b *profile.Profile) {
	i, j := ownImage(a, b), ownImage(b, a)
	if i < 0 || j < 0 {
		return
	}
	name := a.Images[i].Name + " / " + b.Images[j].Name
	a.Images, b.Images = slices.Clone(a.Images), slices.Clone(b.Images)
	a.Images[i].Name, b.Images[j].Name = name, name
}

// ownImage is the file that is on the stacks of most samples and is not in the other recording; -1 if there
// is none.
func ownImage(p, other *profile.Profile) int32 {
	same := make([]int32, len(p.Frames)) // the first frame of the same image
	first := make(map[int32]int32)
	for i, f := range p.Frames {
		if _, ok := first[f.Image]; !ok {
			first[f.Image] = int32(i)
		}
		same[i] = first[f.Image]
	}
	best, most := int32(-1), uint64(0)
	for i, n := range onStacks(p, same) {
		f := &p.Frames[i]
		name := p.Images[f.Image].Name
		known := slices.ContainsFunc(other.Images, func(im profile.Image) bool { return im.Name == name })
		if n > most && !known && f.Kind == profile.User {
			best, most = f.Image, n
		}
	}
	return best
}

func side(p *profile.Profile, file string) Side {
	s := Side{File: file, Samples: p.Count(), Lost: p.Lost(), Seconds: p.Duration.Seconds(),
		Problems: p.Problems}
	if s.Problems == nil {
		s.Problems = []string{}
	}
	depth := make([]uint64, len(p.Nodes))
	for i, n := range p.Nodes[1:] {
		depth[i+1] = depth[n.Parent] + 1
	}
	var frames, said, complete uint64
	for _, sample := range p.Samples {
		frames += depth[sample.Node] * sample.Count
		if sample.End != profile.Unsaid {
			said += sample.Count
		}
		if sample.End == profile.Complete {
			complete += sample.Count
		}
	}
	s.Depth, s.Complete = share(frames, s.Samples), share(complete, said)
	return s
}

// WriteJSON writes the comparison as one JSON object and a newline.
func (t *Two) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(human.JSON(w))
	e.SetEscapeHTML(false)
	return e.Encode(t)
}

// WriteText prints the comparison for people.
func (t *Two) WriteText(w io.Writer, o Text) error {
	p := newPage(w, o)
	for _, s := range []struct {
		name string
		*Side
	}{{"A", &t.A}, {"B", &t.B}} {
		text := fmt.Sprintf("%s  %s: %s in %.1f s, %s lost, stacks %.1f frames deep", s.name,
			human.Clean(s.File), human.Plural(s.Samples, "sample"), s.Seconds, human.Number(s.Lost), s.Depth)
		if s.Complete > 0 {
			text += fmt.Sprintf(", %s complete", exact(s.Complete))
		}
		p.line("%s", text)
	}
	p.head("%7s  %7s  %7s  %7s  %s", "A", "B", "self A", "self B", "function, with what it calls")
	for _, s := range t.Shares[:min(len(t.Shares), 3*p.o.Rows)] {
		p.line("%7s  %7s  %7s  %7s  %s  %s", percentage(s.A), percentage(s.B), percentage(s.SelfA),
			percentage(s.SelfB), human.Shorten(human.Clean(s.Function), p.o.Width-50), human.Clean(s.Image))
	}
	for _, s := range []*Side{&t.A, &t.B} {
		for _, problem := range s.Problems {
			p.line("note: %s: %s", human.Clean(s.File), human.Clean(problem))
		}
	}
	return p.w.Flush()
}
