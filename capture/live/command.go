package live

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"

	"unspool/capture/rights/opener"
	"unspool/vmas/process"
)

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

// A command is the child process that runs the profiled command. The opener is its parent.
type command struct {
	name  string
	path  string
	argv  []string
	child *opener.Child
	pid   int

	term, kill *process.Leash // end it

	started bool          // run has let the child become the command
	done    chan struct{} // closed when the child has ended
	status  syscall.WaitStatus
}

// newCommand prepares the child of an opener, which waits, to run argv. Its events have to be opened with
// enable_on_exec.
func newCommand(by *opener.Client, argv []string) (_ *command, err error) {
	path, err := exec.LookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil, &CommandError{argv[0], err}
	}
	if strings.Contains(argv[0], "/") {
		path = argv[0]
	}
	c := &command{name: argv[0], path: path, argv: argv, child: by.Command(), done: make(chan struct{})}
	if c.pid, err = c.child.Await(); err != nil {
		return nil, fmt.Errorf("start a process for the command: %w", err)
	}
	if c.term, err = process.NewLeash(c.pid, syscall.SIGTERM); err == nil {
		c.kill, err = process.NewLeash(c.pid, syscall.SIGKILL)
	}
	if err != nil {
		c.cancel()
		return nil, fmt.Errorf("prepare the end of the command: %w", err)
	}
	return c, nil
}

// run lets the child become the command. ended is called, on another
// goroutine, when it has ended.
func (c *command) run(ended func()) error {
	c.started = true
	errno := c.child.Run(c.path, c.argv)
	go func() {
		c.child.AwaitEnd()
		close(c.done)
		ended()
	}()
	if errno != 0 {
		<-c.done
		return &CommandError{c.name, errno}
	}
	return nil
}

// reap frees a child that has ended, and notes its status. It must not be called with real-time priority: see
// [opener.Child.Reap].
func (c *command) reap() (err error) {
	c.status, err = c.child.Reap()
	return err
}

// cancel ends a child that has not become the command.
func (c *command) cancel() {
	c.child.Cancel()
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
