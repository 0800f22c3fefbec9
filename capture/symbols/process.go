package symbols

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"unspool/unwind/image/debugfile"
)

// process says where the files are that a recorded process wrote, and whose they must be. One that still lives has its own idea
// of the file system and of its PID; of others the recorded PID and our file system have to do.
type process struct {
	pid   uint32   // as the process knows it
	roots []string // directories that its paths may start from
	users []uint32 // whose files are believed, beside root's

	// since is when another process took the PID, zero when none did: what was written later is that one's.
	since time.Time
}

// process looks for a process, which lived at a time in ns of the samples' clock, 0 when that is unknown. The clock is CLOCK_MONOTONIC
// or perf's own, which starts at the boot, too, and may go by 500 millionths faster or slower.
func (s *Symbolizer) process(pid uint32, at uint64) *process {
	p := &process{pid: pid, roots: []string{"/"}, users: []uint32{uint32(os.Geteuid())}}
	if s.options.Root != "" {
		p.roots[0] = s.options.Root
		return p
	}
	if s.otherKernel() != "" {
		return p
	}
	folder := fmt.Sprintf("/proc/%d", pid)
	age, ok := processAge(folder)
	if !ok {
		return p
	}
	now := monotonic()
	if born := now - age; at != 0 && born > time.Duration(at)+time.Second+now/1000 {
		p.since = time.Now().Add(-age)
		return p
	}
	status, err := os.ReadFile(folder + "/status")
	if err != nil {
		return p
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch key {
		case "Uid": // real, effective, saved, of the file system
			p.users = nil
			for _, f := range fields {
				if uid, err := strconv.ParseUint(f, 10, 32); err == nil && !slices.Contains(p.users, uint32(uid)) {
					p.users = append(p.users, uint32(uid))
				}
			}
		case "NSpid": // from our PID namespace to the process's own
			if len(fields) > 0 {
				if own, err := strconv.ParseUint(fields[len(fields)-1], 10, 32); err == nil {
					p.pid = uint32(own)
				}
			}
		}
	}
	p.roots = []string{folder + "/root", "/"}
	return p
}

// tick is the unit of times in /proc (USER_HZ).
const tick = 10 * time.Millisecond

// processAge is for how long a process has lived, suspended or not (proc_pid_stat(5), field 22 since the boot). It is too long by less
// than a tick.
func processAge(folder string) (time.Duration, bool) {
	stat, err := os.ReadFile(folder + "/stat")
	if err != nil {
		return 0, false
	}
	// The name of the program, in parentheses, may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, false
	}
	start, err := strconv.ParseInt(string(fields[19]), 10, 64)
	var now unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0, false
	}
	return time.Duration(now.Nano()) - time.Duration(start)*tick, true
}

// monotonic is the time of CLOCK_MONOTONIC.
func monotonic() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// open opens a file by its path in the process's mount namespace.
func (p *process) open(path string) (*os.File, error) {
	for _, root := range p.roots {
		file, err := debugfile.Open(root, path)
		if err == nil {
			if err = p.wrote(file); err == nil {
				return file, nil
			}
			file.Close()
		}
		if !missing(err) {
			return nil, err
		}
	}
	return nil, fs.ErrNotExist
}

// wrote is the error about a file that the process cannot have written.
func (p *process) wrote(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return errors.New("no owner")
	case st.Uid != 0 && !slices.Contains(p.users, st.Uid):
		return fmt.Errorf("not used, as it belongs to user %d, not to the process's (%s) or root", st.Uid, strings.Trim(fmt.Sprint(p.users), "[]"))
	case !p.since.IsZero() && info.ModTime().After(p.since):
		return fmt.Errorf("not used, as it was written by another process, which has the PID now")
	}
	return nil
}
