package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"unspool/capture/sandbox"
)

// stubName is argv[0] of the child that waits to become the command.
const stubName = "unspool (waiting to run the command)"

// The child must exec from the thread on which the events were opened, which is the process's first. Only an
// init function is sure to run on it. So any program that imports this package can be the child, test
// binaries included.
func init() {
	if len(os.Args) > 1 && os.Args[0] == stubName {
		runtime.LockOSThread()
		becomeCommand()
	}
}

// becomeCommand is run by the child of a recording: it waits until the events are open, executes the command
// in its own process and does not return.
func becomeCommand() {
	ready, failed := os.NewFile(3, "ready"), os.NewFile(4, "failed")
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	if n, _ := ready.Read(make([]byte, 1)); n != 1 {
		os.Exit(125) // the recording was cancelled
	}
	err := sandbox.Renounce()
	if err == nil {
		err = syscall.Exec(os.Args[1], os.Args[2:], os.Environ())
	}
	var b [4]byte
	if errno, ok := err.(syscall.Errno); ok {
		binary.LittleEndian.PutUint32(b[:], uint32(errno))
	}
	failed.Write(b[:])
	os.Exit(126)
}

// A CommandError says that the command could not be run.
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
	name   string
	cmd    *exec.Cmd
	ready  *os.File // a byte here lets the child exec
	failed *os.File // an errno comes from here when it could not

	done   chan struct{} // closed when the child has ended
	status syscall.WaitStatus
}

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
	readyR, readyW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer readyR.Close()
	failedR, failedW, err := os.Pipe()
	if err != nil {
		readyW.Close()
		return nil, err
	}
	defer failedW.Close()
	c := &command{name: argv[0], ready: readyW, failed: failedR, done: make(chan struct{})}
	c.cmd = &exec.Cmd{
		Path:       "/proc/self/exe",
		Args:       append([]string{stubName, path}, argv...),
		Stdin:      os.Stdin,
		Stdout:     stdout,
		Stderr:     os.Stderr,
		ExtraFiles: []*os.File{readyR, failedW},
	}
	if err := c.cmd.Start(); err != nil {
		readyW.Close()
		failedR.Close()
		return nil, fmt.Errorf("start a process for the command: %w", err)
	}
	return c, nil
}

func (c *command) pid() int { return c.cmd.Process.Pid }

// run lets the child become the command. ended is called, on another
// goroutine, when it has ended.
func (c *command) run(ended func()) error {
	c.ready.Write([]byte{1})
	c.ready.Close()
	var b [4]byte
	n, _ := c.failed.Read(b[:])
	c.failed.Close()
	go func() {
		c.cmd.Wait()
		c.status, _ = c.cmd.ProcessState.Sys().(syscall.WaitStatus)
		close(c.done)
		ended()
	}()
	if n == len(b) {
		<-c.done
		return &CommandError{c.name, syscall.Errno(binary.LittleEndian.Uint32(b[:]))}
	}
	return nil
}

// cancel ends a child that has not become the command.
func (c *command) cancel() {
	c.ready.Close()
	c.failed.Close()
	c.cmd.Wait()
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
