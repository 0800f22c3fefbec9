package capture

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"unspool/capture/kallsyms"
	"unspool/perfring"
	"unspool/unwind"

	"golang.org/x/sys/unix"
)

// execve recognises samples that were taken while a task executes another
// program. load_elf_binary (fs/binfmt_elf.c) replaces the memory early on and
// the registers last: in between, a sample has the registers of the old program
// and whatever the new one has at its SP: nothing, where addresses are
// randomized; otherwise a stack that these registers have nothing to do with.
type execve struct {
	loaders []kernelRange // load_elf_binary, and the one for 32-bit programs

	// A symbol of the recorded kernel and its address, until somebody asks: to read
	// the kernel's symbols takes as long as to convert thousands of samples.
	ref     string
	refAddr uint64
}

// A kernelRange is the code of a kernel function.
type kernelRange struct{ start, end uint64 }

// readExecve returns an execve that knows the running kernel. Without its
// symbols nothing is recognised.
func readExecve() execve {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return execve{}
	}
	defer f.Close()
	return execve{loaders: findLoaders(f)}
}

// identify reads the symbols of the kernel of a recording, which are those of the running
// one if that has the symbol ref at the same address; otherwise nothing is recognised.
func (e *execve) identify() {
	ref := e.ref
	e.ref, e.loaders = "", nil
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return
	}
	defer f.Close()
	const near = 64 << 10 // _text and _stext are among the first symbols
	begin := make([]byte, near)
	n, _ := io.ReadFull(f, begin)
	line := fmt.Sprintf("%016x T %s\n", e.refAddr, ref)
	if e.refAddr != 0 && bytes.Contains(begin[:n], []byte(line)) {
		e.loaders = findLoaders(io.MultiReader(bytes.NewReader(begin[:n]), f))
	}
}

// loading says whether a sample was taken in load_elf_binary.
func (e *execve) loading(sm *perfring.Sample) bool {
	if sm.CPUMode() != unix.PERF_RECORD_MISC_KERNEL {
		return false
	}
	if e.ref != "" {
		e.identify()
	}
	for i := range sm.Callchain.Len() {
		// A return address may be the end of the function's code.
		for ip, l := sm.Callchain.At(i), 0; l < len(e.loaders); l++ {
			if ip > e.loaders[l].start && ip <= e.loaders[l].end {
				return true
			}
		}
	}
	return false
}

// findLoaders reads the kernel's symbols, which are in order of address. Whom
// kptr_restrict keeps out reads zeros, and gets none. There are at most two, in the
// first half of the symbols, and the kernel makes each line anew: so no more is read.
func findLoaders(list io.Reader) (found []kernelRange) {
	symbols := kallsyms.NewReader(list)
	var start uint64 // of one whose end is not known yet
	for len(found) < 2 && symbols.Next() {
		loader := len(symbols.Module) == 0 && string(symbols.Name) == "load_elf_binary"
		if start == 0 && !loader {
			continue
		}
		addr, err := symbols.Address()
		if err != nil {
			return found
		}
		if start != 0 && addr > start {
			found = append(found, kernelRange{start, addr})
			start = 0
		}
		if loader {
			start = addr
		}
	}
	return found
}

// isStack says whether a walk shows that the registers belong to the stack: those
// of the old program do until its memory is replaced, and those of the new one
// as soon as they are set. A stack of another program has no return address at
// SP, or it leads nowhere.
func isStack(res *unwind.Result) bool {
	switch res.End {
	case unwind.Root:
		return true
	case unwind.DumpTooShort, unwind.DepthLimit:
		return len(res.IPs) > 1
	}
	return false
}
