package opener

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"unspool/perfring"
	"unspool/vmas/process"
)

var (
	_ process.Access       = (*Client)(nil)
	_ perfring.EventOpener = (*Client)(nil)
)

// Numbers is for [process.Texts].
func (c *Client) Numbers(pid uint32) ([]uint32, error) { return c.numbers(&c.wait, pid) }

func (c *Client) numbers(p *answerWait, pid uint32) ([]uint32, error) {
	if pid == 0 {
		p = &c.all
	}
	a, err := c.askWith(p, request{op: listNumbers, pid: pid}, nil)
	return parseNumbers(a.bytes), err
}

// IdleTexts reads processes for which no record waits: what they are waited for is not taken from the credit of those
// for which records do.
func (c *Client) IdleTexts() process.Texts { return idleTexts{c} }

type idleTexts struct{ *Client }

func (p idleTexts) Text(pid, tid uint32, name process.Text, most int) (io.ReadCloser, error) {
	return p.text(&p.idle, pid, tid, name, most)
}

func (p idleTexts) Numbers(pid uint32) ([]uint32, error) { return p.numbers(&p.idle, pid) }

// ReadMemory is for [process.Memory].
func (c *Client) ReadMemory(pid uint32, buf []byte, addr uint64) (read int) {
	return c.readMemory(&c.wait, pid, buf, addr)
}

// Aside reads processes for goroutines that do not drain the rings: what they wait for processes that hang is
// not taken from the credit of the one that does.
func (c *Client) Aside() process.Reader { return aside{c} }

type aside struct{ *Client }

func (a aside) Text(pid, tid uint32, name process.Text, most int) (io.ReadCloser, error) {
	return a.text(&a.rest, pid, tid, name, most)
}

func (a aside) Numbers(pid uint32) ([]uint32, error) { return a.numbers(&a.rest, pid) }

func (a aside) ReadMemory(pid uint32, buf []byte, addr uint64) (read int) {
	return a.readMemory(&a.rest, pid, buf, addr)
}

func (c *Client) readMemory(p *answerWait, pid uint32, buf []byte, addr uint64) (read int) {
	for read < len(buf) {
		piece := buf[read:min(len(buf), read+mostMemory)]
		start := addr + uint64(read)
		end := start + uint64(len(piece))
		a, err := c.askWith(p, request{op: readMemory, pid: pid, start: start, end: end}, piece)
		if err != nil {
			return read
		}
		n := copy(piece, a.bytes)
		if read += n; n < len(piece) {
			return read
		}
	}
	return read
}

// OpenPath is for [process.FileAccess].
func (c *Client) OpenPath(pid uint32, path string, start, end uint64) (*os.File, error) {
	file, _, err := c.open(request{op: openPath, pid: pid, start: start, end: end, text: []byte(path)}, path)
	return file, err
}

// OpenWithin is for [process.FileAccess].
func (c *Client) OpenWithin(pid uint32, path string) (*os.File, error) {
	file, _, err := c.open(request{op: openWithin, pid: pid, text: []byte(path)}, path)
	return file, err
}

// OpenMapped is for [process.FileAccess].
func (c *Client) OpenMapped(pid uint32, start, end uint64) (file *os.File, target string, err error) {
	name := fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, start, end)
	return c.open(request{op: openMapped, pid: pid, start: start, end: end}, name)
}

// open waits for a file as long as it takes, or until the client is closed: this is for goroutines that
// nobody waits for.
func (c *Client) open(r request, name string) (file *os.File, target string, err error) {
	a, err := c.askFile(r)
	switch err {
	case unix.ENOEXEC:
		err = process.ErrNotCode
	case unix.ENODATA:
		err = process.ErrEmpty
	}
	if err != nil {
		return nil, "", err
	}
	if a.fd < 0 {
		return nil, "", errMessage
	}
	return os.NewFile(uintptr(a.fd), name), string(a.bytes), nil
}

// OpenPerfMap is for [process.FileAccess].
func (c *Client) OpenPerfMap(pid, number uint32) (*os.File, error) {
	r := request{op: openPerfMap, pid: pid, start: uint64(number)}
	file, _, err := c.open(r, fmt.Sprintf("perf-%d.map", number))
	return file, err
}

// Stat is for [process.FileAccess].
func (c *Client) Stat(pid uint32, path string) (unix.Stat_t, error) {
	a, err := c.askFile(request{op: statPath, pid: pid, text: []byte(path)})
	if err != nil {
		return unix.Stat_t{}, err
	}
	return parseStat(a.bytes)
}

// Owner is for [process.FileAccess]. It is asked for each file that a process maps, so who it was is remembered
// for a moment.
func (c *Client) Owner(pid uint32) (uid uint32, err error) {
	now := time.Now()
	if uid, ok := c.owners.find(pid, now); ok {
		return uid, nil
	}
	a, err := c.askSoon(request{op: askOwner, pid: pid})
	if err == nil {
		c.owners.note(pid, uint32(a.value), now)
	}
	return uint32(a.value), err
}

// OpenEvent is for [perfring.EventOpener].
func (c *Client) OpenEvent(attr *unix.PerfEventAttr, cpu int) (fd int, err error) {
	a, err := c.askGranted(request{op: openEvent, pid: uint32(cpu), text: attrBytes(attr)}, -1)
	if err == nil && a.fd < 0 {
		err = errMessage
	}
	return a.fd, err
}

// GrantEvents lets events be opened later.
func (c *Client) GrantEvents(attrs []unix.PerfEventAttr) error {
	for i := range attrs {
		if _, err := c.askGranted(request{op: grantEvent, text: attrBytes(&attrs[i])}, -1); err != nil {
			return err
		}
	}
	return nil
}

// Seal ends granting. If confine is true, the opener gives up what it does not need for what was granted.
func (c *Client) Seal(confine bool) error {
	r := request{op: seal}
	if confine {
		r.end = confinedToo
	}
	_, err := c.askGranted(r, -1)
	return err
}

// CPU is the CPU time that the opener has used.
func (c *Client) CPU() time.Duration {
	a, err := c.askSoon(request{op: askCPU})
	if err != nil {
		return 0
	}
	return time.Duration(a.value)
}

// A Priority is the precedence that opener and client have been given.
type Priority struct {
	client *Client
	is     string
}

// RaisePriority gives opener and client precedence over the processes that are recorded.
func (c *Client) RaisePriority() *Priority {
	a, err := c.askGranted(request{op: raisePriority}, -1)
	if err != nil {
		return &Priority{c, "ordinary"}
	}
	return &Priority{c, string(a.bytes)}
}

// highest is the change of priority that Highest asks for; the other one is to give it up.
const highest = 1

// Highest goes before all other real-time threads, too, and reports whether that is new.
func (p *Priority) Highest() bool {
	a, err := p.client.askGranted(request{op: changePriority, start: highest}, -1)
	if err != nil || a.value != 1 {
		return false
	}
	p.is = string(a.bytes)
	return true
}

// Restore gives up the precedence.
func (p *Priority) Restore() { _, _ = p.client.askGranted(request{op: changePriority}, -1) }

// String returns what the precedence is.
func (p *Priority) String() string { return p.is }
