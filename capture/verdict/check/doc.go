// Package check checks the stacks of a recording against the code: that each return address follows a call,
// and that a direct call can have led to the function of the callee. It does not know how a stack was
// unwound, except for the source of each frame that the walk tells.
//
// An edge is a pair of frames that follow each other: a caller's return address, and its callee's PC. It is
// judged by the instructions of the file that was mapped (Intel SDM, volume 2):
//
//   - A return address that follows no call is wrong.
//   - A direct call names its target. The callee's function must be that one, or one to which the target
//     leads without a call: by a jump (a tail call, a part that the compiler split off), by falling through,
//     or through the procedure linkage table to a function that an image of the process defines by that name.
//   - If the path from the target goes through an indirect jump that may leave the function, or through code
//     whose end is not known, the edge is undecided: counted, but neither right nor wrong.
//   - An indirect call may lead anywhere.
//   - Code that no file holds cannot be read.
//
// A frame that was not called by the next outer one is an exception of a known kind: see [Exception]. The
// extents of functions are those in unwind tables and symbols.
package check
