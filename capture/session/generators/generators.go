package generators

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"unspool/capture/counts"
	"unspool/capture/output/human"
	"unspool/capture/perfdata"
	"unspool/capture/symbols/runtimes"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/jit/jitdump"
	"unspool/vmas"
	"unspool/vmas/process"
)

// A ProcessSet is the processes that were sampled in code that they have generated. Their perf maps are looked for
// while they run, as nobody knows later where these were, or what the process's PID was there. Maps are opened and read
// by other goroutines than that which drains the rings.
type ProcessSet struct {
	access process.Access
	aside  process.Reader
	keeps  bool // the recording keeps the maps
	pieces bool // it has several files, each of which keeps them

	all     []*generator
	bySpace map[uint64]*generator // by address space
	last    *generator            // the one found last
	left    uint64                // user stacks through the code of processes for which there was no room

	slots  chan struct{}  // one for each map that is looked for
	busy   sync.WaitGroup // likewise
	packed atomic.Int64   // bytes that are kept of all maps
}

const (
	// mostGenerators bounds the processes whose maps are looked for, and so the open files.
	mostGenerators = 256
	// mostPacked bounds what is kept of all maps, in bytes: less than [perfdata.Reader.PerfMaps] reads.
	mostPacked = 48 << 20
	// mostLooking is how many maps are looked for at the same time.
	mostLooking = 4
	// lookEvery is how long it is not looked for a map that was not there, and refreshEvery likewise for one of which
	// there is to be more, in ns of the samples' clock.
	lookEvery    = uint64(time.Second)
	refreshEvery = uint64(3 * time.Second)
)

// A generator is such a process.
type generator struct {
	space   uint64
	pid     uint32
	name    string
	since   uint64 // time of the first sample
	runtime *runtimes.Runtime
	through uint64 // user stacks that go through its code
	broken  uint64 // those of them that may have ended early for that
	dump    bool   // it writes a jitdump
	next    uint64 // when to look for the map again
	ended   bool

	looking atomic.Bool
	mu      sync.Mutex
	perfMap keptMap
}

// A keptMap is what is known of a perf map.
type keptMap struct {
	number   uint32 // the PID in its name
	file     *os.File
	size     int64 // when it was packed
	modified time.Time
	packed   []byte
	err      error // why not all of it is kept
	refused  error // why it is not used
}

// New returns none so far. keeps means that their perf maps are kept, and pieces that the recording has
// several files, each of which keeps them.
func New(access process.Access, keeps, pieces bool) *ProcessSet {
	return &ProcessSet{access: access, aside: process.Aside(access), keeps: keeps, pieces: pieces,
		bySpace: make(map[uint64]*generator), slots: make(chan struct{}, mostLooking)}
}

// Sampled notes a user stack, and looks for the map of its process now and then.
func (g *ProcessSet) Sampled(space *vmas.Space, sm *perfring.Sample, r *unwind.Result) {
	if space.Generated == nil || !throughGenerated(space, r.IPs) {
		return
	}
	p := g.last
	if p == nil || p.space != space.ID() {
		if p = g.of(space, sm.Time); p == nil {
			g.left++
			return
		}
		g.last = p
	}
	p.through++
	if r.End.MayBeBroken() {
		p.broken++
	}
	if sm.Time < p.next || p.ended {
		return
	}
	p.next = sm.Time + lookEvery
	if !p.dump {
		p.dump = mapsJitdump(space)
	}
	g.look(p)
}

// throughGenerated reports whether any address is in generated code.
func throughGenerated(space *vmas.Space, ips []uint64) bool {
	for i, ip := range ips {
		if i > 0 {
			ip-- // the call
		}
		if m := space.Find(ip); m != nil && counts.PathOf(m) == counts.GeneratedCode {
			return true
		}
	}
	return false
}

// of is the generator of an address space, nil if there is no room for more.
func (g *ProcessSet) of(space *vmas.Space, time uint64) *generator {
	p := g.bySpace[space.ID()]
	if p == nil && len(g.all) < mostGenerators {
		p = &generator{space: space.ID(), pid: space.PID, name: space.Comm(space.PID), since: time,
			runtime: runtimes.Of(space.Files())}
		g.bySpace[p.space] = p
		g.all = append(g.all, p)
	}
	return p
}

func mapsJitdump(space *vmas.Space) bool {
	for file := range space.Files() {
		if jitdump.IsName(file) {
			return true
		}
	}
	return false
}

// Over notes that the program of a process has ended: what it has written is read before another one can write there.
func (g *ProcessSet) Over(pid uint32) {
	for _, p := range g.all {
		if p.pid == pid && !p.ended {
			p.ended = true
			g.look(p)
		}
	}
}

// look has another goroutine look for a map, unless that is under way or too many are.
func (g *ProcessSet) look(p *generator) {
	if p.looking.Swap(true) {
		return
	}
	select {
	case g.slots <- struct{}{}:
	default:
		p.looking.Store(false)
		return
	}
	ended, pack := p.ended, g.keeps && (p.ended || g.pieces)
	if g.pieces {
		p.next = p.next - lookEvery + refreshEvery
	}
	g.busy.Go(func() {
		g.update(p, ended, pack)
		p.looking.Store(false)
		<-g.slots
	})
}

