package difference

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"unspool/capture/profile"
)

// Unnamed is an image whose functions have names in one recording and not in the other, as of a program that
// was built anew after A. They cannot be compared, so all of the image is one frame on both sides.
type Unnamed struct {
	Side  int           // the recording without names
	Image profile.Image // as it has it
	Label string        // the frame's name: "[w]"
	Much  bool          // it takes so much of that recording that people should know
}

// String returns what is missing, and what to do the next time.
func (u *Unnamed) String() string {
	side := "AB"[u.Side : u.Side+1]
	if u.Image.Code != nil || u.Image.BuildID == nil || !strings.HasPrefix(u.Image.Path, "/") {
		return fmt.Sprintf("%s has too few names of functions of %s: all of them count as one, %s", side,
			u.Image.Name, u.Label)
	}
	return fmt.Sprintf("%s is not here as %s recorded it: its functions count as one, %s. Keep a program "+
		"before you build it anew: perf buildid-cache --add FILE, or build it under another name", u.Image.Name,
		side, u.Label)
}

const (
	fewestNamed = 0.1  // share of an image's code on the stacks that has names, for its functions to be compared
	much        = 0.01 // share of the samples
)

// fold is which functions of an image are one frame.
type fold uint8

const (
	none      fold = iota
	addresses      // those that have addresses as names, which mean nothing in another file
	all
)

func (o fold) has(f *profile.Frame) bool {
	return f.Kind.IsCode() && (o == all || o == addresses && !f.Known && !f.Inlined)
}

// compareNames finds the images of which functions cannot be compared.
func (m *merger) compareNames() {
	a, b := m.naming(A), m.naming(B)
	for name, x := range a {
		y := b[name]
		if y == nil {
			continue
		}
		known, same := !x.ids[""] && !y.ids[""], maps.Equal(x.ids, y.ids)
		if known && !same {
			m.fold[name] = addresses
		}
		if known && same || x.has() == y.has() {
			continue
		}
		side, n := A, x
		if x.has() {
			side, n = B, y
		}
		m.fold[name] = all
		m.Unnamed = append(m.Unnamed, Unnamed{
			side, *n.image, label(name), float64(n.bare) >= much*float64(m.count(side)),
		})
	}
	slices.SortFunc(m.Unnamed, func(x, y Unnamed) int { return cmp.Compare(x.Label, y.Label) })
}

// naming is how much of an image's code on the stacks of one side has names: in samples, those of a stack
// once for each frame.
type naming struct {
	image       *profile.Image
	ids         map[string]bool // build IDs of its files, "" where one is not known
	named, bare uint64
}

func (n *naming) has() bool { return float64(n.named) >= fewestNamed*float64(n.named+n.bare) }

// naming has that of the images of a side by their merged names.
func (m *merger) naming(side int) map[string]*naming {
	found := make(map[string]*naming)
	for _, r := range m.Runs[side] {
		samples := make([]uint64, len(r.Frames))
		for node, n := range r.Totals() {
			if node > 0 {
				samples[r.Nodes[node].Frame] += n
			}
		}
		for i := range r.Frames {
			f := &r.Frames[i]
			if samples[i] == 0 || !f.Kind.IsCode() {
				continue
			}
			image := &r.Images[f.Image]
			name := m.names[side].image(image.Name)
			n := found[name]
			if n == nil {
				n = &naming{image: image, ids: make(map[string]bool)}
				found[name] = n
			}
			if f.Known {
				n.named += samples[i]
			} else {
				n.bare += samples[i]
			}
			n.ids[string(image.BuildID)] = true
		}
	}
	return found
}

// count is how many samples a side has.
func (m *merger) count(side int) (n uint64) {
	for _, r := range m.Runs[side] {
		n += r.Count()
	}
	return n
}

// label is the name of all functions of an image together.
func label(image string) string {
	if strings.HasPrefix(image, "[") {
		return image
	}
	return "[" + image + "]"
}
