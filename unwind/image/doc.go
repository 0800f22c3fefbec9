// Package image has the files that processes map and the rules of each. An [Image] is one ELF
// file, however many processes map it; it keeps the rules that were needed, by offset in the
// file, four bytes each. A [Store] finds the file behind a mapping and settles which image it
// is: by build ID, else by device, inode and times of change.
//
// Files are looked for through /proc on a running system, and for a recording below --symfs, in
// perf's build-ID cache and at their paths, where only what is proven to be the mapped file is
// used; see [Offline]. The vDSO comes from memory, .debug_frame from separate debug files.
//
// A rule comes from Go's function table (package gotab), else from CFI (package dwarfcfi), else
// from reading the code (package asm). The tables are read in a mapping of the file, which may be
// cut short meanwhile: whoever reads them outside of this package defers [Image.Guard].
//
// A store and its images belong to one goroutine at a time. Files stay open until [Store.Forget].
package image
