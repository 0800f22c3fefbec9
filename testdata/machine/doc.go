// Package machine simulates a machine that is recorded: CPUs, processes with threads and real stacks, /proc, files,
// the kernel's rings, and what goes wrong with all of these. The session of package capture runs on it as on a real
// one, and every sample that it hands on is held against the stack that the thread had.
//
// Everything is drawn from one number, the seed, and time is simulated, so a failure is a number that anybody can run
// again. A [Plan] says what is drawn: it is text, which stays the same when the way of drawing changes.
//
//	plan ──▶ world (processes, threads, files) ──▶ rings ──▶ perfring.Source ──▶ capture.Session ──▶ judge
//	          └──────── process.Access ◀──────────────────────────────────────────┘
//
// To add a kind of fault: a name in faults.go, the place where it happens (ask m.happens), and a test that counts it.
package machine
