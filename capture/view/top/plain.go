package top

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// plainColumns is how wide the lines of plain tables may be: wider than any name, as names in a pipe are not cut.
// plainRows is how many functions they show.
const (
	plainColumns = 1 << 20
	plainRows    = 20
)

// writePlain writes a snapshot as text: a line that sums it up, the table of functions, an empty line.
func writePlain(to io.Writer, n *snapshot, at time.Time) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", at.Format(time.RFC3339), n.summary())
	rows := n.sorted(bySelf)
	rows = rows[:min(len(rows), plainRows)]
	w := n.widths(rows, plainColumns)
	fmt.Fprintln(&b, strings.TrimRight(w.titles(), " "))
	for _, i := range rows {
		fmt.Fprintln(&b, palette(false).tableLine(n, i, w))
	}
	_, err := io.WriteString(to, b.String()+"\n")
	return err
}
