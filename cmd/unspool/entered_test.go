package main

import (
	"strconv"
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
			proc := programs.Start(t, program, 20, where)
			matchLeaves(t, recordEnough(t, "-p", strconv.Itoa(proc.Process.Pid)), proc.Chain)
		})
	}
}
