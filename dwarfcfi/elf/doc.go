// Package elf reads untrusted ELF files: headers, notes and build IDs, where sections and segments
// are in the file and in memory, and the contents of sections, compressed or not.
//
// It takes the place of the standard library's debug/elf, whose work and memory depend on what
// a file claims: a string for each section and symbol, and tables of any size. Here every
// count and size has a limit, and memory grows with the bytes that are really read. Bad input
// yields an error that says where it is bad, and never a panic.
//
// Addresses are those in the file: virtual addresses before any load bias. The caller owns
// the reader and what is returned; nothing is kept after a call, except where its comment says so.
//
// Specifications: System V gABI, chapters 4 and 5; Linux Standard Base Core 5.0 for what
// GNU added; the notes of GNU ld for .note.gnu.build-id.
package elf
