// Package counts is what is counted of a recording, and how it is said: as JSON, and as a summary with advice.
// [Stats] are numbers, [Trouble] says where stacks ended before their root, and why. A sample is counted when
// nothing changes it any more: [Stats.Walked].
package counts
