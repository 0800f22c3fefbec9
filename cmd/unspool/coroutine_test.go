package main

import (
	"slices"
	"strings"
	"testing"

	"unspool/capture/profile"
	"unspool/testdata/programs"
)

// TestCoroutinesAreComplete records a coroutine: its first function has no
// caller, so its stack is complete with the code that ends it.
func TestCoroutinesAreComplete(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, flags := range [][]string{nil, {"-static"}, {"-fno-asynchronous-unwind-tables"}} {
		t.Run(strings.Join(append(flags, "program"), " "), func(t *testing.T) {
			t.Parallel()
			for _, how := range [][]string{nil, {"--strict"}} {
				if how != nil && slices.Contains(flags, "-fno-asynchronous-unwind-tables") {
					continue // which it does not guess
				}
				proc := programs.StartCounted(t, programs.Build(t, "coroutine", flags...), counted)
				r := recordCounted(t, proc, how...)
				matchCounted(t, r, proc.Chain, programs.Program{Name: "coroutine"})
				// A sample at the program's end may be in code without unwind tables.
				own := ownProfile(t, r.path)
				for _, s := range own.Samples {
					if userStack(own, s.Node)[0] == proc.Chain.Leaf() && s.End != profile.Complete {
						t.Errorf("%d samples, ended %v: %s", s.Count, s.End, describe(own, s.Node))
					}
				}
			}
		})
	}
}
