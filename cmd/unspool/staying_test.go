package main

import (
	"slices"
	"strconv"
	"testing"

	"unspool/testdata/programs"
)

// Counted recordings of programs that are still there when their samples are read, as stays.c is: it stops in the
// midst of its chain when it has been counted.

// recordStaying records the program of proc, which is attached to. It goes on once its samples have been read.
func recordStaying(t testing.TB, proc *programs.Process, options ...string) recording {
	t.Helper()
	s := startUnsampled(t, slices.Concat(programs.Faults(), []string{"-p", strconv.Itoa(proc.Process.Pid)}, options)...)
	s.control("enable")
	proc.Continue()
	untilStopped(t, proc.Process.Pid)
	s.drained()
	proc.Continue()
	return s.end(t)
}

// recordStayingCommand records a program from its first instruction on. It goes on once its samples have been read.
func recordStayingCommand(t testing.TB, path string, args ...string) recording {
	t.Helper()
	fifo := programs.FIFO(t)
	s := startUnsampled(t, slices.Concat(programs.Faults(), []string{"-D", "0", "--", path, programs.Times(counted),
		fifo.Name()}, args)...)
	s.goOn(t, fifo)
	return s.end(t)
}
