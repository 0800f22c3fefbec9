// Package pprof writes profiles for go tool pprof and other readers of its format (proto/profile.proto of
// github.com/google/pprof), with pprof's own package.
//
// A location is an address in an image, with a line for each function inlined there. Different images may
// have the same virtual addresses; so each image gets a place of its own in an artificial address space,
// whose mappings lead back to the image as those of a process do (see addresses.go). So pprof can
// disassemble and list the source if it finds the file. Code without an address, such as code generated at
// run time, has a name only.
//
// Every sample is counted in "samples". If only one event was sampled and it is a clock, "cpu" is its time.
// If several were sampled, each has a count under its own name, and clocks also have a time,
// "cpu-clock-time". The labels of samples are pid, tid, comm and, if the profile has them, cpu and unwind:
// why the user part of the stack ends.
//
// Convert and Write do not change the caller's profile. The converted one shares only strings with it, no
// slices.
package pprof
