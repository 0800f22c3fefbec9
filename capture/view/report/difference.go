package report

import (
	"cmp"
	"math"
	"slices"

	"unspool/capture/profile"
	"unspool/capture/profile/difference"
)

// Difference is what is compared of recordings of two sides, and how it is printed.
type Difference struct {
	Options
	// AdviceFor is the Advice about a recording; nil for none.
	AdviceFor func(*profile.Profile) Advice
	// Amounts decide by CPU time, or whatever the event counts, what has changed, and not by shares. This is for
	// recordings of the same work.
	Amounts bool
}

// pairView is a pair of events of two merged recordings: views of both sides with the same nodes.
type pairView struct {
	m      *difference.Merged
	number int
	pair   *difference.Pair
	of     [2]*view // for tables
	tree   [2]*view
	childs [][]int32 // of the tree, those of either side
	whole  difference.Delta
	o      *Difference
	by     func(*difference.Delta) difference.Estimate // what decides
}

func newPairView(m *difference.Merged, number int, o *Difference) (*pairView, error) {
	c := &pairView{m: m, number: number, pair: &m.Pairs[number], o: o, by: byShare}
	if o.Amounts {
		c.by = byAmount
	}
	a, b := c.pair.Event[difference.A], c.pair.Event[difference.B]
	tree := newTreeView(m.Profile, a, false)
	c.tree = [2]*view{tree, tree.of(b)}
	c.of = c.tree
	if slices.ContainsFunc(m.Frames, func(f profile.Frame) bool { return f.Kind == profile.Process }) {
		table := newView(m.Profile, a, false)
		c.of = [2]*view{table, table.of(b)}
	}
	c.childs = make([][]int32, len(c.tree[0].nodes))
	for node := 1; node < len(c.childs); node++ {
		if c.tree[0].total[node]+c.tree[1].total[node] > 0 {
			parent := c.tree[0].nodes[node].Parent
			c.childs[parent] = append(c.childs[parent], int32(node))
		}
	}
	all := difference.Rows{N: 1, Of: func(_, _ int32, add func(int32)) { add(0) }}
	lists, err := m.Changes(number, all)
	if err != nil {
		return nil, err
	}
	c.whole = lists[0][0]
	return c, nil
}

func byShare(c *difference.Delta) difference.Estimate  { return c.Share }
func byAmount(c *difference.Delta) difference.Estimate { return c.Amount }

// timed reports whether amounts are CPU time.
func (c *pairView) timed() bool { return c.pair.Unit == "s" }

// differs reports whether a change is more than its interval allows by chance, which is more than chance only where
// that has the spread between runs.
func (c *pairView) differs(x *difference.Delta) bool { return c.by(x).ExcludesZero() }

// size is by how much something has changed.
func (c *pairView) size(x *difference.Delta) float64 { return math.Abs(c.by(x).Value) }

// share is that of a side's samples.
func (c *pairView) share(side int, x *difference.Delta) float64 {
	if all := c.pair.Whole[side].Samples; all > 0 {
		return float64(x.Samples[side]) / float64(all)
	}
	return 0
}

// largest is a row's share on the side where it is larger.
func (c *pairView) largest(x *difference.Delta) float64 { return max(c.share(0, x), c.share(1, x)) }

// change is what has changed in a row of a table, or in a node of the tree.
type change struct {
	row         int32
	self, total difference.Delta
}

// rows are the rows of a table by stack, of the threads that wanted wants.
func (c *pairView) rows(t *table, wanted func(thread int32) bool) (self, total difference.Rows) {
	v := c.of[0] // the nodes of both are the same
	seen, stacks := make([]int, len(t.rows)), 0
	self = difference.Rows{N: len(t.rows), Of: func(thread, leaf int32, add func(int32)) {
		if node := v.shown[leaf]; node > 0 && wanted(thread) {
			add(t.row[v.nodes[node].Frame])
		}
	}}
	total = difference.Rows{N: len(t.rows), Of: func(thread, leaf int32, add func(int32)) {
		if !wanted(thread) {
			return
		}
		stacks++
		for node := v.shown[leaf]; node > 0; node = v.nodes[node].Parent {
			if r := t.row[v.nodes[node].Frame]; seen[r] != stacks {
				seen[r] = stacks
				add(r)
			}
		}
	}}
	return self, total
}

// changes compares the rows of a table, and sorts them.
func (c *pairView) changes(t *table, wanted func(thread int32) bool) (list []change, err error) {
	self, total := c.rows(t, wanted)
	lists, err := c.m.Changes(c.number, self, total)
	if err != nil {
		return nil, err
	}
	for row := range t.rows {
		if x := &lists[1][row]; x.Samples != [2]uint64{} {
			list = append(list, change{int32(row), lists[0][row], *x})
		}
	}
	c.sort(list, func(row int32) string { return t.rows[row].name })
	return c.raise(t, list), nil
}

// The rows of a list, by why they have changed.
const (
	byItself  = iota // or only one recording has the row
	byCallees        // by what it calls alone
	byChance         // perhaps
)

