package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// leastAddresses is how much address space unspool needs: most of it is reserved by the Go runtime, the rest
// is for rings and thread stacks.
const leastAddresses = 3 << 29

// enoughAddresses returns an error if the limit on address space is too low: later the Go runtime would end
// the process with a dump of its state. With a much lower limit the runtime itself cannot start.
func enoughAddresses() error {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &limit) != nil || limit.Cur >= leastAddresses {
		return nil
	}
	return fmt.Errorf("the address space is limited to %d MiB (ulimit -v), and at least %d MiB are needed",
		limit.Cur>>20, leastAddresses>>20)
}
