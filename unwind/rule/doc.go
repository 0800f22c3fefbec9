// Package rule has the rules by which a walk goes from a frame to its caller: rows of call
// frame information (CFI, DWARF 5 § 6.4.1) in four bytes each, for the rows that compilers
// emit on x86-64, and the cache that keeps them by file offset.
//
// Rules come from CFI ([Compile]), from reading machine code, from Go's function table and from what
// runtimes say about the code that they generate. A rule is a value, without memory of its own.
package rule