// why returns why a row has changed, and gives the change by which it is sorted: that of itself, or that with what it
// calls where only one recording has the row, or it has changed by that alone.
func (c *pairView) why(x *change) (why int, by *difference.Delta) {
	self, total := c.differs(&x.self), c.differs(&x.total)
	switch {
	case total && x.inOne():
		return byItself, &x.total
	case self:
		return byItself, &x.self
	case total:
		return byCallees, &x.total
	case c.size(&x.self) >= c.size(&x.total):
		return byChance, &x.self
	}
	return byChance, &x.total
}

// inOne reports whether only one recording has the row: it was added, or is gone.
func (x *change) inOne() bool { return x.total.Samples[0] == 0 || x.total.Samples[1] == 0 }

// sort sorts rows by why they have changed, and puts first what has changed most.
func (c *pairView) sort(list []change, name func(row int32) string) {
	slices.SortFunc(list, func(x, y change) int {
		why, by := c.why(&x)
		other, than := c.why(&y)
		return cmp.Or(cmp.Compare(why, other), cmp.Compare(c.size(than), c.size(by)),
			cmp.Compare(c.size(&y.self), c.size(&x.self)), cmp.Compare(c.size(&y.total), c.size(&x.total)),
			cmp.Compare(name(x.row), name(y.row)), cmp.Compare(x.row, y.row))
	})
}

// raise moves a row that only one recording has above those of its callers that may have changed by no more
// than it, as they may have changed because of it. The list is sorted.
func (c *pairView) raise(t *table, list []change) []change {
	place := make([]int, len(t.rows)) // in the list, by row; -1 for what has not changed
	to := make([]int, len(list))      // the place to which each moves
	for i := range place {
		place[i] = -1
	}
	for i := range list {
		if to[i] = i; c.changed(&list[i]) {
			place[list[i].row] = i
		}
	}
	v := c.of[0] // the nodes of both are the same
	at := func(node int32) int { return place[t.row[v.nodes[node].Frame]] }
	for node := int32(1); node < int32(len(v.nodes)); node++ {
		i := at(node)
		if i < 0 || !list[i].inOne() || v.total[node]+c.of[1].total[node] == 0 {
			continue
		}
		for up := v.nodes[node].Parent; up > 0 && at(up) != i; up = v.nodes[up].Parent {
			if caller := at(up); caller >= 0 && !list[caller].inOne() && c.mayBeNoMore(&list[caller], &list[i]) {
				to[i] = min(to[i], caller)
			}
		}
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		moved := func(i int) int { return cmp.Compare(to[i], i) }
		return cmp.Or(cmp.Compare(to[i], to[j]), cmp.Compare(moved(i), moved(j)))
	})
	sorted := make([]change, len(list))
	for place, i := range order {
		sorted[place] = list[i]
	}
	return sorted
}

// mayBeNoMore reports whether x has perhaps changed by no more than y: the error of its change allows that.
func (c *pairView) mayBeNoMore(x, y *change) bool {
	_, by := c.why(x)
	_, than := c.why(y)
	e := c.by(by)
	return math.Abs(e.Value)-e.Error() <= c.size(than)
}

// changed reports whether a row has changed, by itself or with what it calls.
func (c *pairView) changed(x *change) bool { return c.differs(&x.self) || c.differs(&x.total) }

// nodes compares the nodes of a view, each with those below it.
func (c *pairView) nodes(v *view) ([]difference.Delta, error) {
	lists, err := c.m.Changes(c.number, difference.Rows{
		N: len(v.nodes), Of: func(_, leaf int32, add func(int32)) {
			for node := v.shown[leaf]; node > 0; node = v.nodes[node].Parent {
				add(node)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return lists[0], nil
}

// groups compares what the samples are added up by: threads, images or files. of is the row of each thread,
// nil where threads are not the groups.
func (c *pairView) groups(by By) (list []change, t *table, of []int32, err error) {
	if !by.partsSamples() {
		t = imageTable(c.m.Profile)
		if by == Source {
			t = fileTable(c.m.Profile)
		}
		list, err = c.changes(t, everyThread)
		return list, t, nil, err
	}
	t, of = threadTable(c.m.Profile, by)
	rows := difference.Rows{N: len(t.rows), Of: func(thread, _ int32, add func(int32)) { add(of[thread]) }}
	lists, err := c.m.Changes(c.number, rows)
	if err != nil {
		return nil, nil, nil, err
	}
	for row, x := range lists[0] {
		if x.Samples != [2]uint64{} {
			list = append(list, change{int32(row), x, x})
		}
	}
	c.sort(list, func(row int32) string { return t.rows[row].name })
	return list, t, of, nil
}

func everyThread(int32) bool { return true }

// threadTable has a row for each name of threads, or of processes: their numbers say nothing in another
// recording. It returns the row of each thread.
func threadTable(p *profile.Profile, by By) (t *table, of []int32) {
	t = &table{what: by.String()}
	var names profile.StringTable
	for _, thread := range p.Threads {
		name := thread.Comm
		if by == Process {
			name = thread.Program
		}
		of = append(of, names.Number(name))
	}
	for _, name := range names.List {
		t.rows = append(t.rows, label{name: name})
	}
	return t, of
}
