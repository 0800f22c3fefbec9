// Package pprof writes profiles for go tool pprof and everything else that reads its format (profile.proto),
// through pprof's own package.
//
// A location is an address in an image, with a line for each function inlined there. Addresses of images are
// virtual addresses, and those of different images meet; so each image is put at a place of its own in an
// address space that is made up, whose mappings lead back to the image as those of a process would (see
// addresses.go): pprof disassembles and lists the source where it finds the file. Code without an address,
// such as that made at run time, has a name only.
//
// Every sample is counted in "samples"; where one event was sampled and it is a clock, "cpu" is its time.
// Where several were sampled, each has a count under its own name, and clocks a time beside it,
// "cpu-clock-time". Labels of samples are pid, tid, comm, and if the profile has them cpu, and unwind: why
// the user part of the stack ends.
package pprof
