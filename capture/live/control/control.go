package control

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A Command is what a recording is to do.
type Command string

// The commands.
const (
	Enable  Command = "enable"  // take samples
	Disable Command = "disable" // take none until the next Enable
	Stop    Command = "stop"    // end the recording
	Ping    Command = "ping"    // acknowledge once what was sampled before has been read
)

// longestLine bounds what is kept of a line.
const longestLine = 64

// A Control has two FIFOs. Its methods are for one goroutine.
type Control struct {
	in       *os.File
	acks     int // descriptor, -1 for none
	commands chan Command
	closed   chan struct{}
	reading  sync.WaitGroup
}

// Open opens the FIFOs that a user names, as fifo:CTL or fifo:CTL,ACK. It does not wait for anybody else to
// open them.
func Open(value string) (*Control, error) {
	names, ok := strings.CutPrefix(value, "fifo:")
	in, acks, two := strings.Cut(names, ",")
	if !ok || in == "" || two && acks == "" {
		return nil, fmt.Errorf("must be fifo:CTL or fifo:CTL,ACK, with paths of FIFOs, and not %q", value)
	}
	fd, err := openFIFO(in)
	if err != nil {
		return nil, err
	}
	c := &Control{acks: -1, commands: make(chan Command, 1), closed: make(chan struct{})}
	if two {
		if c.acks, err = openFIFO(acks); err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	c.in = os.NewFile(uintptr(fd), in)
	return c, nil
}

// openFIFO opens a FIFO for reading and writing, so that it does not end when others close it.
func openFIFO(path string) (fd int, err error) {
	fd, err = unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		unix.Close(fd)
		return -1, fmt.Errorf("%s is not a FIFO: make one with mkfifo", path)
	}
	return fd, nil
}

// Start begins to read commands. news is called, on another goroutine, when Next has one.
func (c *Control) Start(news func()) {
	c.reading.Add(1)
	go func() {
		defer c.reading.Done()
		c.read(news)
	}()
}

// read hands out one command after the other: whoever writes many waits. Of a line that is too long, the
// beginning is handed out.
func (c *Control) read(news func()) {
	lines := bufio.NewReaderSize(c.in, longestLine)
	for {
		line, more, err := lines.ReadLine()
		command := Command(strings.TrimSpace(string(line)))
		for more && err == nil {
			_, more, err = lines.ReadLine()
		}
		if err != nil {
			return
		}
		if command == "" {
			continue
		}
		select {
		case c.commands <- command:
			news()
		case <-c.closed:
			return
		}
	}
}

// Next returns the next command, which may be unknown, or false if there is none yet.
func (c *Control) Next() (Command, bool) {
	select {
	case command := <-c.commands:
		return command, true
	default:
		return "", false
	}
}

// Acknowledge notes that a command was followed. If nobody reads that any more, it is dropped.
func (c *Control) Acknowledge() error {
	if c.acks < 0 {
		return nil
	}
	_, err := unix.Write(c.acks, []byte("ack\n"))
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	return err
}

// Close ends the reading of commands.
func (c *Control) Close() {
	if c == nil {
		return
	}
	close(c.closed)
	c.in.Close()
	c.reading.Wait()
	if c.acks >= 0 {
		unix.Close(c.acks)
	}
}
