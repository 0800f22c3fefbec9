package sys

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// failed is errno as an error, nil for 0.
//
//go:norace
func failed(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// pointer is what the kernel gets as the address of the bytes, which may be none.
//
//go:norace
func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// ClockGettime returns the time of a clock.
func ClockGettime(clock int32) (now unix.Timespec, err error) {
	_, _, errno := syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&now)), 0)
	return now, failed(errno)
}

// ThreadTime returns the CPU time of the calling thread, -1 if it is not known. A goroutine has the same thread at two
// calls only if it is locked to it, or if the thread's number says so.
func ThreadTime() time.Duration { return cpuTime(unix.CLOCK_THREAD_CPUTIME_ID) }

// ProcessTime returns the CPU time of this process, -1 if it is not known.
func ProcessTime() time.Duration { return cpuTime(unix.CLOCK_PROCESS_CPUTIME_ID) }

func cpuTime(clock int32) time.Duration {
	now, err := ClockGettime(clock)
	if err != nil {
		return -1
	}
	return time.Duration(now.Nano())
}

// Open opens a file for reading. Its name ends with a zero.
//
//go:norace
func Open(name []byte) (fd int, err error) {
	at := unix.AT_FDCWD
	got, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, uintptr(at), uintptr(pointer(name)),
		unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(got), nil
}

// Close closes a descriptor.
//
//go:norace
func Close(fd int) { _, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// Read reads a file. n is 0 with an error.
//
//go:norace
func Read(fd int, b []byte) (n int, err error) {
	return count(syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(pointer(b)), uintptr(len(b))))
}

// Pread reads a file at an offset. n is 0 with an error.
func Pread(fd int, b []byte, offset int64) (n int, err error) {
	return count(syscall.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(pointer(b)), uintptr(len(b)),
		uintptr(offset), 0, 0))
}

// PreadCached reads what the page cache has of a file at an offset. n is 0 with an error, which is EAGAIN if the cache
// has nothing, and EOPNOTSUPP from file systems that cannot tell.
func PreadCached(fd int, b []byte, offset int64) (n int, err error) {
	vector := unix.Iovec{Base: unsafe.SliceData(b), Len: uint64(len(b))}
	return count(syscall.RawSyscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&vector)), 1,
		uintptr(offset), 0, unix.RWF_NOWAIT))
}

// Write writes to a file that does not block, or to one that the runtime itself would write to. n is 0 with an error.
//
//go:norace
func Write(fd int, b []byte) (n int, err error) {
	return count(syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(pointer(b)), uintptr(len(b))))
}

// count is the result of a call that counts bytes.
//
//go:norace
func count(n, _ uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// Exit ends the process.
//
//go:norace
func Exit(status int) { _, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(status), 0, 0) }

// Getrlimit returns a limit of this process. unix.Getrlimit makes another call, which confined processes may not make.
//
//go:norace
func Getrlimit(resource int) (limit unix.Rlimit, err error) {
	_, _, errno := syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(resource), 0,
		uintptr(unsafe.Pointer(&limit)), 0, 0)
	return limit, failed(errno)
}

// Statx tells of an open file. It does not block with AT_STATX_DONT_SYNC.
func Statx(fd, flags, mask int, st *unix.Statx_t) error {
	var noPath [1]byte
	_, _, errno := syscall.RawSyscall6(unix.SYS_STATX, uintptr(fd), uintptr(unsafe.Pointer(&noPath)),
		uintptr(flags)|unix.AT_EMPTY_PATH, uintptr(mask), uintptr(unsafe.Pointer(st)), 0)
	return failed(errno)
}

// EpollPoll returns the events that there are, and does not wait for others.
func EpollPoll(epoll int, events []unix.EpollEvent) (n int, err error) {
	return count(syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0))
}

// Poll waits for a descriptor to be readable, and reports whether it is. The goroutines of its processor wait as long,
// so it is for some microseconds.
func Poll(fd int, within time.Duration) bool {
	most := unix.NsecToTimespec(int64(within))
	one := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	n, _, _ := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&one)), 1, uintptr(unsafe.Pointer(&most)),
		0, 0, 0)
	return int(n) == 1
}

// Sendmsg sends a message, with a control message that may be empty. flags have to contain MSG_DONTWAIT.
func Sendmsg(socket int, message, control []byte, flags int) error {
	part := unix.Iovec{Base: unsafe.SliceData(message), Len: uint64(len(message))}
	head := unix.Msghdr{Iov: &part, Iovlen: 1, Control: unsafe.SliceData(control), Controllen: uint64(len(control))}
	_, _, errno := syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(socket), uintptr(unsafe.Pointer(&head)), uintptr(flags))
	return failed(errno)
}

// Recvmsg receives a message and its control message, and returns how many bytes these have. flags have to contain
// MSG_DONTWAIT.
func Recvmsg(socket int, message, control []byte, flags int) (n, controls int, err error) {
	part := unix.Iovec{Base: unsafe.SliceData(message), Len: uint64(len(message))}
	head := unix.Msghdr{Iov: &part, Iovlen: 1, Control: unsafe.SliceData(control), Controllen: uint64(len(control))}
	got, _, errno := syscall.RawSyscall(unix.SYS_RECVMSG, uintptr(socket), uintptr(unsafe.Pointer(&head)),
		uintptr(flags))
	if errno != 0 {
		return 0, 0, errno
	}
	return int(got), int(head.Controllen), nil
}

// Sleep makes the thread sleep, and the goroutines of its processor with it, for a time, or until a signal comes, as Go
// sends one to interrupt a thread. It is for threads that have a CPU before all others.
func Sleep(pause time.Duration) {
	until := unix.NsecToTimespec(int64(pause))
	_, _, _ = syscall.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&until)), 0, 0)
}

// Sigwait waits for a signal of a set that the thread has blocked: bit n-1 is signal n. It waits for no longer than a
// limit, unless that is 0; the error is EAGAIN then. Unless told is set, Go's scheduler does not know that the thread
// waits, and interrupts it every 10 ms (EINTR): told costs more than the work for a
// signal a millisecond.
func Sigwait(signals uint64, told bool, limit time.Duration) error {
	const size = unsafe.Sizeof(signals)
	var most *unix.Timespec
	if limit > 0 {
		most = &unix.Timespec{Sec: int64(limit / time.Second), Nsec: int64(limit % time.Second)}
	}
	var errno syscall.Errno
	if told {
		_, _, errno = syscall.Syscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&signals)), 0,
			uintptr(unsafe.Pointer(most)), size, 0, 0)
	} else {
		_, _, errno = syscall.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&signals)), 0,
			uintptr(unsafe.Pointer(most)), size, 0, 0)
	}
	return failed(errno)
}

// SchedGetattr returns how a thread is scheduled; 0 is the calling one.
func SchedGetattr(tid int) (a unix.SchedAttr, err error) {
	_, _, errno := syscall.RawSyscall6(unix.SYS_SCHED_GETATTR, uintptr(tid), uintptr(unsafe.Pointer(&a)),
		unix.SizeofSchedAttr, 0, 0, 0)
	return a, failed(errno)
}

// Getcpu returns the CPU of the calling thread.
func Getcpu() (cpu int, err error) {
	var number uint32
	_, _, errno := syscall.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&number)), 0, 0)
	return int(number), failed(errno)
}
