package main

import (
	"slices"
	"testing"

	"unspool/testdata/programs"
)

// TestGeneratedCodeHasNoOtherCaller unwinds a recording of generated code that cannot be read any more. Its
// frame pointer leads to a function that cannot have called it, as that function directly calls another one.
func TestGeneratedCodeHasNoOtherCaller(t *testing.T) {
	t.Parallel()
	needRoot(t)
	data := perfRecord(t, programs.Faults(), buildCase(t, "stub.c"), programs.Times(counted))
	r := convert(t, data)
	stacks, samples := generatedStacks(t, r)
	for _, s := range stacks {
		if slices.Contains(s.names, "main") && !slices.Contains(s.names, "between") {
			t.Errorf("%d samples: %v", s.count, s.names)
		}
	}
	if samples != counted {
		t.Errorf("%d samples of generated code, want %d", samples, counted)
	}
}
