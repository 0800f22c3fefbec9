package main

import (
	"testing"

	"unspool/testdata/programs"
)

// TestFramePointersPassOverACaller records a program in which BP leads past the caller of the sampled
// function, which has not made its frame yet.
func TestFramePointersPassOverACaller(t *testing.T) {
	t.Parallel()
	needRoot(t)
	program := buildCase(t, "entered.c")
	for _, where := range []string{"first", "pushed"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			proc := programs.StartCounted(t, program, counted, where)
			matchCounted(t, recordCounted(t, proc), proc.Chain, programs.Program{Name: "entered"})
		})
	}
}
