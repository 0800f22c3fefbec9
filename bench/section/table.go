package section

import (
	"fmt"
	"strings"
)

// A Table is a table in Markdown. All columns but the first are numbers.
type Table struct {
	head []string
	rows [][]string
}

// NewTable returns a table without rows.
func NewTable(head ...string) *Table { return &Table{head: head} }

// Add adds a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// String is the table as a text that ends with a line feed.
func (t *Table) String() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	b.WriteString("|---|" + strings.Repeat("---:|", len(t.head)-1) + "\n")
	for _, r := range t.rows {
		line(r)
	}
	return b.String()
}
