// Package recorded unwinds the stacks of recordings that exist, such as those of perf: [Convert] writes one that has
// callchains in their place, on as many cores as it may use, and [Walk] hands the samples to a watcher.
package recorded
