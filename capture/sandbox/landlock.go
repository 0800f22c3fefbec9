package sandbox

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockFS is how many access rights to files each version of Landlock has, from the first on
// (https://docs.kernel.org/userspace-api/landlock.html, "Previous limitations").
var landlockFS = []int{13, 14, 15, 15, 16}

const (
	landlockNetwork = 4 // the first version that covers TCP
	landlockScopes  = 6 // the first version that covers abstract sockets
)

// landlock refuses all access to files by their paths, and to TCP if this kernel supports that. Signals are
// left to the filter: each thread has a Landlock domain of its own, and the threads have to signal one
// another.
func landlock() error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0,
		unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return errno
	}
	v := int(version)
	a := unix.LandlockRulesetAttr{Handled_access_fs: 1<<landlockFS[min(v, len(landlockFS))-1] - 1}
	size := unsafe.Sizeof(a.Handled_access_fs)
	if v >= landlockNetwork {
		a.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size += unsafe.Sizeof(a.Handled_access_net)
	}
	if v >= landlockScopes {
		a.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		size += unsafe.Sizeof(a.Scoped)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&a)), size, 0)
	runtime.KeepAlive(&a)
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(fd))
	return eachThread(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
}

// eachThread makes a system call on every thread.
func eachThread(call, a, b, c uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall(call, a, b, c); errno != 0 {
		return errno
	}
	return nil
}
