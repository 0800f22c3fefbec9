package section

import (
	"fmt"
	"strings"
)

// A Table is a table in Markdown. The first columns are texts, and the others numbers.
type Table struct {
	head  []string
	texts int
	rows  [][]string
}

// NewTable returns a table without rows, of which the first column is a text.
func NewTable(head ...string) *Table { return NewTableOf(1, head...) }

// NewTableOf returns a table without rows, of which so many columns are texts.
func NewTableOf(texts int, head ...string) *Table { return &Table{head: head, texts: texts} }

// Add adds a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// String is the table as a text that ends with a line feed.
func (t *Table) String() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	b.WriteString("|" + strings.Repeat("---|", t.texts) + strings.Repeat("---:|", len(t.head)-t.texts) + "\n")
	for _, r := range t.rows {
		line(r)
	}
	return b.String()
}
