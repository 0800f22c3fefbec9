package main

import (
	"strings"
	"testing"

	"unspool/testdata/programs"
)

// TestAdviceIsNotGivenWhereItCannotHelp records stacks whose callers are on another stack than the one that was
// copied: no larger copy has them, so none is advised, whether the copy was as large as asked for or not. Of a stack
// that is deeper than the copy, one is.
func TestAdviceIsNotGivenWhereItCannotHelp(t *testing.T) {
	t.Parallel()
	needRoot(t)
	segments := buildCase(t, "segments.c")
	for _, c := range []struct {
		name      string
		program   string
		args      []string
		options   []string
		elsewhere bool
	}{
		{"another segment of a split stack", segments, nil, []string{"--stack-size", "8192"}, true},
		{"another segment, and the copy ends early", segments, nil, nil, true},
		{"strict", segments, nil, []string{"--stack-size", "8192", "--strict"}, true},
		{"what a handler on its own stack has interrupted", programs.Build(t, "signal"), []string{"other"},
			[]string{"--stack-size", "8192"}, true},
		{"deeper than the copy", programs.Build(t, "deep"), nil, []string{"--stack-size", "8192"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			proc := programs.StartCounted(t, c.program, counted, c.args...)
			r := recordCounted(t, proc, append(c.options, "--no-join")...)
			ended, advised := r.stats.Unwind.Ended, strings.Contains(r.stderr, "--stack-size")
			reason, other := "not_copied", "dump_too_short"
			if !c.elsewhere {
				reason, other = other, reason
			}
			if ended[reason] < counted || ended[other] > 0 || advised == c.elsewhere {
				t.Errorf("ended: %v\n%s", ended, r.stderr)
			}
		})
	}
}
