// Package syscap writes a recording as a Sysprof capture (sysprof-capture-types.h, version 1): a header and,
// behind it, frames of the recording's processes, mappings and samples in the order of time, as Sysprof's own
// perf source writes them.
//
// A Writer is a [profile.Observer]: it writes while the recording is loaded. Its memory depends on the number
// of distinct addresses of each process, not of samples. Names come last, in the file "__symbols__" within
// the capture, so that it can be read on another machine.
//
// The format has no place for:
//   - Inlined functions. It has one name for an address, which is that of the function that the code
//     belongs to.
//   - Several functions at one address of a process, as before and after an exec. Only the first keeps the
//     address, the others have made-up ones that no process can have.
//   - Events. Where there are several, the outermost frame of a stack is the event.
//   - Weights. Every sample counts once.
//
// Sysprof 45 and later leave stacks of more than 1,024 addresses out of their call graph; they are in the
// capture nevertheless.
//
// The profile that Begin is given is read until Finish; records and samples are copied before Record
// and Sample return. What is written belongs to the caller's io.Writer, which is not closed.
package syscap
