package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file has calls that golang.org/x/sys/unix does not have. Go's scheduler is told of them.

// Ioctl makes a request whose argument is a structure that the kernel reads, writes, or both.
func Ioctl[T any](fd int, request uint, argument *T) error {
	_, _, errno := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(argument)))
	return failed(errno)
}

// SignalThread makes a thread the one that gets the signals of a descriptor (fcntl(2), F_SETOWN_EX).
func SignalThread(fd, tid int) error {
	const ofThread = 0 // F_OWNER_TID
	owner := [2]int32{ofThread, int32(tid)}
	_, _, errno := syscall.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_SETOWN_EX, uintptr(unsafe.Pointer(&owner)))
	return failed(errno)
}

// LandlockVersion returns which version of Landlock this kernel has.
func LandlockVersion() (version int, err error) {
	return count(syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION))
}

// LandlockCreateRuleset returns the descriptor of a new ruleset. The kernel reads size bytes of the attributes: an old
// one refuses fields that it does not know.
func LandlockCreateRuleset(a *unix.LandlockRulesetAttr, size uintptr) (ruleset int, err error) {
	return count(syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(a)), size, 0))
}

// LandlockAddPath adds rights to a file, or to what is below a folder, to a ruleset.
func LandlockAddPath(ruleset int, a *unix.LandlockPathBeneathAttr) error {
	const beneath = 1 // LANDLOCK_RULE_PATH_BENEATH (include/uapi/linux/landlock.h)
	// The kernel's struct is packed, which ends it after the descriptor: Go's padding is not read.
	_, _, errno := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), beneath, uintptr(unsafe.Pointer(a)),
		0, 0, 0)
	return failed(errno)
}

// SeccompSetFilter installs a filter for system calls. With SECCOMP_FILTER_FLAG_TSYNC, thread is one that cannot have
// the filter, 0 if all have it.
func SeccompSetFilter(flags uintptr, program []unix.SockFilter) (thread int, err error) {
	p := unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)}
	return count(syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&p))))
}

// The calls that follow are made on every thread of the process. In programs with cgo they fail with ENOTSUP.

// PrctlAllThreads sets what prctl(2) calls an attribute.
func PrctlAllThreads(option int, value uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, uintptr(option), value, 0)
	return failed(errno)
}

// CapsetAllThreads sets capabilities.
func CapsetAllThreads(h *unix.CapUserHeader, c *[2]unix.CapUserData) error {
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(h)), uintptr(unsafe.Pointer(c)), 0)
	return failed(errno)
}

// LandlockRestrictAllThreads applies a ruleset.
func LandlockRestrictAllThreads(ruleset int) error {
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0)
	return failed(errno)
}