// update opens the map of a process that has not ended, and packs it.
func (g *ProcessSet) update(p *generator, ended, pack bool) {
	p.mu.Lock()
	m := p.perfMap
	p.mu.Unlock()
	if !ended {
		switch file, number, err := g.open(p.pid); {
		case err == nil:
			m.refused = nil
			if m.file != nil && isSame(m.file, file) {
				file.Close()
			} else {
				m.file.Close() // which may be nil
				m.file, m.number = file, number
			}
		case !errors.Is(err, fs.ErrNotExist) && m.file == nil:
			m.refused = err
		}
	}
	if pack && m.file != nil {
		g.pack(&m)
	}
	p.mu.Lock()
	p.perfMap = m
	p.mu.Unlock()
}

func isSame(a, b *os.File) bool {
	one, err := process.Fstat(a)
	other, oerr := process.Fstat(b)
	return err == nil && oerr == nil && one.Dev == other.Dev && one.Ino == other.Ino
}

// mostStatus is more than there is in a process's status.
const mostStatus = 16 << 10

// open opens the perf map of a process. It has to belong to the process's user or to root.
func (g *ProcessSet) open(pid uint32) (file *os.File, number uint32, err error) {
	text, err := g.aside.Text(pid, pid, process.Status, mostStatus)
	if err != nil {
		return nil, 0, fs.ErrNotExist // it has ended
	}
	status, err := io.ReadAll(io.LimitReader(text, mostStatus))
	text.Close()
	is := process.ParseStatus(string(status))
	if err != nil || len(is.Users) == 0 {
		return nil, 0, fs.ErrNotExist
	}
	if is.Own == 0 {
		is.Own = pid
	}
	if file, err = g.access.OpenPerfMap(pid, is.Own); err != nil {
		return nil, 0, err
	}
	if err = is.Wrote(file); err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, is.Own, nil
}

// pack reads a map, unless it is as it was.
func (g *ProcessSet) pack(m *keptMap) {
	info, err := m.file.Stat()
	if err != nil || m.packed != nil && info.Size() == m.size && info.ModTime().Equal(m.modified) {
		return
	}
	before := int64(len(m.packed))
	m.size, m.modified = info.Size(), info.ModTime()
	packed, err := perfdata.PackPerfMap(io.NewSectionReader(m.file, 0, m.size), int(mostPacked-g.packed.Load()+before))
	if g.packed.Add(int64(len(packed))-before) > mostPacked { // others were faster
		g.packed.Add(-int64(len(packed)))
		packed, err = nil, perfdata.ErrLongPerfMap
	}
	m.packed, m.err = packed, err
}

// graceToKeep is how long the maps may take that are read at the end.
const graceToKeep = 2 * time.Second

// Finish reads the maps a last time. The rings are empty.
func (g *ProcessSet) Finish() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.busy.Wait()
		for _, p := range g.all {
			g.slots <- struct{}{}
			g.busy.Go(func() {
				g.update(p, p.ended, g.keeps)
				<-g.slots
			})
		}
		g.busy.Wait()
	}()
	select {
	case <-done:
	case <-time.After(graceToKeep):
	}
}

// Kept are the maps as far as they were read. A process without one has an empty one if another had its PID.
func (g *ProcessSet) Kept() (maps []perfdata.PerfMap) {
	processes := make(map[uint32]int)
	for _, p := range g.all {
		processes[p.pid]++
	}
	for _, p := range g.all {
		p.mu.Lock()
		m := p.perfMap
		p.mu.Unlock()
		if m.packed != nil || processes[p.pid] > 1 {
			maps = append(maps, perfdata.PerfMap{Time: p.since, PID: p.pid, Number: m.number, Packed: m.packed})
		}
	}
	return maps
}

// Close closes the maps.
func (g *ProcessSet) Close() {
	for _, p := range g.all {
		p.mu.Lock()
		p.perfMap.file.Close() // which may be nil
		p.mu.Unlock()
	}
}

// Notes are what a user wants to know of it.
func (g *ProcessSet) Notes() *counts.GeneratedStats {
	t := new(counts.GeneratedStats)
	for _, p := range g.all {
		p.mu.Lock()
		m := p.perfMap
		p.mu.Unlock()
		of := runtimes.Process{PID: p.pid, Name: p.name, Runtime: p.runtime, Runs: !p.ended, Samples: p.through}
		switch {
		case p.dump || m.file != nil && m.size+m.sizeNow() > 0:
			of.Written = runtimes.Names
		case m.refused != nil:
			of.Written, of.Why = runtimes.Refused, m.refused.Error()
		}
		if of.Written != runtimes.Names {
			t.Nameless = append(t.Nameless, of)
		}
		if m.err != nil {
			t.Cut = append(t.Cut, fmt.Sprintf("the perf map of process %d is kept in part only: %v", p.pid, m.err))
		}
		if of.Samples = p.broken; p.runtime.Frames() != "" {
			t.Broken = append(t.Broken, of)
		}
	}
	if g.left > 0 {
		t.Cut = append(t.Cut, fmt.Sprintf("perf maps are kept of %d processes: %s went through the generated code of others",
			mostGenerators, human.Plural(g.left, "user stack")))
	}
	return t
}

// sizeNow is the size of the file.
func (m *keptMap) sizeNow() int64 {
	if info, err := m.file.Stat(); err == nil {
		return info.Size()
	}
	return 0
}
