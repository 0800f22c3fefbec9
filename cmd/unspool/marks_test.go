package main

import (
	"os"
	"testing"
)

// Of the whole machine, a test counts what its own programs do only: they call the system in a way that hardly any
// other program does, and no other test.

// A mark is the name of such a call.
type mark string

const (
	namespaceMark  mark = "sched_get_priority_max"
	hotplugMark    mark = "sched_get_priority_min"
	stormMark      mark = "sched_rr_get_interval"
	accountingMark mark = "timer_getoverrun"
)

// options are those that sample each such call.
func (m mark) options() []string { return []string{"-e", "syscalls:sys_enter_" + string(m), "-c", "1"} }

// build builds the program that calls so, as often as its argument says, and skips the test where calls of the
// system cannot be sampled.
func (m mark) build(t testing.TB) string {
	t.Helper()
	needRoot(t)
	if _, err := os.Stat("/sys/kernel/tracing/events/syscalls/sys_enter_" + string(m)); err != nil {
		t.Skip(err)
	}
	return buildCase(t, "marks.c", "-DCALL=SYS_"+string(m))
}
