// Package rest reads the rest of a stack, which the copy in a sample lacks, when the sample is taken.
//
// The kernel tells a thread of every sample by a signal. The thread has real-time priority and is bound to
// the CPU of the sample, so it runs next there: the sampled thread is where it was, and its stack is read as
// it was at the sample. No thread is stopped for that. Whether it is so is checked for each stack:
//   - reading it has begun very soon after the sample;
//   - from then on until it was read, the thread has not run;
//   - the beginning of the copy and its end are the same as in the process, afterwards. Where the copy is empty or
//     short, as the stack goes on in a page that was never touched, nothing was written to that page.
//
// One process reads, and another one walks over what was read. Both have a [Shared] memory for each ring.
// There, the one that walks says of threads how deep their stacks are, and the one that reads puts the
// stacks:
//
//	sample ─signal─▶ reader ─stack─▶ Shared ─▶ Stacks ─▶ session, with the sample
//	                   ▲                          │
//	                   └────── how deep ──────────┘
//
// While a goroutine of Go gets a larger stack, the stack that is sampled is that of Go's scheduler. The
// goroutine's is read instead, which takes a few reads of the runtime's memory: see [GrowthOffsets].
//
// Nothing in it is ever written to a file.
package rest
