// Package programs builds and starts the small C and C++ programs that tests
// sample and unwind.
//
// Most of them know their own call chain: each prints one line that names the
// functions from the root down to the leaf, and then stays in that leaf, so that
// any stack taken from it can be compared with the line ([Chain.Match]). They cover
// what an unwinder meets in practice: callbacks out of libc, signal frames,
// realigned and variable frames, calls that never return, exceptions under way,
// coroutines, PLT entries, the vDSO. The others (secret, burn, nocfi, threads, storm)
// are workloads for whole recordings; each says in its first lines what it does.
//
// The sources are in src, one idea a file, and are part of this package, so that
// a test in any directory can build them.
package programs
