package symbols

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
)

// Generated holds the names of the code that one process generated at run time, as its runtime wrote them down: in a jitdump,
// which tells when code was where, and in a perf map, which does not.
type Generated struct {
	dump, perfMap codes
}

// Generated returns the names of the code that a process generated. Dump is the path of the jitdump that the process mapped, ""
// for none. Time, in ns of the clock of the samples, is one at which the process lived; 0 when unknown. What cannot be used is
// among the problems; a process without generated code has none.
func (s *Symbolizer) Generated(pid uint32, dump string, time uint64) *Generated {
	g := &Generated{}
	p := s.process(pid, time)
	if dump != "" {
		s.readJitdump(&g.dump, p, dump)
	}
	s.readPerfMap(&g.perfMap, p)
	return g
}

// Len is the number of pieces of code.
func (g *Generated) Len() int { return len(g.dump.list) + len(g.perfMap.list) }

// Find returns the index of the code that was at an address in memory at a time, in ns of CLOCK_MONOTONIC.
func (g *Generated) Find(addr, time uint64) (int, bool) {
	if i, ok := g.dump.find(addr, time); ok {
		return i, true
	}
	i, ok := g.perfMap.find(addr, time)
	return len(g.dump.list) + i, ok
}

// At returns the i-th piece of code. Its address is one in memory.
func (g *Generated) At(i int) Func {
	c := &g.dump
	if n := len(c.list); i >= n {
		c, i = &g.perfMap, i-n
	}
	k := &c.list[i]
	return Func{Name: string(c.names[k.name:][:k.nameSize]), Addr: k.addr, Size: uint64(k.size)}
}

// codes are pieces of code, of which later ones replace earlier ones. They are added, then sorted once.
type codes struct {
	list  []code
	ends  []uint64 // for each of list, the largest end so far
	names []byte
}

// code is a piece of code that was at [addr, addr+size) from a time on.
type code struct {
	addr, time uint64
	size       uint32
	seq        uint32 // in the order of writing
	name       uint32
	nameSize   uint32 // 0 where nothing is any more
}

// Limits on what a process may claim. Large servers in Java or JavaScript have some 100,000 functions.
const (
	maxCodes     = 1 << 22
	maxCodeNames = 256 << 20
)

// add adds a piece of code. It reports false when there is no room for more.
func (c *codes) add(addr, size, time uint64, name []byte) bool {
	name = name[:min(len(name), maxName)]
	if len(c.list) >= maxCodes || len(c.names)+len(name) > maxCodeNames {
		return false
	}
	if size > 0 && addr+size > addr {
		c.list = append(c.list, code{addr, time, uint32(min(size, 1<<32-1)), uint32(len(c.list)), uint32(len(c.names)), uint32(len(name))})
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

// find returns the youngest code that was at addr at the time; or, where there was none yet, the youngest of all, as the runtime
// may run code a moment before it writes of it.
func (c *codes) find(addr, time uint64) (int, bool) {
	i, ok := c.youngest(addr, time)
	if !ok {
		i, ok = c.youngest(addr, ^uint64(0))
	}
	return i, ok && c.list[i].nameSize > 0
}

// youngest looks at one piece of code for each start: the last one there at the time. Old code may lie across much younger
// code, so many that start further down are looked at.
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
		if k.time > time { // of the last start below at, which has not been searched yet
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
