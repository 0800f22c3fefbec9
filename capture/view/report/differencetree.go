package report

import (
	"cmp"
	"fmt"
	"slices"

	"unspool/capture/output/human"
	"unspool/capture/profile/difference"
)

// differentTree prints the tree of calls as far as it has changed.
func (out *printer) differentTree(c *pairView) error {
	v := c.tree[0]
	list, err := c.nodes(v)
	if err != nil {
		return err
	}
	shown := c.shown(list, out.o.PercentLimit)
	out.line("")
	if !shown[0] {
		out.line("No place in the call tree " + c.beyond() + ".")
		return nil
	}
	limit := ""
	if out.o.PercentLimit > 0 {
		limit = fmt.Sprintf(" (from %.3g%% up)", out.o.PercentLimit)
	}
	titles := out.titles(c, "")
	out.line(out.bold(titles + out.cut("call tree, where it "+c.verb()+limit, out.o.Width-len(titles))))
	out.grow(v, func(node int32) (kids []int32, others int) {
		for _, kid := range c.childs[node] {
			if shown[kid] {
				kids = append(kids, kid)
			} else {
				others++
			}
		}
		slices.SortFunc(kids, func(a, b int32) int {
			return cmp.Or(cmp.Compare(c.size(&list[b]), c.size(&list[a])), cmp.Compare(a, b))
		})
		if len(kids) < 2 {
			others = 0
		}
		return kids, others
	}, func(b *branch) {
		if b.rest > 0 {
			out.line(fmt.Sprintf("%*s%s%s", len(titles), "", out.lines(b.before),
				out.dim(fmt.Sprintf("(%s)", human.Plural(uint64(b.rest), "other")))))
			return
		}
		out.line(out.columns(c, &list[b.node]) + out.lines(b.before) +
			out.name(v, b, len(titles)))
	})
	return nil
}

// shown returns which nodes of the tree are shown: those that have changed and are not below the limit in
// percent, and what leads to them.
func (c *pairView) shown(list []difference.Delta, limit float64) []bool {
	shown := make([]bool, len(list))
	for node := len(list) - 1; node > 0; node-- { // children come after their parents
		x := &list[node]
		if shown[node] = shown[node] || c.differs(x) && 100*c.largest(x) >= limit; shown[node] {
			shown[c.tree[0].nodes[node].Parent] = true
		}
	}
	return shown
}
