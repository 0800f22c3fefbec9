// Package firefox writes a profile for Firefox Profiler (profiler.firefox.com, samply load, profiler-cli): in
// its processed format, version 66, as gzip'd JSON. The format is described in
// docs-developer/CHANGELOG-formats.md and src/types/profile.ts of github.com/firefox-devtools/profiler.
//
// A thread of the profile is a thread there, in the process of its PID. One that renamed itself or called
// exec is several: that with most samples has the TID as its own, the others have it with a number behind it,
// "4711.1".
//
// The samples of the first event that has any are the samples there, each of weight 1. Those of other events
// are markers with a stack, named after the event, as samply shows them. If the event is a clock, the time
// that each sample stands for is its thread's CPU time there.
//
// A sample there lasts until the next one. So that a thread does not seem to run where nothing was sampled,
// such a gap begins with a sample of weight 0 that has no stack.
//
// Lost samples and throttling concern CPUs, not threads: they are markers of a thread of their own, "[gaps]".
package firefox
