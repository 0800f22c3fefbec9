package symbols

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"unspool/unwind/image/debugfile"
	"unspool/vmas/process"
)

// A writer is a recorded process that wrote files: where they are, and which users may own them. A process
// that still runs may have its own mount namespace and PID namespace. For others, the recorded PID and the
// file system of this process are used.
type writer struct {
	pid   uint32           // in the PID namespace of the process
	roots []debugfile.Root // which its paths may be relative to
	is    process.Identity // whose files are used

	// since is when another process got the PID, zero if none did: files written later belong to that one.
	since time.Time
	runs  bool // it is the process that runs now
}

// writer looks for a process that ran at a time, in ns of the samples' clock; 0 if that is unknown. The
// clock is CLOCK_MONOTONIC or perf's own, which starts at the boot as well, and may be faster or slower by
// 500 ppm.
func (s *Symbolizer) writer(pid uint32, at uint64) *writer {
	p := &writer{pid: pid, roots: []debugfile.Root{s.root(0)},
		is: process.Identity{Users: []uint32{uint32(os.Geteuid())}}}
	if s.options.Root != "" {
		p.roots[0] = debugfile.In(s.options.Opener, s.options.Root)
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
	if p.is = process.ParseStatus(string(status)); p.is.Own != 0 {
		p.pid = p.is.Own
	}
	p.roots, p.runs = []debugfile.Root{s.root(pid), s.root(0)}, true
	return p
}

// root is that of a process, or for PID 0 our own.
func (s *Symbolizer) root(pid uint32) debugfile.Root {
	switch {
	case s.options.Generated != nil:
		return func(path string) (*process.OpenFile, error) { return s.options.Generated(pid, path) }
	case pid == 0:
		return debugfile.In(s.options.Opener, "/")
	}
	return debugfile.In(s.options.Opener, fmt.Sprintf("/proc/%d/root", pid))
}

// tick is the unit of times in /proc (USER_HZ).
const tick = 10 * time.Millisecond

// processAge is how long ago a process was started (proc_pid_stat(5), field 22, since the boot), with the
// time that the machine was suspended. It is too long by less than a tick.
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
func (p *writer) open(path string) (*process.OpenFile, error) {
	for _, root := range p.roots {
		file, err := root(path)
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

// wrote returns an error if the process cannot have written the file.
func (p *writer) wrote(file *process.OpenFile) error {
	if err := p.is.Wrote(file.File); err != nil {
		return fmt.Errorf("not used: %w", err)
	}
	st, err := process.Fstat(file.File)
	switch {
	case err != nil:
		return err
	case !p.since.IsZero() && modified(&st).After(p.since):
		return fmt.Errorf("not used, as it was written by another process, which has the PID now")
	}
	return nil
}

// modified is when a file was written to last.
func modified(st *unix.Stat_t) time.Time { return time.Unix(st.Mtim.Unix()) }
