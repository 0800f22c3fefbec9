package unwind_test

import (
	"encoding/binary"
	"fmt"

	"unspool/unwind"
	"unspool/unwind/image"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// A sample of a process that runs code which it has generated, and which has frame pointers, as of nearly
// all runtimes. Code of files is unwound by their CFI: then [vmas.Map] has the path, and the image store
// reads the file.
func ExampleUnwinder() {
	processes := vmas.NewTable("/proc")
	processes.Mmap(42, vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte("//anon")})

	// As in the sample: BP, SP and IP, and the copy of the stack from SP on.
	const mask, sp = 1<<6 | 1<<7 | 1<<8, 0x7ffc_0000 // bits of PERF_REG_X86_BP, _SP and _IP
	var words [9]uint64
	words[2], words[3] = sp+8*6, 0x1800 // the caller's BP, and where the leaf returns to
	words[6], words[7] = sp+8*20, 0x1900
	var regs unwind.Regs
	regs.SetPerf(rule.AMD64, mask, bytesOf(sp+8*2, sp, 0x1234))
	data := bytesOf(words[:]...)
	stack := unwind.Stack{Base: sp, Data: data, Asked: uint64(len(data)), Thread: 42}

	u := unwind.NewUnwinder(image.NewStore("/proc")) // for all samples
	walked := u.Unwind(processes.Space(42), &regs, &stack)
	for i, ip := range walked.IPs {
		fmt.Printf("%#x by %v\n", ip, walked.Frames[i].Source)
	}
	fmt.Println(walked.End)
	// Output:
	// 0x1234 by sample
	// 0x1800 by frame_pointer
	// 0x1900 by frame_pointer
	// dump_too_short
}

func bytesOf(words ...uint64) (b []byte) {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

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
