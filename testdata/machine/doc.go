// Package machine simulates a machine that is recorded: CPUs, processes with threads and real stacks, /proc, files,
// the kernel's rings, and what goes wrong with all of these. The session of package session runs on it as on a real
// one, and every sample that it hands on is held against the stack that the thread had.
//
// Everything is drawn from one number, the seed, and time is simulated, so a failure is a number that anybody can run
// again. A [Plan] says what is drawn: it is text, which stays the same when the way of drawing changes.
//
// Data flows so:
//
//	Plan -> Machine -> rings -> perfring.Source -> session.Session -> judge
//	                   |  stacks -> rest.Reader -> rest.Stacks ^
//	                   tape -> perf.data -> recorded.Convert -> judge
//
// The session asks the machine for files and for /proc by [process.Access], as it asks a real one: the machine itself,
// or the product's [opener.Client], whose requests a server of the machine answers from the wire.
//
// To add a kind of fault, add its name to [Faults], and ask Machine.happens at the place where it happens. TestSimulate
// fails if it never does. A fault that keeps no stack from being complete is in complete, too.
package machine
