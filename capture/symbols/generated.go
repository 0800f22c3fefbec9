package symbols

import (
	"bytes"
	"cmp"
	"io"
	"slices"
	"sort"

	"unspool/unwind/jit/perfmap"
)

// Generated holds the names of the code that one process generated at run time, as its runtime wrote them
// down: in a jitdump, which has the times at which code was at its addresses, or in a perf map, which has
// none. The perf map as the recording has kept it comes before what is at its path now.
type Generated struct {
	dump, kept, perfMap codes

	// Refused is the path of a file with names that was not used, "" for none. A problem says why.
	Refused string
	Runs    bool // the process is still there
}

// A KeptMap gives the perf map of a process that a recording has kept, and the PID in its name; nil for none. time is
// one at which the process lived, 0 if unknown.
type KeptMap func(pid uint32, time uint64) (r io.ReadCloser, number uint32)

// SetKeptMaps tells where perf maps are that the recording has kept.
func (s *Symbolizer) SetKeptMaps(of KeptMap) { s.keptMap = of }

// Generated returns the names of the code that a process generated. dump is the path of the jitdump that the
// process mapped, "" for none. time is one at which the process lived, in ns of the samples' clock; 0 if
// unknown. A file that cannot be used is a problem; that a process has no generated code is none.
func (s *Symbolizer) Generated(pid uint32, dump string, time uint64) *Generated {
	g := &Generated{dump: codes{room: &s.room}, kept: codes{room: &s.room}, perfMap: codes{room: &s.room}}
	p := s.writer(pid, time)
	g.Runs = p.runs
	if s.keptMap != nil {
		if r, number := s.keptMap(pid, time); r != nil {
			path := perfmap.Path(number)
			s.Contain(path, "names of generated code", func() { s.readKept(g, path, r) })
			r.Close()
		}
	}
	if dump != "" {
		s.Contain(dump, "names of generated code", func() { s.readJitdump(g, p, dump) })
	}
	path := perfmap.Path(p.pid)
	s.Contain(path, "names of generated code", func() { s.readPerfMap(g, p, path) })
	return g
}

// all are the pieces of code, those first that are believed first.
func (g *Generated) all() [3]*codes { return [...]*codes{&g.dump, &g.kept, &g.perfMap} }

// Len is the number of pieces of code.
func (g *Generated) Len() (n int) {
	for _, c := range g.all() {
		n += len(c.list)
	}
	return n
}

// Find returns the index of the code that was at an address in memory at a time, in ns of CLOCK_MONOTONIC.
func (g *Generated) Find(addr, time uint64) (int, bool) {
	before := 0
	for _, c := range g.all() {
		if i, ok := c.find(addr, time); ok {
			return before + i, true
		}
		before += len(c.list)
	}
	return 0, false
}

// At returns the i-th piece of code. Its address is an address in memory.
func (g *Generated) At(i int) (f Func) {
	for _, c := range g.all() {
		if i < len(c.list) {
			k := &c.list[i]
			return Func{Name: string(c.names[k.name:][:k.nameSize]), Addr: k.addr, Size: uint64(k.size)}
		}
		i -= len(c.list)
	}
	return f
}

// codes are pieces of code, later ones of which replace earlier ones. All are added, and then sorted once.
type codes struct {
	list  []code
	ends  []uint64 // for each of list, the largest end of it and those before
	names []byte
	room  *room // nil for no bound but that of one process
}

// code is a piece of code that was at [addr, addr+size) from a time on.
type code struct {
	addr, time uint64
	size       uint32
	seq        uint32 // in the order of writing
	name       uint32
	nameSize   uint32 // 0 if the code was removed from there
}

// Limits on what a process may claim, and all of them together. Large servers in Java or JavaScript have some
// 100,000 functions.
const (
	maxCodes     = 1 << 21
	maxCodeNames = 128 << 20

	maxAllCodes     = 2 * maxCodes
	maxAllCodeNames = 2 * maxCodeNames
)

// A room is what there is for the generated code of all processes.
type room struct {
	codes, names int
	perfMaps     int64 // bytes of perf maps to read
}

func newRoom() room { return room{maxAllCodes, maxAllCodeNames, maxAllPerfMaps} }

// take takes room for a piece of code.
func (r *room) take(name int) bool {
	if r == nil {
		return true
	}
	if r.codes == 0 || r.names < name {
		return false
	}
	r.codes--
	r.names -= name
	return true
}

// add adds a piece of code. It reports false when there is no room for more.
func (c *codes) add(addr, size, time uint64, name []byte) bool {
	name = name[:min(len(name), maxName)]
	if len(c.list) >= maxCodes || len(c.names)+len(name) > maxCodeNames || !c.room.take(len(name)) {
		return false
	}
	if size > 0 && addr+size > addr {
		c.list = append(c.list, code{addr, time, uint32(min(size, 1<<32-1)), uint32(len(c.list)),
			uint32(len(c.names)), uint32(len(name))})
		c.names = append(c.names, name...)
	}
	return true
}

func (c *codes) sort() {
	slices.SortFunc(c.list, func(x, y code) int {
		return cmp.Or(cmp.Compare(x.addr, y.addr), cmp.Compare(x.time, y.time), cmp.Compare(x.seq, y.seq))
	})
	c.list, c.names = slices.Clip(c.list), bytes.Clone(c.names)
	c.ends = make([]uint64, len(c.list))
	var end uint64
	for i := range c.list {
		k := &c.list[i]
		end = max(end, k.addr+uint64(k.size))
		c.ends[i] = end
	}
}

// find returns the youngest code that was at addr at the time. If there was none yet, it returns the youngest
// at any time, as a runtime may run code a moment before it writes the record.
func (c *codes) find(addr, time uint64) (int, bool) {
	i, ok := c.youngest(addr, time)
	if !ok {
		i, ok = c.youngest(addr, ^uint64(0))
	}
	return i, ok && c.list[i].nameSize > 0
}

// youngest examines one piece of code for each start address: the last one there at the time. Old code may
// reach across the starts of many younger ones, so many starts below addr are examined.
func (c *codes) youngest(addr, time uint64) (found int, ok bool) {
	const across = 256
	at := addr
	for range across {
		i := sort.Search(len(c.list), func(i int) bool {
			k := &c.list[i]
			return k.addr > at || k.addr == at && k.time > time
		}) - 1
		if i < 0 || c.ends[i] <= addr {
			break
		}
		k := &c.list[i]
		if k.time > time { // too young: search for an older one with the same start
			at = k.addr
			continue
		}
		if addr-k.addr < uint64(k.size) && (!ok || k.after(&c.list[found])) {
			found, ok = i, true
		}
		if k.addr == 0 {
			break
		}
		at = k.addr - 1
	}
	return found, ok
}

func (k *code) after(other *code) bool {
	return cmp.Or(cmp.Compare(k.time, other.time), cmp.Compare(k.seq, other.seq)) > 0
}
