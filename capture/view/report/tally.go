package report

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"unspool/capture/profile"
)

// table is what the rows of a table are: functions, images, source files or lines. Each frame belongs to
// one row, but for processes.
type table struct {
	what string  // what a row is, in the singular
	row  []int32 // by frame: its row, or noRow
	rows []label
}

const noRow = -1

// label is the text of a row.
type label struct {
	name   string
	beside string // in the next column
	frame  int32  // a frame that belongs to the row
}

// functionTable has a row for each frame of a profile by function.
func functionTable(p *profile.Profile) *table {
	t := &table{what: "function"}
	for i := range p.Frames {
		f := &p.Frames[i]
		row := int32(len(t.rows))
		if f.Kind == profile.Process {
			row = noRow
		} else {
			t.rows = append(t.rows, label{functionName(f), p.Images[f.Image].Name, int32(i)})
		}
		t.row = append(t.row, row)
	}
	return t
}

func functionName(f *profile.Frame) string {
	if f.Inlined {
		return f.Name + inlined
	}
	return f.Name
}

const inlined = " (inlined)"

func imageTable(p *profile.Profile) *table {
	names := imageNames(p)
	return newTable(p, "image", func(f *profile.Frame) label { return label{name: names[f.Image]} },
		func(f *profile.Frame) int32 { return f.Image })
}

// imageNames are the images' names; their paths if several have the same name.
func imageNames(p *profile.Profile) []string {
	bearers := make(map[string]int)
	for _, im := range p.Images {
		bearers[im.Name]++
	}
	names := make([]string, len(p.Images))
	for i, im := range p.Images {
		names[i] = im.Name
		if bearers[im.Name] > 1 && im.Path != "" {
			names[i] = im.Path
		}
	}
	return names
}

func fileTable(p *profile.Profile) *table {
	type key struct {
		file  string
		image int32
	}
	names := imageNames(p)
	return newTable(p, "file", func(f *profile.Frame) label {
		if f.File == "" {
			return label{name: names[f.Image] + " (no source lines)"}
		}
		return label{name: f.File}
	}, func(f *profile.Frame) key {
		if f.File == "" {
			return key{image: f.Image}
		}
		return key{file: f.File}
	})
}

func lineTable(p *profile.Profile) *table {
	type key struct {
		file, name string
		line       int32
		image      int32
	}
	return newTable(p, "line", func(f *profile.Frame) label {
		switch {
		case f.File == "":
			return label{name: f.Name}
		case f.Line == 0:
			return label{name: path.Base(f.File), beside: f.Name}
		}
		return label{name: fmt.Sprintf("%s:%d", path.Base(f.File), f.Line), beside: f.Name}
	}, func(f *profile.Frame) key { return key{f.File, f.Name, f.Line, f.Image} })
}

func newTable[K comparable](p *profile.Profile, what string, text func(*profile.Frame) label,
	keyOf func(*profile.Frame) K) *table {
	t := &table{what: what, row: make([]int32, len(p.Frames))}
	known := make(map[K]int32)
	for i := range p.Frames {
		f := &p.Frames[i]
		k := keyOf(f)
		r, ok := known[k]
		if !ok {
			r = int32(len(t.rows))
			known[k] = r
			l := text(f)
			l.frame = int32(i)
			t.rows = append(t.rows, l)
		}
		t.row[i] = r
	}
	return t
}

// sum is the result for a row.
type sum struct {
	row         int32
	self, total uint64 // samples whose leaf belongs to the row, and those with any such frame
}

// tally adds stacks up by the rows of a table.
type tally struct {
	v      *view
	t      *table
	sums   []sum
	seen   []int // by row: the last stack that has it
	stacks int
	used   []int32
}

func (v *view) tally(t *table) *tally {
	return &tally{v: v, t: t, sums: make([]sum, len(t.rows)), seen: make([]int, len(t.rows))}
}

// add adds a stack of the view, given by its leaf.
func (a *tally) add(leaf int32, count uint64) {
	a.stacks++
	for node := leaf; node > 0; node = a.v.nodes[node].Parent {
		r := a.t.row[a.v.nodes[node].Frame]
		if r == noRow {
			continue
		}
		s := &a.sums[r]
		if node == leaf {
			s.self += count
		}
		if a.seen[r] == a.stacks {
			continue
		}
		if a.seen[r] = a.stacks; s.total == 0 {
			a.used = append(a.used, r)
		}
		s.total += count
	}
}

// take returns the sums, those with most self samples first, and starts again from zero.
func (a *tally) take() []sum {
	sums := make([]sum, len(a.used))
	for i, r := range a.used {
		sums[i] = a.sums[r]
		sums[i].row = r
		a.sums[r] = sum{}
	}
	a.used = a.used[:0]
	slices.SortFunc(sums, func(x, y sum) int {
		return cmp.Or(cmp.Compare(y.self, x.self), cmp.Compare(y.total, x.total),
			strings.Compare(a.t.rows[x.row].name, a.t.rows[y.row].name), cmp.Compare(x.row, y.row))
	})
	return sums
}

// sums adds all samples up by the rows of a table.
func (v *view) sums(t *table) []sum {
	a := v.tally(t)
	for node, n := range v.self {
		if n > 0 {
			a.add(int32(node), n)
		}
	}
	return a.take()
}
