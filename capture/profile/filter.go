package profile

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Filter is which samples are loaded. One has to pass every field that is set; all pass the zero value.
type Filter struct {
	// names, or patterns in which * stands for any text, ? for a character, [a-z] for one of these
	Comms []string
	PIDs  []uint32
	TIDs  []uint32
	Times Times
}

// Check reports the first pattern that is malformed.
func (f *Filter) Check() error {
	for _, c := range f.Comms {
		if _, err := path.Match(c, ""); err != nil {
			return fmt.Errorf("%q is no pattern: a [ is not closed, or there is nothing behind a \\", c)
		}
	}
	return nil
}

// Passes reports whether a thread's samples count.
func (f *Filter) Passes(t Thread) bool {
	return (len(f.PIDs) == 0 || slices.Contains(f.PIDs, t.PID)) &&
		(len(f.TIDs) == 0 || slices.Contains(f.TIDs, t.TID)) &&
		(len(f.Comms) == 0 || slices.ContainsFunc(f.Comms, func(c string) bool { return commMatches(c, t.Comm) }))
}

// commMatches compares a name with a pattern. A slash, as in kworker/0:1, is a character like any other.
func commMatches(pattern, comm string) bool {
	if pattern == comm {
		return true
	}
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(comm, "/", "\x00"))
	return ok && err == nil
}

// String describes the filter, "" for all samples: "comm cc1, sh*; pid 12; 10 s to
// 20 s".
func (f *Filter) String() string {
	var parts []string
	add := func(what string, values []string) {
		if len(values) > 0 {
			parts = append(parts, what+" "+strings.Join(values, ", "))
		}
	}
	numbers := func(ids []uint32) (s []string) {
		for _, id := range ids {
			s = append(s, fmt.Sprint(id))
		}
		return s
	}
	add("comm", f.Comms)
	add("pid", numbers(f.PIDs))
	add("tid", numbers(f.TIDs))
	if f.Times != (Times{}) {
		parts = append(parts, f.Times.String())
	}
	return strings.Join(parts, "; ")
}
