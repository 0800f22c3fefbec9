// Package section writes tables, and replaces one section of a file of them, which several programs write.
package section

import (
	"os"
	"strings"
)

// Of returns a section of a text in Markdown, from its heading "## title" to the next heading of that level
// or a higher one, or "" if there is none.
func Of(text, title string) string {
	from, to := find(text, title)
	return text[from:to]
}

// find returns where a section begins and ends: both at the end of the text if there is none.
func find(text, title string) (from, to int) {
	heading := "## " + title + "\n"
	if from = strings.Index("\n"+text, "\n"+heading); from < 0 {
		return len(text), len(text)
	}
	rest := text[from+len(heading):]
	to = len(text)
	for _, next := range []string{"\n## ", "\n# "} {
		if at := strings.Index(rest, next); at >= 0 {
			to = min(to, from+len(heading)+at+1)
		}
	}
	return from, to
}

// Replace puts a section, with its heading, into the file at path: in the place of the old one, or at the
// end.
func Replace(path, title, text string) error {
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	from, to := find(string(old), title)
	return os.WriteFile(path, []byte(Join(string(old[:from]), text, string(old[to:]))), 0o644)
}

// Join puts parts together, with an empty line between two of them.
func Join(parts ...string) string {
	var all []string
	for _, p := range parts {
		if p = strings.Trim(p, "\n"); p != "" {
			all = append(all, p)
		}
	}
	return strings.Join(all, "\n\n") + "\n"
}
