// Package image keeps the files that processes map, and their rules. It implements the interfaces of package module,
// whose comments say what the methods do that the walk calls. An [Image] is one ELF file, however many
// processes map it; it keeps the rules that were needed, by offset in the file, four bytes each. A [Store]
// finds the file behind a mapping, and determines which image it is: by build ID, else by device, inode and
// times of change.
//
// Files are looked for through /proc on a running system, and for a recording below --symfs, in
// perf's build-ID cache and at their paths, where only what is proven to be the mapped file is
// used; see [Offline]. The vDSO comes from memory, .debug_frame from separate debug files.
//
// A rule comes from Go's function table (package gotab), else from CFI (package dwarfcfi), else
// from reading the code (package asm). The tables are read into memory of our own, within bounds.
//
// A store and its images belong to one goroutine at a time. It does nothing that can block: files are opened,
// read and closed on other goroutines, for which it waits as long as [Config] lets it. A file that has not
// come by then is an image without rules for now; a later look-up may find it. What is passed to those
// goroutines and back is not changed while they have it. A file stays open until [Store.Forget], or until too
// many are open: then it is opened again when it is needed.
package image
