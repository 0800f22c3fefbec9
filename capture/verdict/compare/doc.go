// Package compare compares two stacks of the same samples: the user stack as CFI unwinds it, and as a walk
// along frame pointers shows it. A recording made for it (live.Options.Pairs) has both for every sample;
// how it stores them is described at perfdata.Walked. What differs between two recordings says package
// difference.
//
//	record or convert, with Pairs      samples, each with its pair
//	  ──► class.go                     one class for each
//	  ──► load.go                      sums by stack
//	  ──► blame.go, lint.go, …         what follows from them
//	cost.go, price.go                  what samples cost, in a loop and in a command
//	  ──► text.go, json.go, page.go    for people and programs
package compare
