package unwind_test

import (
	"fmt"

	"unspool/unwind"
)

// The kernel's part of a sample's callchain is kept, what was unwound takes the place of its user part.
func ExampleSplice() {
	const (
		kernel = ^uint64(128 - 1) // PERF_CONTEXT_KERNEL
		user   = ^uint64(512 - 1) // PERF_CONTEXT_USER
	)
	sampled := []uint64{kernel, 0xffffffff81000010, 0xffffffff81000020, user, 0x401136}
	unwound := []uint64{0x401136, 0x401190, 0x401050}

	chain := unwind.Splice(nil, len(sampled), func(i int) uint64 { return sampled[i] }, unwound)
	for _, entry := range chain {
		switch entry {
		case kernel:
			fmt.Println("kernel")
		case user:
			fmt.Println("user")
		default:
			fmt.Printf("  %#x\n", entry)
		}
	}
	// Output:
	// kernel
	//   0xffffffff81000010
	//   0xffffffff81000020
	// user
	//   0x401136
	//   0x401190
	//   0x401050
}
