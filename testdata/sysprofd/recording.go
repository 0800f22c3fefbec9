package sysprofd

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"golang.org/x/sys/unix"
)

// Options say what is recorded, and by which program.
type Options struct {
	Helper    string   // the program
	Arguments []string // its first ones
	StackSize int      // bytes of each stack to copy: a multiple of the page size
	File      string   // where the capture goes; empty for a pipe
	Kallsyms  string   // a file of the kernel's symbols for the program; empty for none

	Tasks     []int // events are opened on these threads, too
	TasksOnly bool  // and not on the CPUs
	// Faults means that the threads are sampled at each page fault in user mode, and the CPUs not at all: so samples
	// are counted, and do not come with time as those of Sysprof.
	Faults bool

	Disabled  bool // the events are not enabled
	Announced bool // the eventfd is written to before the program is started
}

// A Recording is a program that records.
type Recording struct {
	Cmd    *exec.Cmd
	Stderr bytes.Buffer // of the program, once it has ended

	events []event
	told   *os.File // the eventfd
	pipe   *os.File // our end, nil for a file
	reader *reader
}

// Start opens the events, starts the program and enables the events.
func Start(o Options) (_ *Recording, err error) {
	r := &Recording{}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if r.events, err = open(&o); err != nil {
		return nil, err
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	r.told = os.NewFile(uintptr(fd), "eventfd")
	capture, err := r.capture(o.File)
	if err != nil {
		return nil, err
	}
	defer capture.Close()
	if o.Announced {
		r.tell()
	}
	if err := r.start(&o, capture); err != nil {
		return nil, err
	}
	if !o.Disabled {
		r.Enable(true)
	}
	return r, nil
}

// start starts the program with the descriptors that sysprofd gives it, from 3 on.
func (r *Recording) start(o *Options, capture *os.File) error {
	r.Cmd = exec.Command(o.Helper, o.Arguments...)
	r.Cmd.Stderr = &r.Stderr
	give := func(file *os.File) int {
		r.Cmd.ExtraFiles = append(r.Cmd.ExtraFiles, file)
		return 2 + len(r.Cmd.ExtraFiles)
	}
	args := []string{fmt.Sprintf("--stack-size=%d", o.StackSize), fmt.Sprintf("--event-fd=%d", give(r.told))}
	for _, e := range r.events {
		fd, err := unix.FcntlInt(uintptr(e.fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(fd), "event")
		defer file.Close()
		args = append(args, fmt.Sprintf("--perf-fd=%d:%d", give(file), e.cpu))
	}
	args = append(args, fmt.Sprintf("--capture-fd=%d", give(capture)))
	if o.Kallsyms != "" {
		file, err := os.Open(o.Kallsyms)
		if err != nil {
			return err
		}
		defer file.Close()
		args = append(args, fmt.Sprintf("--kallsyms=%d", give(file)))
	}
	r.Cmd.Args = slices.Concat(r.Cmd.Args, args)
	return r.Cmd.Start()
}

// capture opens where the capture goes, and begins to read it if that is a pipe.
func (r *Recording) capture(file string) (*os.File, error) {
	if file != "" {
		return os.Create(file)
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	_ = unix.SetNonblock(fds[0], true)
	r.pipe = os.NewFile(uintptr(fds[0]), "pipe")
	r.reader = newReader(r.pipe)
	return os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// Enable enables the events, or disables them.
func (r *Recording) Enable(on bool) {
	request := uint(unix.PERF_EVENT_IOC_DISABLE)
	if on {
		request = unix.PERF_EVENT_IOC_ENABLE
	}
	for _, e := range r.events {
		_ = unix.IoctlSetInt(e.fd, request, 0)
	}
}

func (r *Recording) tell() {
	_, _ = r.told.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// Pause stops reading until Resume is called.
func (r *Recording) Pause() { r.pause(true) }

// Resume undoes Pause.
func (r *Recording) Resume() { r.pause(false) }

func (r *Recording) pause(paused bool) {
	r.reader.mu.Lock()
	defer r.reader.mu.Unlock()
	r.reader.paused = paused
	r.reader.resume.Broadcast()
}

// Waiting is how many bytes are in the pipe.
func (r *Recording) Waiting() (n int) {
	c, err := r.pipe.SyscallConn()
	if err != nil {
		return 0
	}
	_ = c.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}

// Hang closes the pipe without telling the program.
func (r *Recording) Hang() { r.pipe.Close() }

// End ends the recording as Sysprof does: it tells the program, stops reading at once and disables the
// events.
func (r *Recording) End() error {
	r.tell()
	if r.pipe != nil {
		r.pipe.Close()
	}
	r.Enable(false)
	return r.Wait()
}

// EndAndRead tells the program to end, and reads what it has still to say.
func (r *Recording) EndAndRead() error {
	r.tell()
	return r.Wait()
}

// Wait waits until the program has ended and all that it has written is read, and closes everything. The
// error is that of the program, or says what Sysprof could not read.
func (r *Recording) Wait() error {
	err := r.Cmd.Wait()
	if r.reader != nil {
		<-r.reader.done
		if err == nil {
			err = r.reader.err
		}
	}
	r.Close()
	return err
}

// Close ends everything that is not at its end.
func (r *Recording) Close() {
	if r.Cmd != nil && r.Cmd.Process != nil && r.Cmd.ProcessState == nil {
		_ = r.Cmd.Process.Kill()
		_ = r.Cmd.Wait()
	}
	if r.told != nil {
		r.told.Close()
	}
	if r.pipe != nil {
		r.pipe.Close()
	}
	closeEvents(r.events)
	r.events = nil
}

// Frames are those that were read from the pipe so far.
func (r *Recording) Frames() []Frame {
	r.reader.mu.Lock()
	defer r.reader.mu.Unlock()
	return slices.Clone(r.reader.frames)
}

// Header is what was read of the header.
func (r *Recording) Header() (Header, error) {
	r.reader.mu.Lock()
	defer r.reader.mu.Unlock()
	return ParseHeader(r.reader.header)
}

// Backlog is how many reads ended with a whole frame left over, and how many bytes the largest read had.
func (r *Recording) Backlog() (reads, largest int) {
	r.reader.mu.Lock()
	defer r.reader.mu.Unlock()
	return r.reader.backlog, r.reader.largest
}
