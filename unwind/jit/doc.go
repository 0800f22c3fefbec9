// Package jit finds out about code that was generated at run time, which lies in memory that no ELF file is
// behind. What is known of it belongs to the process, and does not last: code
// is moved, dropped and replaced, and no record tells. In order of what it is
// worth:
//
//   - the runtime has written CFI into a jitdump;
//   - the code itself, read from the process: how it leads to a ret near by;
//   - frame pointers, which most runtimes keep or can be told to keep;
//   - the frame of the interpreter that the code runs in, as LuaJIT's does.
//
// All but the first are guesses, and strict walks go without.
//
// What is known hangs on the address space ([vmas.Space]) and is dropped with it. A [Reader], and
// what it returns, belong to one goroutine at a time. Jitdumps are specified in
// tools/perf/Documentation/jitdump-specification.txt of the kernel's sources.
package jit
