package opener

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// SealForNames is Seal for a client that reads recordings: of processes, the opener then opens only what
// names of generated code are in, jitdumps and perf maps.
func (c *Client) SealForNames() error {
	_, err := c.askGranted(request{op: seal, start: forNames}, -1)
	return err
}

// OpenGenerated opens a jitdump or a perf map by its path in the root of a process, or for PID 0 by its path
// here.
func (c *Client) OpenGenerated(pid uint32, path string) (*os.File, error) {
	r := request{op: openWithin, pid: pid, text: []byte(path)}
	if number, ok := perfMap(path); ok {
		r = request{op: openPerfMap, pid: pid, start: number}
	}
	file, _, err := c.open(r, path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

// perfMap is the PID in the path of a perf map.
func perfMap(path string) (number uint64, ok bool) {
	digits, mapped := strings.CutPrefix(path, "/tmp/perf-")
	digits, named := strings.CutSuffix(digits, ".map")
	number, err := strconv.ParseUint(digits, 10, 32)
	return number, mapped && named && err == nil
}
