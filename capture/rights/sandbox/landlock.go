package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/vmas/sys"
)

// landlockFS is how many access rights to files each version of Landlock has, from the first on
// (https://docs.kernel.org/userspace-api/landlock.html, "Previous limitations").
var landlockFS = []int{13, 14, 15, 15, 16}

const (
	landlockNetwork = 4 // the first version that covers TCP
	landlockScopes  = 6 // the first version that covers abstract sockets
)

// Rights to what is below a path.
const (
	toRead  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	toWrite = toRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR
	toFill = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	toRun  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE
)

// ofFiles are the rights that a file can have, which is no folder.
const ofFiles = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
	unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_TRUNCATE

// A beneath allows rights to a file, or to a folder and what is below it.
type beneath struct {
	path   string
	rights uint64
}

// landlock refuses all access to files by their paths, but for what is allowed, and to TCP if this kernel
// supports that, but for connecting if connect is set. Signals are left to the filter: each thread has a
// Landlock domain of its own, and the threads have to signal one another.
func landlock(allowed []beneath, connect bool) error {
	v, err := sys.LandlockVersion()
	if err != nil {
		return err
	}
	a := unix.LandlockRulesetAttr{Handled_access_fs: 1<<landlockFS[min(v, len(landlockFS))-1] - 1}
	size := unsafe.Sizeof(a.Handled_access_fs)
	if v >= landlockNetwork {
		a.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP
		if !connect {
			a.Handled_access_net |= unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
		size += unsafe.Sizeof(a.Handled_access_net)
	}
	if v >= landlockScopes {
		a.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		size += unsafe.Sizeof(a.Scoped)
	}
	ruleset, err := sys.LandlockCreateRuleset(&a, size)
	if err != nil {
		return err
	}
	defer unix.Close(ruleset)
	for _, b := range allowed {
		if err := allow(ruleset, b.path, b.rights&a.Handled_access_fs); err != nil {
			return err
		}
	}
	return eachThread(func() error { return sys.LandlockRestrictAllThreads(ruleset) })
}

// allow adds rights to what is below a path to a ruleset. What is not there, or not for this user, stays
// refused.
func allow(ruleset int, path string, rights uint64) error {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= ofFiles
	}
	return sys.LandlockAddPath(ruleset, &unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(at)})
}

// eachThread makes a system call on every thread, which Go's runtime asks for by signals.
func eachThread(call func() error) error {
	if err := roomForSignals(); err != nil {
		return err
	}
	return call()
}
