package machine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// isLarge reports whether a plan is of a machine that is large in some way: see [Plan].
func (p *Plan) isLarge() bool { return p.Rate > 0 || p.Maps > 0 || p.Period > 0 || p.Hz > 0 }

// isLong reports whether a recording is so long that not all of it is kept.
func (p *Plan) isLong() bool { return p.Time >= time.Hour }

// longPart is how much a file of a long recording holds, and how much a flight recorder keeps.
const longPart = 15 * time.Minute

// pause is the time between two things that happen on a CPU.
func (m *Machine) pause(c *cpu) uint64 {
	if m.plan.Hz > 0 {
		return uint64(time.Second) / uint64(m.plan.Hz)
	}
	return 1 + uint64(c.r.Int64N(2*int64(m.period())))
}

// period is the mean time between two things that happen on a CPU.
func (m *Machine) period() time.Duration {
	if m.plan.Period > 0 {
		return m.plan.Period
	}
	return period
}

// A large is what is known of a machine that is large.
type large struct {
	starts float64 // the share of all that happens which is the start of a process
	fresh  int     // files that were made for one process each
	many   *task   // the process with very many mappings, nil if there is none
	next   uint64  // where it maps a file next
}

// newLarge chooses the process that has many mappings.
func newLarge(m *Machine) (l large) {
	each := m.period().Seconds() / float64(m.plan.CPUs)
	l.starts = float64(m.plan.Rate) * each
	if m.plan.Maps > 0 {
		l.many, l.next = m.processes[0], manyAt
	}
	return l
}

const (
	manyAt     = 0x6000_0000_0000 // where the process with many mappings has the first of them
	manyApart  = 0x10000
	atATime    = 128 // files are mapped
	oneOfFresh = 16  // programs is a file that no other process executes
)

// happenLarge lets something happen that happens on large machines only.
func (m *Machine) happenLarge(c *cpu) bool {
	switch r := c.r; {
	case m.plan.Hz > 0:
		m.tick(r, c)
	case m.plan.Rate > 0 && r.Float64() < m.large.starts:
		m.startShort(r, c)
	case m.large.many != nil && r.IntN(4) == 0:
		m.mapMany(r, c)
	default:
		return false
	}
	return true
}

// tick samples a thread, by the clock.
func (m *Machine) tick(r *rand.Rand, c *cpu) {
	t := m.processes[r.IntN(len(m.processes))]
	th := t.threads[r.IntN(len(t.threads))]
	th.step(r, 6+r.IntN(20))
	c.sample(t, th)
}

// startShort starts a process, and ends another one if there are enough.
func (m *Machine) startShort(r *rand.Rand, c *cpu) {
	if n := len(m.processes); n > m.plan.Processes {
		m.end(r, m.processes[r.IntN(n)], c)
	}
	m.forkOf(r, c, m.processes[r.IntN(len(m.processes))])
}

// forkOf forks a process, which mostly executes another program: with "fresh", one of 16 a file that is new.
func (m *Machine) forkOf(r *rand.Rand, c *cpu, parent *task) {
	child := m.forkTask(r, c, parent)
	switch r.IntN(16) {
	case 0:
	case 1:
		if m.plan.has("fresh") {
			m.executeFile(r, child, m.freshFile(r), c)
		}
	default:
		m.execute(r, child, c)
	}
}

// freshFile makes a file that no process has mapped yet, as a compiler does.
func (m *Machine) freshFile(r *rand.Rand) *file {
	f := *m.program[r.IntN(len(m.program))]
	m.large.fresh++
	f.path = fmt.Sprintf("/usr/fresh-%d", m.large.fresh)
	contents := slices.Clone(f.image.bytes)
	le.PutUint64(contents[buildIDAt:], 0x1_0000_0000+uint64(m.large.fresh))
	f.real = filepath.Join(filepath.Dir(f.real), filepath.Base(f.path))
	if err := f.write(contents); err != nil {
		panic(err)
	}
	m.files[f.path] = &f
	return &f
}

// mapMany has the process with many mappings map files, one after the other; when it has all of them, in the place of
// others, whole ones and halves. Now and then it is forked.
func (m *Machine) mapMany(r *rand.Rand, c *cpu) {
	t := m.large.many
	if t.ended {
		return
	}
	for range atATime {
		n := &mapping{m.large.next, m.library[r.IntN(len(m.library))]}
		if len(t.maps) < m.plan.Maps {
			m.large.next += manyApart
			t.maps = append(t.maps, n)
			c.mmap(t, t.pid, n)
			continue
		}
		i := 3 + r.IntN(len(t.maps)-3) // behind those that it began with
		old := t.maps[i]
		if t.isUsed(old) {
			continue
		}
		n.start = old.start
		if r.IntN(2) == 0 {
			n.start ^= sizeOf / 2 // what is left of the old mapping is unmapped, which no record tells
		}
		t.maps[i] = n
		c.mmap(t, t.pid, n)
	}
	if len(m.processes) > m.plan.Processes {
		if o := m.processes[r.IntN(len(m.processes))]; o != t {
			m.end(r, o, c)
		}
	} else if r.IntN(64) == 0 {
		child := m.forkTask(r, c, t)
		if r.IntN(2) == 0 {
			m.execute(r, child, c)
		} else {
			m.mapFile(r, child, m.library[r.IntN(len(m.library))], c, child.pid)
		}
	}
}

// A slowText is read as fast as the kernel writes maps: a line takes about 400 ns.
type slowText struct{ text *bytes.Buffer }

func (s slowText) Read(b []byte) (n int, err error) {
	n, err = s.text.Read(b)
	time.Sleep(time.Duration(n) * 8 * time.Nanosecond)
	return n, err
}

// forget forgets the right stacks that no file has any more that will be read.
func (j *judge) forget(now uint64) {
	if len(j.right)%1024 != 0 {
		return
	}
	for t := range j.right {
		if t+uint64(4*longPart) < now {
			delete(j.right, t)
		}
	}
}

// write makes a file.
func (f *file) write(contents []byte) error {
	if err := os.WriteFile(f.real, contents, 0o755); err != nil {
		return err
	}
	return unix.Stat(f.real, &f.stat)
}
