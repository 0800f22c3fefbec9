package report

import (
	"fmt"
	"slices"

	"unspool/capture/output/human"
)

// mostTables is how many groups have a table of their own.
const mostTables = 10

// differentGroups prints the table of groups, and tables of what has changed in those that have.
func (out *printer) differentGroups(c *pairView) error {
	list, t, of, err := c.groups(out.o.By)
	if err != nil {
		return err
	}
	out.groupChanges(c, t, list)
	if out.o.Top < 0 {
		return nil
	}
	inner, second := functionTable(c.of[0].p), "image"
	switch out.o.By {
	case Image:
		second = ""
	case Source:
		inner, second = lineTable(c.of[0].p), "function"
	}
	var rows []change
	if of == nil {
		if rows, err = c.changes(inner, everyThread); err != nil {
			return err
		}
	}
	tables := 0
	for i := range list {
		x := &list[i]
		if !c.changed(x) || 100*c.largest(&x.total) < out.o.PercentLimit || tables == mostTables {
			continue
		}
		tables++
		within := func(r change) bool { return t.row[inner.rows[r.row].frame] == x.row }
		if of != nil {
			within = func(change) bool { return true }
			if rows, err = c.changes(inner, func(thread int32) bool { return of[thread] == x.row }); err != nil {
				return err
			}
		}
		out.changeTable(c, inner, slices.DeleteFunc(slices.Clone(rows), func(r change) bool { return !within(r) }),
			human.Clean(t.rows[x.row].name), second)
	}
	return nil
}

// groupChanges prints the table of groups.
func (out *printer) groupChanges(c *pairView, t *table, list []change) {
	parts := out.o.By.partsSamples()
	titles, title := out.titles(c, ""), out.o.By.String()
	if !parts {
		titles = out.titles(c, "self") + out.totalTitle(c)
	}
	if out.o.By == Source {
		title += " file"
	}
	out.line("")
	if slices.ContainsFunc(list, func(x change) bool { return c.changed(&x) }) {
		out.single(c)
	}
	out.line(out.bold(titles + title))
	left := 0
	for i := range list {
		x := &list[i]
		if 100*c.largest(&x.total) < out.o.PercentLimit {
			left++
			continue
		}
		line := out.columns(c, &x.self)
		if !parts {
			line += out.total(c, x)
		}
		out.line(line + out.cut(human.Clean(t.rows[x.row].name), out.o.Width-len(titles)))
	}
	if left > 0 {
		out.line(out.dim(fmt.Sprintf("… and %s below %.3g%%", human.Plural(uint64(left), "other"),
			out.o.PercentLimit)))
	}
}
