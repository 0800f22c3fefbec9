// Package top shows what a recording that is being made has seen in the last seconds: a table of functions
// and a tree of calls below the programs that make them, in a terminal that is looked at and moved in by
// keys, or as one table after the other for scripts.
//
// Data flows one way: profile.Follow makes a profile of each round of the recording; a [SlidingWindow] keeps those
// of the last seconds; a snapshot is the table and the tree of what the window holds; a screen turns a snapshot,
// and what the user has asked for by keys, into lines. Shares are of all samples in the window, and names and
// colours are those of package report.
//
// Names come from the recorded system and are not trusted: none reaches the terminal that was not made safe.
package top
