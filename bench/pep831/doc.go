// Command pep831 measures what PEP 831 says of unwinding by DWARF: the time to walk 64 frames, the size of recordings,
// stacks that are cut off, high rates, and the time until there is a report.
//
// Two programs do a fixed amount of work: one in C with frame pointers, 64 frames deep, and Debian's python3, which has
// none. They are recorded by perf and by unspool. Times are CPU time where that is possible, as other programs run on
// most machines.
//
// Each experiment is a section of the file that -o names; what else is in the file stays.
package main
