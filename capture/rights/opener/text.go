package opener

import (
	"fmt"
	"io"
	"io/fs"
	"time"

	"unspool/vmas/process"
)

// A text is what the opener reads of a process, received a piece at a time: it reads little more than what was
// received. Pieces are waited for as other answers are.
type text struct {
	client *Client
	wait   *answerWait
	pid    uint32
	path   string
	line   *line // nil when nothing more is to come
	buf    []byte
	piece  []byte // what is not read yet of buf
	err    error  // of what follows the piece
}

// Text is for [process.Texts].
func (c *Client) Text(pid, tid uint32, name process.Text, most int) (io.ReadCloser, error) {
	return c.text(&c.wait, pid, tid, name, most)
}

func (c *Client) text(p *answerWait, pid, tid uint32, name process.Text, most int) (io.ReadCloser, error) {
	t := &text{client: c, wait: p, pid: pid, path: fmt.Sprintf("/proc/%d/task/%d/%v", pid, tid, name)}
	r := request{op: readText, pid: pid, tid: tid, start: uint64(name), end: uint64(max(most, 0))}
	limit, err := c.begin(p, pid)
	if err == nil {
		t.line, limit, err = c.sendRead(p, &r, limit)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: t.path, Err: err}
	}
	if t.receive(limit); t.err != nil && t.err != io.EOF {
		return nil, t.err
	}
	return t, nil
}

// receive receives the next piece.
func (t *text) receive(limit time.Duration) {
	in := &incoming{all: t.buf[:0]}
	a, err := t.client.receive(t.wait, t.pid, t.line, in, limit, true)
	if err == nil {
		err = a.err()
	}
	switch {
	case err != nil:
		t.err = &fs.PathError{Op: "read", Path: t.path, Err: err}
	case a.more == 0:
		t.err = io.EOF
	}
	t.buf, t.piece = a.bytes, a.bytes
	if t.err != nil {
		t.line = nil
	}
}

func (t *text) Read(b []byte) (int, error) {
	for len(t.piece) == 0 && t.err == nil {
		limit, err := t.client.begin(t.wait, 0)
		if err != nil {
			return 0, err
		}
		t.receive(limit)
	}
	n := copy(b, t.piece)
	t.piece = t.piece[n:]
	if n == 0 && len(b) > 0 {
		return 0, t.err
	}
	return n, nil
}

// Close receives what is still to come in the background, which is no more than was asked for.
func (t *text) Close() error {
	if l := t.line; l != nil {
		t.line, t.err = nil, fs.ErrClosed
		go t.client.drop(l, &incoming{})
	}
	t.piece = nil
	return nil
}
