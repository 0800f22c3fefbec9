package machine

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"unspool/vmas/process"
)

// A file is one that processes map.
type file struct {
	path  string // of the machine
	real  string // where it is here
	image *image
	// strange means that its functions have CFI that does not lead to their callers.
	strange bool
	alike   bool // their frames are
	// generated means that it is no file, but memory; framed, that its functions have frame pointers.
	generated, framed bool

	stat unix.Stat_t
	// replacedBy is what is at the path now, nil for the file itself.
	replacedBy *file
}

// name is what /proc shows of the file where it is mapped.
func (f *file) name() string {
	if f.replacedBy != nil {
		return f.path + " (deleted)"
	}
	return f.path
}

// A mapping is of a whole file.
type mapping struct {
	start uint64
	file  *file
}

// A task is a process of the simulated machine.
type task struct {
	pid, ppid uint32
	started   uint64     // in clock ticks, after boot
	maps      []*mapping // of the program first
	threads   []*thread
	spare     []*thread // that have ended; others may get their stacks
	ended     bool
	program   *program
}

func (p *task) mappingAt(start uint64) *mapping {
	i := slices.IndexFunc(p.maps, func(m *mapping) bool { return m.start == start })
	return p.maps[i]
}

// isUsed reports whether a frame is in a mapping.
func (p *task) isUsed(m *mapping) bool {
	return slices.ContainsFunc(p.threads, func(t *thread) bool {
		return slices.ContainsFunc(t.frames, func(f frame) bool { return f.m == m })
	})
}

// access is /proc and the files, as they are at the time of the question. Every answer takes its time, which is drawn
// for the question and is another one for each.
type access struct{ m *Machine }

var _ process.Access = access{}

// ask draws for a question, which may be asked several times.
func (a access) ask(what string, pid uint32) *rand.Rand {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	key := fmt.Sprint(what, " ", pid)
	a.m.asked[key]++
	return a.m.plan.draw(key, a.m.asked[key])
}

// wait lets the time of an answer pass, and returns the process as it is then.
func (a access) wait(r *rand.Rand, pid uint32, most time.Duration) (*task, error) {
	time.Sleep(1 + time.Duration(r.Int64N(int64(most))))
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.m.advance(a.m.now())
	p := a.m.byPID[pid]
	if p == nil || p.ended {
		return nil, fs.ErrNotExist
	}
	return p, nil
}

const answer = 20 * time.Microsecond // what a question to /proc takes at most

// Text is for [process.Texts].
func (a access) Text(pid, tid uint32, name process.Text, _ int) (io.ReadCloser, error) {
	p, err := a.wait(a.ask("text "+name.String(), tid), pid, answer)
	if err != nil {
		return nil, err
	}
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if p.ended || !slices.ContainsFunc(p.threads, func(t *thread) bool { return t.tid == tid }) {
		return nil, fs.ErrNotExist
	}
	var b bytes.Buffer
	switch name {
	case process.Stat:
		fmt.Fprintf(&b, "%d (%s) S %d 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", tid, p.program.comm, p.ppid,
			p.started)
	case process.Maps:
		byAddress := func(a, b *mapping) int { return cmp.Compare(a.start, b.start) }
		for _, m := range slices.SortedFunc(slices.Values(p.maps), byAddress) {
			if m.file.generated {
				fmt.Fprintf(&b, "%x-%x rwxp 00000000 00:00 0 \n", m.start, m.start+sizeOf)
				continue
			}
			fmt.Fprintf(&b, "%x-%x r-xp 00000000 %02x:%02x %d %s\n", m.start, m.start+sizeOf, unix.Major(m.file.stat.Dev),
				unix.Minor(m.file.stat.Dev), m.file.stat.Ino, m.file.name())
		}
	case process.Cmdline:
		b.WriteString(p.program.comm + "\x00")
	}
	if a.m.plan.Maps > 0 {
		return io.NopCloser(slowText{&b}), nil
	}
	return io.NopCloser(&b), nil
}

// Numbers is for [process.Texts].
func (a access) Numbers(pid uint32) (all []uint32, err error) {
	if pid != 0 {
		p, err := a.wait(a.ask("threads", pid), pid, answer)
		if err != nil {
			return nil, err
		}
		a.m.mu.Lock()
		defer a.m.mu.Unlock()
		for _, t := range p.threads {
			all = append(all, t.tid)
		}
		return all, nil
	}
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	for _, p := range a.m.processes {
		all = append(all, p.pid)
	}
	return all, nil
}

// Owner is for [process.Texts].
func (a access) Owner(pid uint32) (uint32, error) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if p := a.m.byPID[pid]; p == nil || p.ended {
		return 0, fs.ErrNotExist
	}
	return 1000 + pid%3, nil
}

// open opens a file after a while. At the path of a file that was replaced, there is another one.
func (a access) open(pid uint32, path string, mapped *file) (*os.File, error) {
	r := a.ask("open "+path, pid)
	took := 50 * time.Microsecond
	a.m.mu.Lock()
	f := mapped
	if f == nil {
		f = a.m.files[path]
	}
	switch {
	case a.m.happens(r, "hang"):
		took = 10 * time.Second
	case a.m.happens(r, "slow"):
		took = 400 * time.Millisecond
	}
	refused := a.m.happens(r, "refused")
	a.m.mu.Unlock()
	_, err := a.wait(r, pid, took)
	switch {
	case err != nil && pid != 0:
		return nil, err
	case f == nil:
		return nil, fs.ErrNotExist
	case refused:
		return nil, fs.ErrPermission
	}
	a.m.mu.Lock()
	if f.replacedBy != nil && mapped == nil {
		f = f.replacedBy
	}
	a.m.mu.Unlock()
	return os.Open(f.real)
}

// OpenPath is for [process.FileAccess].
func (a access) OpenPath(pid uint32, path string, _, _ uint64) (*os.File, error) {
	return a.open(pid, path, nil)
}

// OpenMapped is for [process.FileAccess].
func (a access) OpenMapped(pid uint32, start, _ uint64) (*os.File, string, error) {
	a.m.mu.Lock()
	var is *file
	if p := a.m.byPID[pid]; p != nil && !p.ended {
		for _, m := range p.maps {
			if m.start == start {
				is = m.file
			}
		}
	}
	a.m.mu.Unlock()
	if is == nil {
		return nil, "", fs.ErrNotExist
	}
	f, err := a.open(pid, is.path, is)
	return f, is.name(), err
}

// OpenWithin is for [process.FileAccess].
func (a access) OpenWithin(uint32, string) (*os.File, error) { return nil, fs.ErrNotExist }

// Stat is for [process.FileAccess].
func (a access) Stat(pid uint32, path string) (st unix.Stat_t, err error) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	f := a.m.files[path]
	if p := a.m.byPID[pid]; f == nil || pid != 0 && (p == nil || p.ended) {
		return st, fs.ErrNotExist
	}
	if f.replacedBy != nil {
		f = f.replacedBy
	}
	return f.stat, nil
}
