// Package sys makes the system calls that golang.org/x/sys/unix does not make, or makes in a way that costs too much.
// All other packages call that one.
//
// The calls in raw.go do not block, and Go's scheduler is not told of them. An ordinary system call tells it, which
// wakes its monitor thread: that looks every 20 µs whether the call has returned, and while calls follow one another
// within milliseconds, it never sleeps for long. In a recording at 999 Hz it took 10 to 16 % of the CPU time, and with
// calls of this package the recording takes 16 to 19 % less. While a raw call runs, no other goroutine gets the
// processor of this one, so calls that may wait for long say here why their callers want them to be raw.
//
// Nothing here allocates, and raw calls need nothing from the runtime: package limits makes them while that dies.
package sys
