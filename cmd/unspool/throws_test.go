package main

import (
	"slices"
	"testing"
)

// TestExceptionsUnderWay records a program that throws exceptions all the time. No function of its chain is
// left out: while the registers of the frame that handles an exception are written over those of the one that
// threw it, either the caller is the handling frame, or it is not known.
func TestExceptionsUnderWay(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, flag := range []string{"-fomit-frame-pointer", "-fno-omit-frame-pointer"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			r := record(t, "-F", "4999", "--", buildCase(t, "throws.cc", flag), "3")
			r.whole(t)
			callers := map[string][]string{
				"outer": {"main"}, "left": {"outer"}, "deep": {"left", "deep"}, "thrower": {"deep"},
				"__cxa_throw": {"thrower"}, "guard::~guard": {"left"}, "_Unwind_Resume": {"left"},
				"_Unwind_RaiseException": {"__cxa_throw", "left"}, // left while the exception is handled there
			}
			p := ownProfile(t, r.path)
			thrown := 0
			for _, s := range p.Samples {
				names := userStack(p, s.Node) // from the leaf
				if slices.Contains(names, "_Unwind_RaiseException") || slices.Contains(names, "_Unwind_Resume") {
					thrown += int(s.Count)
				}
				for i := range len(names) - 1 {
					ok := callers[names[i]] == nil || slices.Contains(callers[names[i]], names[i+1])
					if names[i] == "_Unwind_Resume" {
						ok = ok || names[i+1] == "outer"
					}
					if !ok || names[i] == "thrower" && countOf(names, "deep") != 7 {
						t.Errorf("%d samples: %q", s.Count, names)
						break
					}
				}
			}
			if thrown < enough {
				t.Errorf("%d samples while something is thrown", thrown)
			}
			for why, n := range r.stats.Unwind.Ended {
				if flag == "-fomit-frame-pointer" && n > 0 && why != "root" && why != "dump_too_short" {
					t.Errorf("%d stacks ended with %s", n, why)
				}
			}
		})
	}
}

// countOf is how often a name is among others.
func countOf(names []string, name string) (n int) {
	for _, have := range names {
		if have == name {
			n++
		}
	}
	return n
}
