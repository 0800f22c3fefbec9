package session

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"

	"unspool/capture/perfdata/kallsyms"
	"unspool/perfring"
	"unspool/unwind"

	"golang.org/x/sys/unix"
)

// execve recognises samples that were taken while a task executes another program. load_elf_binary
// (fs/binfmt_elf.c) replaces the memory early and the registers last. In between, a sample has the registers
// of the old program, and the memory of the new one at the old SP: mostly none, as addresses are randomized,
// otherwise a stack that does not belong to these registers.
//
// It replaces the memory in begin_new_exec (fs/exec.c), which lets a parent that waits in vfork go on before
// that: the memory is still the parent's then, and its stack is no longer the one that the registers belong
// to.
type execve struct {
	kernelCode

	// list is the running kernel's, open until its symbols are needed, nil otherwise: reading them takes a fifth of what
	// a short recording takes, and they are needed for samples that may be inside execve.
	list *os.File

	// ref and refAddr are a symbol of the recorded kernel and its address, until the kernel's symbols are
	// needed: reading them takes as long as converting thousands of samples.
	ref     string
	refAddr uint64
	open    func(path string) (*os.File, error) // how they are opened then
}

// kernelSymbols is held while the kernel's symbols are read for a recording: all that [Config.OpenKernel]
// opens may be one open file, with one offset.
var kernelSymbols sync.Mutex

// A kernelRange is the code of a kernel function.
type kernelRange struct{ start, end uint64 }

// A kernelCode is where functions of the kernel are; none where that is not known.
type kernelCode struct {
	loaders   []kernelRange // load_elf_binary, and the one for 32-bit programs
	replacers []kernelRange // begin_new_exec
	entries   []kernelRange // code by which the kernel is entered
}

// openExecve returns an execve for the running kernel. Without the kernel's symbols it recognises nothing.
func openExecve() execve {
	list, err := os.Open("/proc/kallsyms")
	if err != nil {
		return execve{}
	}
	return execve{list: list}
}

// read reads the symbols of the running kernel if that was not done.
func (e *execve) read() {
	if e.list != nil {
		e.kernelCode = findCode(e.list)
		e.list.Close()
		e.list = nil
	}
}

// identify reads the symbols of the running kernel for a recording, if that was made on it: if the symbol ref
// has the same address. Otherwise nothing is recognised.
func (e *execve) identify() {
	ref := e.ref
	e.ref, e.kernelCode = "", kernelCode{}
	kernelSymbols.Lock()
	defer kernelSymbols.Unlock()
	f, err := e.open("/proc/kallsyms")
	if err != nil {
		return
	}
	defer f.Close()
	const near = 64 << 10 // _text and _stext are among the first symbols
	begin := make([]byte, near)
	n, _ := io.ReadFull(f, begin)
	line := fmt.Sprintf("%016x T %s\n", e.refAddr, ref)
	if e.refAddr != 0 && bytes.Contains(begin[:n], []byte(line)) {
		e.kernelCode = findCode(io.MultiReader(bytes.NewReader(begin[:n]), f))
	}
}

// loading reports whether a sample was taken in load_elf_binary. replacing reports whether that was in
// begin_new_exec.
func (e *execve) loading(sm *perfring.Sample) (loading, replacing bool) {
	if sm.CPUMode() != unix.PERF_RECORD_MISC_KERNEL {
		return false, false
	}
	if e.ref != "" {
		e.identify()
	}
	e.read()
	for i := range sm.Callchain.Len() { // the callee comes first
		ip := sm.Callchain.At(i)
		replacing = replacing || within(e.replacers, ip)
		if within(e.loaders, ip) {
			return true, replacing
		}
	}
	return false, false
}

// unseen reports whether a sample may have been taken in load_elf_binary without showing it: because the kernel
// hides its symbols, or because the kernel's part of the callchain ends before the code by which the kernel
// is entered.
func (e *execve) unseen(sm *perfring.Sample) bool {
	if sm.CPUMode() != unix.PERF_RECORD_MISC_KERNEL || e.ref != "" {
		return false
	}
	e.read()
	if len(e.entries) == 0 {
		return len(e.loaders) == 0
	}
	first, _ := sm.UserPart()
	for i := range first {
		if within(e.entries, sm.Callchain.At(i)) {
			return false
		}
	}
	return true
}

// within reports whether an address of a callchain is in one of the ranges. A return address may be the end of a
// function's code.
func within(ranges []kernelRange, ip uint64) bool {
	for i := range ranges {
		if ip > ranges[i].start && ip <= ranges[i].end {
			return true
		}
	}
	return false
}

// findCode reads the kernel's symbols, which are in order of address, only up to the second loader, the one
// for 32-bit programs, as the kernel formats each line when it is read. The rest is found if it comes before
// that. If the kernel hides the addresses, all are zero, and nothing is found.
func findCode(list io.Reader) (code kernelCode) {
	symbols := kallsyms.NewReader(list)
	var of *[]kernelRange // what has a range that begins at start and has no end yet
	var start, entry uint64
	for len(code.loaders) < 2 && symbols.Next() {
		kind := otherSymbol
		if len(symbols.Module) == 0 {
			kind = kindOf(symbols.Name)
		}
		if of == nil && kind == otherSymbol {
			continue
		}
		addr, err := symbols.Address()
		if err != nil {
			break
		}
		if of != nil && addr > start {
			*of = append(*of, kernelRange{start, addr})
			of = nil
		}
		switch kind {
		case loaderSymbol:
			of, start = &code.loaders, addr
		case replacerSymbol:
			of, start = &code.replacers, addr
		case forkSymbol:
			of, start = &code.entries, addr
		case entryStart:
			entry = addr
		case entryEnd:
			if entry != 0 && entry < addr {
				code.entries = append(code.entries, kernelRange{entry, addr})
			}
		}
	}
	return code
}

// A symbolKind says what a symbol of the kernel is for findCode.
type symbolKind uint8

const (
	otherSymbol symbolKind = iota
	loaderSymbol
	replacerSymbol
	forkSymbol // where a new task begins
	entryStart // of the code for system calls, exceptions and interrupts
	entryEnd
)

func kindOf(name []byte) symbolKind {
	switch string(name) {
	case "load_elf_binary":
		return loaderSymbol
	case "begin_new_exec":
		return replacerSymbol
	case "ret_from_fork_asm":
		return forkSymbol
	case "__entry_text_start":
		return entryStart
	case "__entry_text_end":
		return entryEnd
	}
	return otherSymbol
}

// isStack reports whether a walk shows that the registers belong to the stack. Those of the old program do until
// its memory is replaced, and those of the new program do once they are set. On the stack of another program,
// there is no return address that these registers lead to, or it leads to no caller.
func isStack(res *unwind.Result) bool {
	switch res.End {
	case unwind.Root:
		return true
	case unwind.DumpTooShort, unwind.DepthLimit:
		return len(res.IPs) > 1
	}
	return false
}
