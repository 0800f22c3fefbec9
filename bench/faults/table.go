package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// A column of the table is what became of the faults in one lane.
type column struct {
	title, file string
	verdicts    map[string]*verdict
}

// writeTable writes the faults, and what became of them, in Markdown.
func writeTable(output string, faults []*fault, columns []column) error {
	var b strings.Builder
	for i := range columns {
		var err error
		if columns[i].verdicts, err = readVerdicts(columns[i].file); err != nil {
			return err
		}
	}
	columns = slices.DeleteFunc(columns, func(c column) bool { return len(c.verdicts) == 0 })
	fmt.Fprintf(&b, explanation, len(faults))
	kinds := make(map[string]int)
	for _, f := range faults {
		kinds[f.kind]++
	}
	b.WriteString("\n| kind | what is planted | faults |\n|---|---|---:|\n")
	for _, k := range explained {
		fmt.Fprintf(&b, "| %s | %s | %d |\n", k.kind, k.what, kinds[k.kind])
	}
	b.WriteString("\n| tests | noticed | by a hang | not noticed | changes nothing | not finished | " +
		"not reached, or gone |\n" +
		"|---|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range columns {
		n := make(map[string]int)
		for _, f := range faults {
			if v := c.verdicts[f.key()]; v != nil {
				n[v.outcome]++
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d |\n", c.title, n[noticed]+n[hang], n[hang], n[unnoticed],
			n[same], n[unfinished], n[unreached]+n[gone]+n[broken])
	}
	oldTests, newTests := columns[:1], columns[1:]
	writeList(&b, "Not noticed by the old tests", faults, func(f *fault) bool {
		return known(f, oldTests) && !notices(f, oldTests)
	})
	writeList(&b, "Noticed by the old tests, and not by the new ones", faults, func(f *fault) bool {
		return notices(f, oldTests) && known(f, newTests) && !notices(f, newTests)
	})
	b.WriteString("\n## All\n\n| | where | what | kind |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.title)
	}
	b.WriteString("\n|---:|---|---|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, f := range faults {
		file := f.file
		if at, err := f.locate("."); err == nil {
			file = at.file
		}
		fmt.Fprintf(&b, "| %d | `%s`, `%s` | %s | %s |", f.id, file, f.function,
			strings.ReplaceAll(change(f), "|", "\\|"), f.kind)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", cell(c.verdicts[f.key()]))
		}
		b.WriteString("\n")
	}
	return os.WriteFile(output, []byte(b.String()), 0o666)
}

// writeList lists some of the faults under a heading, if there are any.
func writeList(b *strings.Builder, heading string, faults []*fault, is func(*fault) bool) {
	faults = slices.DeleteFunc(slices.Clone(faults), func(f *fault) bool { return !is(f) })
	if len(faults) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", heading)
	for _, f := range faults {
		fmt.Fprintf(b, "- %d: `%s`, `%s`, %s\n", f.id, f.file, f.function, change(f))
	}
}

// known reports whether a fault has been tried in any of the lanes.
func known(f *fault, columns []column) bool {
	return slices.ContainsFunc(columns, func(c column) bool { return c.verdicts[f.key()] != nil })
}

// notices reports whether tests of any of the lanes notice a fault.
func notices(f *fault, columns []column) bool {
	return slices.ContainsFunc(columns, func(c column) bool {
		v := c.verdicts[f.key()]
		return v != nil && (v.outcome == noticed || v.outcome == hang)
	})
}

// change is what a fault changes.
func change(f *fault) string {
	if f.kind == "drop" {
		return fmt.Sprintf("without `%s`", f.before)
	}
	return fmt.Sprintf("`%s` → `%s`", f.before, f.after)
}

func cell(v *verdict) string {
	if v == nil {
		return ""
	}
	by := fmt.Sprintf("`%s` %s", v.pkg, v.test)
	switch v.outcome {
	case noticed:
		return by
	case hang:
		return by + ", which hangs"
	case unnoticed:
		return "**no**"
	case same:
		return "changes nothing: " + v.test
	case unfinished:
		return fmt.Sprintf("**not yet**, %d tests are left", v.left)
	}
	return v.outcome
}

var explained = []struct{ kind, what string }{
	{"bound", "a number in an index, the bounds of a slice or a comparison is one larger"},
	{"compare", "`<` and `<=`, `>` and `>=`, `==` and `!=` are exchanged"},
	{"drop", "a call whose result is not used is left out"},
	{"logic", "`&&` and `||` are exchanged"},
	{"negate", "a condition is turned around"},
	{"return", "a bool is returned that is constant, or the other one"},
	{"sum", "`+` and `-` are exchanged"},
	{"swap", "two arguments of a call are exchanged"},
}

const explanation = "# Faults\n\n" +
	"Made by `go run ./bench/faults table`. %d faults are planted in the product, one at a time, in all " +
	"packages but\nsmall ones: [the list](faults/faults.txt). Each is in a line that tests reach, " +
	"and the tests that reach it are\nrun until one fails. The old tests, those of 04caf4e, were asked about the " +
	"first 20 only: what the new ones notice\ncannot have been lost.\nFaults that are " +
	"gone were noticed, or changed nothing, as long as their code was there.\n"
