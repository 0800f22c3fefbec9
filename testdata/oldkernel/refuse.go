// Package oldkernel runs programs as on a kernel that refuses some calls: older ones, which do not know a call or an
// attribute, and those that allow less. A filter of the program (seccomp(2), user notification) has the kernel ask
// this process about each such call; it reads what the arguments point to, and answers with an error or lets it pass.
package oldkernel

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Kernel is what a kernel answers to calls, by their numbers: 0 lets a call pass.
type Kernel map[uintptr]func(c *Call) unix.Errno

// A Call is one that a program makes.
type Call struct {
	PID     int // of the thread
	Args    [6]uint64
	Returns int64 // if it is not 0, the call is not made, and returns this
}

// Read reads what an argument points to. What cannot be read is zero.
func (c *Call) Read(arg int, into []byte) {
	clear(into)
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", c.PID))
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.ReadAt(into, int64(c.Args[arg]))
}

// Attr is the first argument of perf_event_open.
func (c *Call) Attr() (a unix.PerfEventAttr) {
	c.Read(0, unsafe.Slice((*byte)(unsafe.Pointer(&a)), unsafe.Sizeof(a)))
	return a
}

// numbersOf is the variable with the numbers of the calls that a child asks for, in which Main begins a program.
const numbersOf = "UNSPOOL_TEST_REFUSES"

// listener is the descriptor at which a child has the socket for its filter's.
const listener = 3

// Main has to be called before anything else in the TestMain of a package that calls [Kernel.Runs].
func Main() {
	numbers := os.Getenv(numbersOf)
	if numbers == "" {
		return
	}
	os.Unsetenv(numbersOf)
	fmt.Fprintln(os.Stderr, "oldkernel:", begin(strings.Fields(numbers)))
	os.Exit(125)
}

// begin becomes the program in the arguments, with a filter.
func begin(numbers []string) error {
	// The filter is this thread's, which execve leaves.
	runtime.LockOSThread()
	number := unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS} // at offset 0 of seccomp_data
	filter := []unix.SockFilter{number}
	for i, n := range numbers {
		nr, err := strconv.ParseUint(n, 10, 32)
		if err != nil {
			return err
		}
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(nr),
			Jt: uint8(len(numbers) - i)})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
		uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("filter: %w", errno)
	}
	if err := unix.Sendmsg(listener, []byte{0}, unix.UnixRights(int(fd)), nil, 0); err != nil {
		return fmt.Errorf("send the filter's descriptor: %w", err)
	}
	unix.Close(int(fd))
	unix.Close(listener)
	return syscall.Exec(os.Args[0], os.Args, os.Environ())
}

// Runs changes how a command will be started: on this kernel. The test is skipped where there are no such filters.
func (k Kernel) Runs(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "filter")
	if len(cmd.ExtraFiles) > 0 {
		t.Fatal("a command with further descriptors")
	}
	var numbers []string
	for nr := range k {
		numbers = append(numbers, strconv.Itoa(int(nr)))
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, numbersOf+"="+strings.Join(numbers, " "))
	cmd.Args[0], cmd.Path, cmd.ExtraFiles = cmd.Path, "/proc/self/exe", []*os.File{theirs}
	done := make(chan error, 1)
	go func() { done <- k.answer(pair[0]) }()
	t.Cleanup(func() {
		theirs.Close() // if it was never started
		// It is closed when nobody uses its number any more, which another test may get.
		unix.Shutdown(pair[0], unix.SHUT_RDWR)
		if err := <-done; err != nil {
			t.Error("oldkernel:", err)
		}
		unix.Close(pair[0])
	})
}

// notification and response are struct seccomp_notif and struct seccomp_notif_resp of linux/seccomp.h.
type (
	notification struct {
		id         uint64
		pid, flags uint32
		nr         int32
		arch       uint32
		ip         uint64
		args       [6]uint64
	}
	response struct {
		id           uint64
		val          int64
		error, flags int32
	}
)

const (
	receive = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	respond = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
)

// answer receives the filter's descriptor, and answers for all processes that have the filter until none is left.
func (k Kernel) answer(socket int) error {
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		return err // it was never started, or said why not
	}
	// The only message holds one descriptor.
	fd := int(binary.NativeEndian.Uint32(control[unix.CmsgLen(0):]))
	defer unix.Close(fd)
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, -1); err == unix.EINTR {
			continue
		} else if err != nil {
			return err
		}
		switch got := p[0].Revents; {
		case got&unix.POLLIN != 0:
		case got&unix.POLLHUP != 0:
			return nil
		default: // whoever closed it has made the kernel refuse all these calls, uncounted
			return fmt.Errorf("the filter's descriptor %d: poll says %#x", fd, got)
		}
		var asked notification
		if errno := ioctl(fd, receive, unsafe.Pointer(&asked)); errno == unix.ENOENT || errno == unix.EINTR {
			continue // the thread has been killed
		} else if errno != 0 {
			return fmt.Errorf("receive: %w", errno)
		}
		reply := response{id: asked.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		call := Call{PID: int(asked.pid), Args: asked.args}
		if refuse := k[uintptr(asked.nr)](&call); refuse != 0 || call.Returns != 0 {
			reply.val, reply.error, reply.flags = call.Returns, -int32(refuse), 0
		}
		if errno := ioctl(fd, respond, unsafe.Pointer(&reply)); errno != 0 && errno != unix.ENOENT {
			return fmt.Errorf("respond: %w", errno)
		}
	}
}

func ioctl(fd int, request uintptr, at unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(at))
	return errno
}
