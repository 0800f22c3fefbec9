package opener

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"unspool/vmas/process"
)

// SealForNames is Seal for a client that reads recordings: of processes, the opener then opens only what
// names of generated code are in, jitdumps and perf maps.
func (c *Client) SealForNames() error {
	_, err := c.askGranted(request{op: seal, start: forNames}, -1)
	return err
}

// Names opens and reads what names of generated code are in.
type Names struct{ inTime }

// Names is for a client that is sealed for names.
func (c *Client) Names() *Names { return &Names{newInTime(c)} }

// Open opens a jitdump or a perf map by its path in the root of a process, or for PID 0 by its path here.
func (n *Names) Open(pid uint32, path string) (*process.OpenFile, error) {
	r := request{op: openWithin, pid: pid, text: []byte(path)}
	if number, ok := perfMap(path); ok {
		r = request{op: openPerfMap, pid: pid, start: number}
	}
	at := place{fmt.Sprintf("root of process %d", pid), true}
	a, err := n.ask(at, &r, -1)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a.file(path, func(file *os.File, p []byte, off int64) (int, error) {
		return readParts(p, off, func(r request) (answer, error) {
			r.pid = pid
			return n.ask(at, &r, int(file.Fd()))
		})
	})
}

// perfMap is the PID in the path of a perf map.
func perfMap(path string) (number uint64, ok bool) {
	digits, mapped := strings.CutPrefix(path, "/tmp/perf-")
	digits, named := strings.CutSuffix(digits, ".map")
	number, err := strconv.ParseUint(digits, 10, 32)
	return number, mapped && named && err == nil
}
