// Package asm finds rules where there is no call frame information (CFI), by reading x86-64
// machine code: hand-written assembly, C libraries that were built without unwind tables, PLT
// entries, and code that was generated at run time.
//
// A [Code] reads the code of an ELF image, a [Window] code in the memory of a process. Both follow
// what instructions do to SP and BP; where they do not understand an instruction, there is no rule.
// Instructions are specified in the Intel SDM, volume 2; which registers calls keep is in the System V
// ABI, AMD64 supplement, § 3.2.1. The rules are guesses in the sense of package rule: the walk checks
// where they lead.
//
// The caller owns the reader that it gives to [New], and keeps it open. Neither type may be used
// by two goroutines at a time.
package asm
