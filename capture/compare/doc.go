// Package compare holds two answers about the same samples against each other: the user stack as CFI unwinds
// it, and as a walk along frame pointers shows it. A recording made for it (capture.Options.Pairs) has both
// for every sample.
//
//	record or convert, with Pairs      samples, each with its pair
//	  ──► class.go                     one class for each
//	  ──► load.go                      sums by stack
//	  ──► blame.go, lint.go, …         what they say
//	  ──► text.go, json.go, page.go    for people and programs
package compare
