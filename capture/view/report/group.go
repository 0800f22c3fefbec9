package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"unspool/capture/profile"
)

// By is what the samples are added up by.
type By uint8

const (
	Function By = iota // functions, with the tree of calls
	Comm               // names of threads
	Process
	Thread
	Image
	Source // files, with their lines
)

var bys = [...]string{Function: "function", Comm: "comm", Process: "process", Thread: "thread",
	Image: "image", Source: "source"}

func (b By) String() string {
	if int(b) < len(bys) {
		return bys[b]
	}
	return fmt.Sprintf("by %d", uint8(b))
}

// ParseBy is the opposite of String.
func ParseBy(s string) (By, error) {
	if i := slices.Index(bys[:], s); i >= 0 {
		return By(i), nil
	}
	return 0, fmt.Errorf("%q is none of %s", s, strings.Join(bys[:], ", "))
}

// ByNames returns what ParseBy knows.
func ByNames() []string { return slices.Clone(bys[:]) }

// partsSamples reports whether each sample is in one group only. Otherwise the groups are of frames, and one
// stack has several.
func (b By) partsSamples() bool { return b == Comm || b == Process || b == Thread }

// group is the samples of a process, a thread, an image, …
type group struct {
	name    string
	cmdline string          // of a Process, "" if it is not known
	thread  *profile.Thread // for Comm, Process, Thread: the fields that all members have in common
	frame   int32           // for Image and Source: one of its frames

	self, total uint64
	rows        []sum // functions, or lines of Source
}

// groups returns the groups of a view, those with most self samples first, and the table of their rows.
func (v *view) groups(by By) ([]group, *table) {
	if by.partsSamples() {
		return v.sampleGroups(by)
	}
	return v.frameGroups(by)
}

func (v *view) frameGroups(by By) ([]group, *table) {
	outer, inner := imageTable, functionTable
	if by == Source {
		outer, inner = fileTable, lineTable
	}
	of, rows := outer(v.p), inner(v.p)
	in := make([][]sum, len(of.rows))
	for _, s := range v.sums(rows) {
		g := of.row[rows.rows[s.row].frame]
		in[g] = append(in[g], s)
	}
	var groups []group
	for _, s := range v.sums(of) {
		l := of.rows[s.row]
		groups = append(groups, group{name: l.name, frame: l.frame, self: s.self, total: s.total, rows: in[s.row]})
	}
	return groups, rows
}

func (v *view) sampleGroups(by By) ([]group, *table) {
	known := make(map[profile.Thread]int)
	var groups []group
	var samples [][]int32 // by group
	for i, s := range v.p.Samples {
		if s.Event != v.event {
			continue
		}
		key := v.p.Threads[s.Thread]
		key.Program = ""
		switch by {
		case Comm:
			key.PID, key.TID = 0, 0
		case Process:
			key.TID, key.Comm = 0, ""
		}
		g, ok := known[key]
		if !ok {
			g = len(groups)
			known[key] = g
			groups = append(groups, group{thread: &key})
			samples = append(samples, nil)
		}
		groups[g].self += s.Count
		samples[g] = append(samples[g], int32(i))
	}
	functions := functionTable(v.p)
	names := v.p.Processes()
	a := v.tally(functions)
	for i := range groups {
		g := &groups[i]
		g.total = g.self
		for _, s := range samples[i] {
			a.add(v.shown[v.p.Samples[s].Node], v.p.Samples[s].Count)
		}
		g.rows = a.take()
		if by == Process {
			g.thread.Comm, g.cmdline = names[g.thread.PID], v.p.CommandLines[g.thread.PID]
		}
		g.name = threadName(g.thread)
	}
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.self, a.self), strings.Compare(a.name, b.name))
	})
	return groups, functions
}

// threadName is "comm (pid/tid)", as far as these are known.
func threadName(t *profile.Thread) string {
	switch {
	case t.TID != 0:
		return fmt.Sprintf("%s (%d/%d)", t.Comm, t.PID, t.TID)
	case t.PID != 0:
		return fmt.Sprintf("%s (%d)", t.Comm, t.PID)
	}
	return t.Comm
}
