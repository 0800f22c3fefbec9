package capture

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"unspool/unwind"
)

// An interruptedStack is the stack that a handler on a stack of its own has interrupted: only the handler's
// is in the sample. Since the sample was taken the handler may have returned, and then what was its caller's
// stack holds something else by now. So the thread must be seen waiting in the handler, before and after. Of
// a thread that runs, nothing tells where it is.
type interruptedStack struct {
	tid       uint32 // of the sample in work
	base, end uint64 // of its copy of the stack
}

// sampled says of which thread and stack the sample in work is.
func (i *interruptedStack) sampled(tid uint32, stack *unwind.Stack) {
	i.tid, i.base, i.end = tid, stack.Base, stack.Base+uint64(len(stack.Data))
}

// read is for [unwind.Unwinder.Memory].
func (i *interruptedStack) read(pid uint32, buf []byte, addr uint64) int {
	if !i.waits(pid) {
		return 0
	}
	n := readMemory(pid, buf, addr)
	if !i.waits(pid) {
		return 0
	}
	return n
}

// waits says whether the thread waits in a system call, with SP on the stack that the sample has a copy of.
func (i *interruptedStack) waits(pid uint32) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, i.tid))
	if err != nil {
		return false
	}
	const deeper = 64 << 10 // it may have called on since
	sp, ok := waitingSP(text)
	return ok && sp+deeper >= i.base && sp < i.end
}

// waitingSP reads SP from /proc/PID/task/TID/syscall: the last field but one
// (proc(5)). A thread that runs has none.
func waitingSP(text []byte) (sp uint64, ok bool) {
	fields := bytes.Fields(text)
	if len(fields) < 3 {
		return 0, false
	}
	sp, err := strconv.ParseUint(string(fields[len(fields)-2]), 0, 64)
	return sp, err == nil
}

// readMemory reads the memory of a process, as far as it goes: a transfer
// ends before the first piece that cannot be read whole, so each is a page.
func readMemory(pid uint32, buf []byte, addr uint64) int {
	const page = 4096
	var pieces [32]unix.RemoteIovec
	n, left := 0, len(buf)
	for at := addr; left > 0 && n < len(pieces); n++ {
		size := min(page-int(at%page), left)
		pieces[n] = unix.RemoteIovec{Base: uintptr(at), Len: size}
		at += uint64(size)
		left -= size
	}
	local := [1]unix.Iovec{{Base: &buf[0], Len: uint64(len(buf) - left)}}
	read, err := unix.ProcessVMReadv(int(pid), local[:], pieces[:n], 0)
	if err != nil {
		return 0
	}
	return read
}
