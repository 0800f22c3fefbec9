// Package generators knows the processes that were sampled in code that they have generated. It reads their perf maps
// while they run, beside the goroutine that drains the rings.
package generators
