// Command speed measures what unspool's walks take, from the loop over stacks
// that lie in memory to a recording of the whole system.
//
// The tables go to standard output in Markdown, progress to standard error.
// bench/README.md says what is in them.
package main
