package buildidcache

import (
	"fmt"
	"path/filepath"
	"strings"

	"unspool/capture/output/human"
)

// A Summary says what has become of the files that are not at their paths any more.
type Summary struct {
	Folder  string // the cache
	Files   int    // that it has now
	Bytes   int64  // of these, what was written
	Omitted []Omission
	Failed  bool // some of these, as they could not be written
}

// Omission is the files that were left out for one reason.
type Omission struct {
	Files int
	Why   string // "that you may not read"
	First string // the name of one of them
}

// mostReasons bounds how many reasons are told: errors may all differ.
const mostReasons = 8

// leave notes a file that is left out.
func (r *Summary) leave(name, why string) {
	for i := range r.Omitted {
		if r.Omitted[i].Why == why || i == mostReasons-1 {
			r.Omitted[i].Files++
			return
		}
	}
	r.Omitted = append(r.Omitted, Omission{1, why, filepath.Base(strings.TrimSuffix(name, gone))})
}

// String is a line for the user, "" if there is nothing to tell.
func (r *Summary) String() string {
	if r.Files == 0 && len(r.Omitted) == 0 {
		return ""
	}
	text := "files that are gone or of another root: "
	if r.Files > 0 {
		written := "there before"
		if r.Bytes > 0 {
			written = human.Bytes(uint64(r.Bytes)) + " written"
		}
		text += fmt.Sprintf("%s kept in %s for the names (%s)", human.Number(uint64(r.Files)), r.Folder, written)
	}
	for i, l := range r.Omitted {
		switch {
		case i > 0:
			text += ", "
		case r.Files > 0:
			text += "; not kept: "
		default:
			text += "not kept: "
		}
		text += fmt.Sprintf("%s %s", human.Number(uint64(l.Files)), l.Why)
		if l.First != "" {
			text += " (" + l.First
			if l.Files > 1 {
				text += " …"
			}
			text += ")"
		}
	}
	return human.Clean(text)
}
