package opener

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/sandbox"
	"unspool/vmas/process"
	"unspool/vmas/sys"
)

// The opener is the parent of the recorded command: where Yama restricts ptrace (kernel.yama.ptrace_scope 1), a process
// without CAP_SYS_PTRACE reads only the memory of its descendants, and it is the opener that reads. By PR_SET_PTRACER
// the command could let it read, but not its children, and not itself after an exec by another thread.
//
//	recording ─starts─▶ opener ─starts─▶ child, which waits, and then becomes the command
//
// So the opener is started with all that the recording has inherited. It starts the child before it does anything else,
// and lets go of that.

// childName is argv[0] of the child that waits to become the command.
const childName = "unspool (waiting to run the command)"

// The child must exec from the thread on which the events were opened, which is the process's first. Only an
// init function is sure to run on it. So any program that imports this package can be the child, test
// binaries included.
func init() {
	if len(os.Args) == 2 && os.Args[0] == childName {
		runtime.LockOSThread()
		process.Rename("unspool-command")
		becomeCommand()
	}
}

// becomeCommand is run by the child of an opener: it tells the recording its PID, waits until the events are open,
// executes the command in its own process and does not return.
func becomeCommand() {
	socket, err := strconv.Atoi(os.Args[1])
	if err != nil {
		os.Exit(125) // no opener has started it
	}
	syscall.CloseOnExec(socket)
	recording := os.NewFile(uintptr(socket), "recording")
	// Its own exec is over, so it will not enable the events.
	tellPID(recording, os.Getpid(), 0)
	path, argv, env, err := receiveProgram(recording)
	if err != nil {
		os.Exit(125) // the recording was cancelled
	}
	if err = sandbox.Renounce(); err == nil {
		err = syscall.Exec(path, argv, env)
	}
	var b [4]byte
	if errno, ok := err.(syscall.Errno); ok {
		binary.LittleEndian.PutUint32(b[:], uint32(errno))
	}
	recording.Write(b[:])
	os.Exit(126)
}

// tellPID tells a recording the PID of a child that waits, or by an errno why there is none.
func tellPID(recording io.Writer, pid int, errno syscall.Errno) {
	b := binary.LittleEndian.AppendUint32(nil, uint32(pid))
	recording.Write(binary.LittleEndian.AppendUint32(b, uint32(errno)))
}

// sendProgram sends the path, the arguments and the environment of what a child is to run.
func sendProgram(w io.Writer, path string, argv, env []string) error {
	b := binary.LittleEndian.AppendUint32(make([]byte, 4), uint32(len(argv)))
	for _, s := range slices.Concat([]string{path}, argv, env) {
		b = append(append(b, s...), 0)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	_, err := w.Write(b)
	return err
}

// receiveProgram receives what sendProgram has sent.
func receiveProgram(r io.Reader) (path string, argv, env []string, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", nil, nil, err
	}
	text := make([]byte, binary.LittleEndian.Uint32(head[:])-4)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", nil, nil, err
	}
	all := strings.Split(string(text), "\x00")
	n := 1 + int(binary.LittleEndian.Uint32(head[4:]))
	return all[0], all[1:n], all[n : len(all)-1], nil
}

// A Child is the process of an opener that waits to become a command. One goroutine uses it.
type Child struct {
	client *Client
	socket *os.File // the child says its PID, and is told what to run; an errno comes back if it could not
	pidfd  *os.File // of the child, in the runtime's poller; nil before Linux 5.10
}

// Await returns the PID of the child when it waits. Events on it have to be opened with enable_on_exec.
func (c *Child) Await() (pid int, err error) {
	// Where the program of the child begins late, as on slow machines, its own exec would enable the events.
	var b [8]byte
	if _, err := io.ReadFull(c.socket, b[:]); err != nil {
		return 0, fmt.Errorf("it has ended: %w", err)
	}
	if errno := binary.LittleEndian.Uint32(b[4:]); errno != 0 {
		return 0, syscall.Errno(errno)
	}
	pid = int(binary.LittleEndian.Uint32(b[:]))
	if fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK); err == nil {
		c.pidfd = os.NewFile(uintptr(fd), "pidfd")
	}
	return pid, nil
}

