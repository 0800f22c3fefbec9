package buildidcache

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/rights/passing"
	"unspool/unwind/image"
	"unspool/vmas/process"
)

// A Client hands files to the process that writes to the cache. Its methods are called by one goroutine.
type Client struct {
	socket int // -1 before the process is started
	lists  chan []image.SampledFile
	kill   *process.Leash // ends the process
	sent   chan error     // when all lists were sent
	handed int            // files
	late   int            // files of lists that came while another one was being sent
}

// New returns a client whose process is started when there is a file for it. This one has to be able to start it then:
// see [Client.Start].
func New() *Client {
	c := &Client{socket: -1, lists: make(chan []image.SampledFile), sent: make(chan error, 1)}
	go c.send()
	return c
}

const (
	// graceToTake is how long the process may be busy with one file, or the disk or server that it is on.
	graceToTake = 30 * time.Second
	// tooMany is how long there may be too many descriptors in sockets (unix(7), ETOOMANYREFS).
	tooMany = 10 * time.Millisecond
)

// Start starts the process now, with the rights of this one, which it gives up at once but for those of the user:
// before this process gives up its own, or has the priority of a recording.
func (c *Client) Start() error {
	ours, their, err := passing.Sockets()
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(their), "build-ID cache")
	defer theirs.Close()
	grace := unix.NsecToTimeval(int64(graceToTake))
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err == nil {
			err = unix.SetsockoptTimeval(ours, unix.SOL_SOCKET, option, &grace)
		}
	}
	if err == nil {
		cmd := exec.Cmd{Path: "/proc/self/exe", Args: []string{serverName}, Dir: "/", ExtraFiles: []*os.File{theirs}}
		if err = cmd.Start(); err == nil {
			c.kill, err = process.NewLeash(cmd.Process.Pid, unix.SIGKILL)
		}
	}
	if err != nil {
		unix.Close(ours)
		return fmt.Errorf("start a process for the build-ID cache: %w", err)
	}
	c.socket = ours
	return nil
}

// Add hands files on, and does not wait for that unless they are the last ones. It closes them.
func (c *Client) Add(files []image.SampledFile, last bool) {
	if last {
		c.lists <- files
		return
	}
	select {
	case c.lists <- files:
	default:
		c.late += len(files)
		closeAll(files)
	}
}

// send sends lists of files. After an error the process has ended, or hangs.
func (c *Client) send() {
	var err error
	for files := range c.lists {
		for _, f := range files {
			if err == nil {
				err = c.sendFile(&f)
			}
		}
		closeAll(files)
	}
	c.sent <- err
}

func (c *Client) sendFile(f *image.SampledFile) error {
	m := message(f.Name, f.BuildID, f.UID)
	if m == nil {
		return nil
	}
	if c.socket < 0 {
		if s, ok := look(f.File, f.Name, nil, 0); !ok || s.isHere() {
			return nil
		}
		if err := c.Start(); err != nil {
			return err
		}
	}
	for until := time.Now().Add(graceToTake); ; {
		err := passing.Send(c.socket, m, int(f.Fd()))
		switch {
		case err == unix.ETOOMANYREFS && time.Now().Before(until):
			time.Sleep(tooMany)
		default:
			c.handed++
			return err
		}
	}
}

func closeAll(files []image.SampledFile) {
	for _, f := range files {
		f.Close()
	}
}

// Finish waits until the files are in the cache, and ends the process. The client cannot be used any more.
func (c *Client) Finish() (r Summary, err error) {
	close(c.lists)
	err = <-c.sent
	if c.socket < 0 {
		return r, err
	}
	defer unix.Close(c.socket)
	defer c.kill.Close()
	if c.handed == 0 && err == nil { // there is nothing to wait for
		c.kill.Pull()
		return r, nil
	}
	if err == nil {
		err = c.ask(&r)
	}
	if err != nil {
		c.kill.Pull() // a stopped one would stay for ever
	}
	switch {
	case err == unix.EAGAIN:
		return r, fmt.Errorf("the build-ID cache was not written within %v", graceToTake)
	case err != nil:
		return r, fmt.Errorf("the process that writes to the build-ID cache has ended: %w", err)
	case c.late > 0:
		r.Omitted = append(r.Omitted, Omission{Files: c.late, Why: "for which there was no time"})
	}
	return r, nil
}

var errClosed = errors.New("it did not say what it has done")

// ask asks for the report.
func (c *Client) ask(r *Summary) error {
	err := passing.Send(c.socket, []byte{theEnd}, -1)
	buf := make([]byte, 64<<10)
	for err == nil {
		var n int
		n, _, err = passing.Receive(c.socket, buf)
		switch {
		case err != nil:
		case n == 0:
			return errClosed
		case buf[0] == aReport:
			return json.Unmarshal(buf[1:n], r)
		}
	}
	return err
}
