// Command stacks records real programs and says how many of their stacks reach
// the root, unwound by unspool and by perf script from the same samples.
//
// Each program runs a workload of a few seconds under
//
//	perf record --call-graph dwarf,32768
//
// which keeps the registers and the raw stack of every sample in a temporary
// file. unspool's session unwinds that file as it would unwind the ring, and
// perf script unwinds it for as long as -perf-limit allows. Both are judged by
// the samples whose copy holds the whole stack; perf script by those among
// them that it got to.
//
// A stack of perf's counts as complete when its outermost frame is one at which
// a complete stack of unspool's ends. This needs no symbols, which
// stripped programs do not have, and does not ask that the frames between are
// right.
//
// The table goes to standard output in Markdown, progress to standard error.
package main
