package doctor

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"unspool/capture/output/human"
)

const (
	narrowest = 60
	nameWidth = 20
	// indent of details: mark, state, name and the spaces between them.
	indent = 2 + 8 + nameWidth + 1
	// fixIndent puts a fix below the name: it needs the room.
	fixIndent = 2 + 8
)

var marks = [...]string{OK: "✓", Warning: "!", Fail: "✗"}

var colours = [...]string{OK: "\x1b[32m", Warning: "\x1b[33m", Fail: "\x1b[31m"}

const reset = "\x1b[0m"

// Print writes the checks as a table that is width columns wide, but not less than 60, each fix on a line
// of its own beneath its check, and a closing sentence. A fix is never broken: it is there to be copied,
// once.
func Print(w io.Writer, checks []Check, width int, colour bool) error {
	var b bytes.Buffer
	fixedBy := make(map[string]string) // the first check that has a fix
	for _, c := range checks {
		state := min(c.State, Fail)
		if by := fixedBy[c.Fix]; by != "" {
			c.Detail += " (same fix as for \"" + by + "\")"
			c.Fix = ""
		}
		on, off := "", ""
		if colour {
			on, off = colours[state], reset
		}
		fmt.Fprintf(&b, "%s%s %-7s%s %-*s ", on, marks[state], state, off, nameWidth, human.Clean(c.Name))
		for i, line := range human.Wrap(human.Clean(c.Detail), max(width, narrowest)-indent) {
			if i > 0 {
				b.WriteString(strings.Repeat(" ", indent))
			}
			b.WriteString(line)
			b.WriteByte('\n')
		}
		if c.Fix != "" {
			fixedBy[c.Fix] = c.Name
			fmt.Fprintf(&b, "%*sfix: %s\n", fixIndent, "", human.Clean(c.Fix))
		}
	}
	b.WriteByte('\n')
	b.WriteString(verdict(checks))
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

func verdict(checks []Check) string {
	warnings := 0
	for _, c := range checks {
		if c.State == Warning {
			warnings++
		}
	}
	ready := "Ready to record"
	if slices.ContainsFunc(checks, func(c Check) bool { return c.OwnOnly }) {
		ready = "Ready to record your own programs only"
	}
	switch {
	case !Able(checks):
		return "Recording will not work here until what is marked FAIL is fixed."
	case warnings == 0:
		return ready + "."
	}
	return fmt.Sprintf("%s; %s: see above.", ready, human.Plural(uint64(warnings), "warning"))
}
