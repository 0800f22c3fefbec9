// Package report prints a profile as text for a terminal or a pipe: what was recorded, the functions that
// cost most by themselves (self) and with the functions that they call (total), and the tree of calls,
// outermost function first, pruned at a threshold. Options.By adds up by process, thread, image or source
// file instead, with the first functions or lines of each. WriteJSON writes all of it for programs;
// `unspool help json` describes the keys.
//
// WriteDifference and WriteDifferenceJSON do the same for what differs between two recordings, which package
// difference finds.
//
// Percentages are shares of all samples of the event. A function that is on a stack several times counts once
// for its total. The caller's profile is not changed, and nothing of it is kept.
package report
