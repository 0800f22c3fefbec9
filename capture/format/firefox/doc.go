// Package firefox writes a profile for Firefox Profiler (profiler.firefox.com, samply load, profiler-cli): in
// its processed format, version 66, as gzip'd JSON. The format is described in
// docs-developer/CHANGELOG-formats.md and src/types/profile.ts of github.com/firefox-devtools/profiler.
//
// A thread of the profile is a thread in the file, in the process of its PID. A thread that renamed itself
// or called exec is several threads: the one with most samples has the TID, the others have the TID with a
// number behind it, "4711.1".
//
// The samples of the first event that has any are the samples in the file, each of weight 1. Samples of other
// events are markers with a stack, named after the event, as samply writes them. If the event is a clock, the
// period of each sample is written as CPU time of its thread.
//
// A sample in the file lasts until the next one. So that a thread does not seem to run while it was not
// sampled, such a gap begins with a sample of weight 0 without a stack.
//
// Lost samples and throttling concern CPUs, not threads: they are markers of a thread of their own, "[gaps]".
//
// Write leaves the caller's profile and timeline as they are, and keeps neither.
package firefox
