// Package jit finds rules for code that was generated at run time, in memory that is not mapped from an ELF
// file. What is known of it belongs to the process and does not last: code is moved, dropped and replaced,
// and no record tells that. The sources, best first:
//
//   - the runtime has written CFI into a jitdump;
//   - the code itself, read from the process: how it leads to a ret instruction nearby;
//   - frame pointers, which most runtimes keep or can be told to keep;
//   - the code again, past calls and through code that it jumps to;
//   - the frame of the interpreter in which the code runs, as that of LuaJIT and PHP does.
//
// All but the first are guesses, which strict walks do not use.
//
// What is known is kept in the address space ([vmas.Space]) and dropped with it. A [Reader], and what it
// returns, belong to one goroutine at a time. Jitdumps are specified in
// tools/perf/Documentation/jitdump-specification.txt of the kernel's sources.
package jit
