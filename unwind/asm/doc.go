// Package asm finds rules where there is no call frame information (CFI), by reading x86-64
// machine code: hand-written assembly, C libraries that were built without unwind tables, PLT
// entries, and code that was generated at run time.
//
// A [Code] answers for an ELF image, a [Window] for code in the memory of a process. Both follow
// what instructions do to SP and BP; what they do not understand has no rule. Instructions are
// those of the Intel SDM, volume 2; what calls keep is in the System V ABI, AMD64 supplement,
// § 3.2.1. Rules are guesses in the sense of package rule: what uses them checks where they lead.
//
// The caller owns the reader that it gives to [New], and keeps it open. Neither type may be used
// by two goroutines at a time.
package asm
