package live

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/sandbox"
	"unspool/vmas/process"
)

// stubName is argv[0] of the child that waits to become the command.
const stubName = "unspool (waiting to run the command)"

// The child must exec from the thread on which the events were opened, which is the process's first. Only an
// init function is sure to run on it. So any program that imports this package can be the child, test
// binaries included.
func init() {
	if len(os.Args) > 1 && os.Args[0] == stubName {
		runtime.LockOSThread()
		process.Rename("unspool-command")
		becomeCommand()
	}
}

// becomeCommand is run by the child of a recording: it waits until the events are open, executes the command
// in its own process and does not return.
func becomeCommand() {
	socket, err := strconv.Atoi(os.Args[1])
	if err != nil || len(os.Args) < 4 {
		os.Exit(125) // it was not started by newCommand
	}
	syscall.CloseOnExec(socket)
	recording := os.NewFile(uintptr(socket), "recording")
	recording.Write([]byte{0}) // its own exec is over, so it will not enable the events
	if n, _ := recording.Read(make([]byte, 1)); n != 1 {
		os.Exit(125) // the recording was cancelled
	}
	if err = sandbox.Renounce(); err == nil {
		err = syscall.Exec(os.Args[2], os.Args[3:], os.Environ())
	}
	var b [4]byte
	if errno, ok := err.(syscall.Errno); ok {
		binary.LittleEndian.PutUint32(b[:], uint32(errno))
	}
	recording.Write(b[:])
	os.Exit(126)
}

// A CommandError means that the command could not be run.
type CommandError struct {
	Command string
	Err     error
}

func (e *CommandError) Error() string {
	err := e.Err
	var lookup *exec.Error
	if errors.As(err, &lookup) {
		err = lookup.Err
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	switch {
	case e.Command == "":
		return "the command's name is empty"
	case e.missing():
		return fmt.Sprintf("%s: command not found", e.Command)
	}
	return fmt.Sprintf("%s: cannot be run: %v", e.Command, err)
}

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.Err }

func (e *CommandError) missing() bool {
	return errors.Is(e.Err, exec.ErrNotFound) || errors.Is(e.Err, fs.ErrNotExist)
}

// ExitStatus is that of shells: 127 when there is no such command, 126
// when it cannot be executed.
func (e *CommandError) ExitStatus() int {
	if e.missing() {
		return 127
	}
	return 126
}

// A command is the child process that runs the profiled command.
type command struct {
	name string
	cmd  *exec.Cmd
	// child sends a byte when it waits. A byte to it lets it exec; an errno comes back if it could not.
	child *os.File
	pidfd *os.File // of the child, in the runtime's poller; nil if that is not possible

	term, kill *process.Leash // end it

	started bool          // run has let the child become the command
	done    chan struct{} // closed when the child has ended
	status  syscall.WaitStatus
}

// starting is held while a child's end of its socket is open, which no child of another recording is to
// inherit: that it is closed everywhere means that the child has become the command.
var starting sync.Mutex

// newCommand starts a child that waits to run argv. Its events have to be
// opened with enable_on_exec. stdout is where its output goes.
func newCommand(argv []string, stdout *os.File) (_ *command, err error) {
	path, err := exec.LookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil, &CommandError{argv[0], err}
	}
	if strings.Contains(argv[0], "/") {
		path = argv[0]
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	c := &command{name: argv[0], child: os.NewFile(uintptr(pair[0]), "command"), done: make(chan struct{})}
	starting.Lock()
	defer starting.Unlock()
	// The child gets a number that is free: what the user has open under others is the command's.
	theirs, err := unix.FcntlInt(uintptr(pair[1]), unix.F_DUPFD, 3)
	unix.Close(pair[1])
	if err != nil {
		c.child.Close()
		return nil, fmt.Errorf("dup: %w", err)
	}
	c.cmd = &exec.Cmd{
		Path:   "/proc/self/exe",
		Args:   append([]string{stubName, strconv.Itoa(theirs), path}, argv...),
		Stdin:  os.Stdin,
		Stdout: stdout,
		Stderr: os.Stderr,
	}
	err = c.cmd.Start()
	unix.Close(theirs)
	if err != nil {
		c.child.Close()
		return nil, fmt.Errorf("start a process for the command: %w", err)
	}
	if fd, err := unix.PidfdOpen(c.pid(), unix.PIDFD_NONBLOCK); err == nil {
		c.pidfd = os.NewFile(uintptr(fd), "pidfd")
	}
	if c.term, err = process.NewLeash(c.pid(), syscall.SIGTERM); err == nil {
		c.kill, err = process.NewLeash(c.pid(), syscall.SIGKILL)
	}
	if err != nil {
		c.cancel()
		return nil, fmt.Errorf("prepare the end of the command: %w", err)
	}
	// Where the program of the child begins late, as on slow machines, its own exec would enable the events.
	if n, err := c.child.Read(make([]byte, 1)); n != 1 {
		c.cancel()
		return nil, fmt.Errorf("the process for the command has ended: %w", err)
	}
	return c, nil
}

func (c *command) pid() int { return c.cmd.Process.Pid }

// run lets the child become the command. ended is called, on another
// goroutine, when it has ended.
func (c *command) run(ended func()) error {
	c.started = true
	c.child.Write([]byte{1})
	var b [4]byte
	n, _ := c.child.Read(b[:])
	c.child.Close()
	go func() {
		c.awaitEnd()
		close(c.done)
		ended()
	}()
	if n == len(b) {
		<-c.done
		return &CommandError{c.name, syscall.Errno(binary.LittleEndian.Uint32(b[:]))}
	}
	return nil
}

// awaitEnd waits for the end of the child in the runtime's poller. A thread that waits for it in a system
// call keeps a processor of Go's scheduler until the runtime's monitor takes it away, up to 20 ms later: a
// recording has only one, and programs begin and end meanwhile. The child remains for reap.
func (c *command) awaitEnd() {
	var info unix.Siginfo
	if c.pidfd != nil {
		defer c.pidfd.Close()
		if conn, err := c.pidfd.SyscallConn(); err == nil {
			_ = conn.Read(func(fd uintptr) (ended bool) {
				err := unix.Waitid(unix.P_PIDFD, int(fd), &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
				return err != nil && err != unix.EINTR || info.Signo != 0
			})
		}
	}
	for info.Signo == 0 && unix.Waitid(unix.P_PID, c.pid(), &info, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// reap frees a child that has ended, and notes its status. It must not be called with real-time priority: the
// kernel removes the child's entries in /proc then, and for that it waits, busy, for a thread of the child that is
// just removing its own. If that one has ordinary priority and no CPU, this takes as long as the kernel lets
// real-time threads run, 0.95 s.
func (c *command) reap() {
	c.cmd.Wait()
	c.status, _ = c.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// cancel ends a child that has not become the command.
func (c *command) cancel() {
	c.child.Close()
	c.cmd.Wait()
	if c.pidfd != nil {
		c.pidfd.Close()
	}
	c.release()
}

// release closes what the command is ended with.
func (c *command) release() {
	c.term.Close()
	c.kill.Close()
	c.term, c.kill = nil, nil
}

func (c *command) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// exitStatus is the command's own, or 128 and the signal that ended it.
func (c *command) exitStatus() int {
	if c.status.Signaled() {
		return 128 + int(c.status.Signal())
	}
	return c.status.ExitStatus()
}