// Run lets the child become a program, with the environment of this process, and returns when it has. The errno says
// why it could not: it ends then.
func (c *Child) Run(path string, argv []string) (errno syscall.Errno) {
	defer c.Cancel()
	_ = sendProgram(c.socket, path, argv, os.Environ()) // if it has ended, AwaitEnd returns
	var b [4]byte
	if _, err := io.ReadFull(c.socket, b[:]); err != nil {
		return 0
	}
	return syscall.Errno(binary.LittleEndian.Uint32(b[:]))
}

// Cancel ends a child that has not become the command, and does nothing to others.
func (c *Child) Cancel() { c.socket.Close() }

// AwaitEnd waits until the child has ended, or the opener has and nobody can say any more. The child remains for Reap.
// It waits in the runtime's poller: a thread in a system call keeps a processor of Go's scheduler until the runtime's
// monitor takes it away, up to 20 ms later. A recording has only one, and programs begin and end meanwhile.
func (c *Child) AwaitEnd() {
	if c.pidfd == nil {
		_, _ = c.client.askFile(request{op: awaitCommand})
		return
	}
	defer c.pidfd.Close()
	if conn, err := c.pidfd.SyscallConn(); err == nil {
		_ = conn.Read(func(fd uintptr) (ended bool) { return sys.Poll(int(fd), 0) })
	}
}

// Reap frees a child that has ended, and returns its status. The opener must not have real-time priority: the kernel
// removes the child's entries in /proc then, and for that it waits, busy, for a thread of the child that is just
// removing its own. If that one has ordinary priority and no CPU, this takes as long as the kernel lets real-time
// threads run, 0.95 s.
func (c *Child) Reap() (status syscall.WaitStatus, err error) {
	a, err := c.client.askGranted(request{op: reapCommand}, -1)
	return syscall.WaitStatus(a.value), err
}

// startCommand starts the child of an opener, which is connected to the recording by a socket.
func startCommand(socket int) (pid int) {
	files, numbers := process.Beside([3]int{0, 1, 2}, socket)
	pid, _, err := syscall.StartProcess("/proc/self/exe", []string{childName, strconv.Itoa(numbers[0])},
		&syscall.ProcAttr{Env: os.Environ(), Files: files})
	recording := os.NewFile(uintptr(socket), "recording")
	defer recording.Close() // the other end waits for that
	if err != nil {
		var errno syscall.Errno
		_ = errors.As(err, &errno)
		tellPID(recording, 0, cmp.Or(errno, unix.ENOEXEC))
	}
	return pid
}

// awaitCommand waits for the end of the command.
func (s *server) awaitCommand() (err error) {
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Waitid(unix.P_PID, s.command, nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	return err
}

// reapCommand frees a command that has ended.
func (s *server) reapCommand() (status unix.WaitStatus, err error) {
	pid, err := unix.Wait4(s.command, &status, unix.WNOHANG, nil)
	if err == nil && pid == 0 {
		err = unix.EAGAIN
	}
	return status, err
}

// signals are those that end whoever asks, which an opener survives: it ends with the client, which may be sent SIGUSR2
// by a name that both processes have.
var signals = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR2}

// catchSignals makes this process survive signals that a command is not to ignore: a program that it runs has the
// default for one that is caught. What was ignored before stays so.
func catchSignals() {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// letGo gives up what was inherited for a command, except some descriptors.
func letGo(keep ...int) {
	signal.Ignore(signals...)
	process.CloseInherited(keep...)
	_ = unix.Chdir("/")
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = unix.Dup3(null, fd, 0)
	}
	unix.Close(null)
}
