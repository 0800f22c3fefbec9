package vmas

import (
	"iter"
	"slices"
)

// layout is the mappings of a space, sorted by address, none overlapping another. They lie in chunks
// of bounded size, so that a record of a process with very many mappings costs as little as one of a
// process with few. A forked process shares its parent's layout until one of the two changes, and after
// that the chunks that did not change: refs counts the spaces that share the layout, and in a chunk the
// layouts that share the chunk.
type layout struct {
	chunks []*chunk // none of them empty
	ends   []uint64 // where the last mapping of each chunk ends
	n      int      // mappings
	refs   int
}

// chunkSize is how many mappings a chunk has at most. The benchmarks of Mmap are slower with half as many,
// as a process with very many mappings then copies more chunks after a fork; and with twice as many, as more
// mappings are moved.
const chunkSize = 64

type chunk struct {
	maps []Mapping
	ends []uint64 // of maps; apart from them, so that a search reads little memory
	refs int
}

// position is where a mapping is in a layout.
type position struct{ chunk, index int }

// firstBehind returns the index of the first of some ascending ends that is greater than addr.
func firstBehind(ends []uint64, addr uint64) int {
	lo, hi := 0, len(ends)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if ends[mid] > addr {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// search returns the first mapping that ends after addr, nil when there is none.
func (l *layout) search(addr uint64) *Mapping {
	if at := l.position(addr); at.chunk < len(l.chunks) {
		return &l.chunks[at.chunk].maps[at.index]
	}
	return nil
}

// position returns where the first mapping is that ends after addr.
func (l *layout) position(addr uint64) position {
	at := position{}
	if len(l.ends) != 1 || l.ends[0] <= addr { // most programs have one chunk
		at.chunk = firstBehind(l.ends, addr)
	}
	if at.chunk < len(l.chunks) {
		at.index = firstBehind(l.chunks[at.chunk].ends, addr)
	}
	return at
}

// from yields the mappings that end after addr, in order.
func (l *layout) from(addr uint64) iter.Seq[*Mapping] {
	return func(yield func(*Mapping) bool) {
		for at := l.position(addr); at.chunk < len(l.chunks); at = (position{chunk: at.chunk + 1}) {
			maps := l.chunks[at.chunk].maps
			for i := at.index; i < len(maps); i++ {
				if !yield(&maps[i]) {
					return
				}
			}
		}
	}
}

// insert adds m as MAP_FIXED does: mappings that m covers are removed, and those that it covers in part are
// trimmed or split. A mapping that is not executable only removes others. A mapping that continues the one
// before it becomes a part of that.
func (l *layout) insert(fs *files, m Mapping) {
	executable := m.Prot&ProtExec != 0
	if executable {
		fs.retain(&m) // first, as what it covers may be of the same file
	}
	if executable && l.replace(fs, &m) {
		return
	}
	at := l.position(m.Start)
	if l.covers(at, m.End) {
		l.cut(fs, m.Start)
		l.cut(fs, m.End)
		l.clear(fs, m.Start, m.End)
		at = l.position(m.Start)
	}
	switch {
	case !executable:
	case l.extend(fs, &m):
		fs.release(&m)
	default:
		l.put(fs, at, m)
	}
}

// covers reports whether the mapping at a position, if there is one, starts before end.
func (l *layout) covers(at position, end uint64) bool {
	return at.chunk < len(l.chunks) && l.chunks[at.chunk].maps[at.index].Start < end
}

// replace puts m in the place of a mapping of exactly the same range, if there is one: this is how most
// mappings are replaced.
func (l *layout) replace(fs *files, m *Mapping) bool {
	at := l.position(m.Start)
	if at.chunk == len(l.chunks) {
		return false
	}
	if e := &l.chunks[at.chunk].maps[at.index]; e.Start != m.Start || e.End != m.End {
		return false
	}
	e := &l.own(fs, at.chunk).maps[at.index]
	fs.release(e)
	*e = *m
	return true
}

// extend adds m to the mapping that it continues, if there is one.
func (l *layout) extend(fs *files, m *Mapping) bool {
	if m.Start == 0 {
		return false
	}
	at := l.position(m.Start - 1)
	if at.chunk == len(l.chunks) || !m.continues(&l.chunks[at.chunk].maps[at.index]) {
		return false
	}
	c := l.own(fs, at.chunk)
	before := &c.maps[at.index]
	before.End, before.seq = m.End, m.seq
	c.ends[at.index] = m.End
	l.ends[at.chunk] = c.ends[len(c.ends)-1]
	return true
}

// cut splits the mapping that lies on both sides of addr.
func (l *layout) cut(fs *files, addr uint64) {
	at := l.position(addr)
	if at.chunk == len(l.chunks) || l.chunks[at.chunk].maps[at.index].Start >= addr {
		return
	}
	c := l.own(fs, at.chunk)
	left := &c.maps[at.index]
	right := *left
	right.Offset += addr - right.Start
	right.Start = addr
	left.End, c.ends[at.index] = addr, addr
	fs.retain(&right)
	at.index++
	l.put(fs, at, right)
}

// put inserts a mapping, which the caller has retained, at its position. Behind the last chunk it goes to
// the end of that chunk.
func (l *layout) put(fs *files, at position, m Mapping) {
	if at.chunk == len(l.chunks) {
		if at.chunk == 0 {
			l.chunks = append(l.chunks, &chunk{refs: 1})
			l.ends = append(l.ends, 0)
		} else {
			at.chunk--
		}
		at.index = len(l.chunks[at.chunk].maps)
	}
	if len(l.own(fs, at.chunk).maps) == chunkSize {
		at = l.split(at)
	}
	c := l.chunks[at.chunk]
	c.maps = slices.Insert(c.maps, at.index, m)
	c.ends = slices.Insert(c.ends, at.index, m.End)
	l.ends[at.chunk] = c.ends[len(c.ends)-1]
	l.n++
}

// split makes two chunks of a full one, and returns where the mapping goes that was to be at a position of it. Halves
// are left, but where it would be the first or the last one of all: the kernel maps files one below the other, and
// chunks that are left behind by that stay as they are.
func (l *layout) split(at position) position {
	c, half := l.chunks[at.chunk], chunkSize/2
	switch {
	case at.chunk == 0 && at.index == 0:
		half = 0
	case at.chunk == len(l.chunks)-1 && at.index == chunkSize:
		half = chunkSize
	}
	right := &chunk{refs: 1, maps: slices.Clone(c.maps[half:]), ends: slices.Clone(c.ends[half:])}
	c.maps, c.ends = slices.Delete(c.maps, half, chunkSize), c.ends[:half]
	end := l.ends[at.chunk]
	if half > 0 {
		l.ends[at.chunk] = c.ends[half-1]
	}
	l.chunks = slices.Insert(l.chunks, at.chunk+1, right)
	l.ends = slices.Insert(l.ends, at.chunk+1, end)
	if half > 0 && at.index >= half {
		return position{at.chunk + 1, at.index - half}
	}
	return at
}

// clear removes all mappings from start to end. No mapping lies across start or end.
func (l *layout) clear(fs *files, start, end uint64) {
	for {
		at := l.position(start)
		if at.chunk == len(l.chunks) {
			return
		}
		maps := l.chunks[at.chunk].maps
		behind := at.index
		for behind < len(maps) && maps[behind].Start < end {
			behind++
		}
		switch behind - at.index {
		case 0:
			return
		case len(maps):
			l.chunks[at.chunk].drop(fs)
			l.remove(at.chunk)
			l.n -= len(maps)
		default:
			l.delete(fs, at, behind)
		}
	}
}

// delete removes the mappings of a chunk from the position at up to the index behind, exclusive.
func (l *layout) delete(fs *files, at position, behind int) {
	c := l.own(fs, at.chunk)
	for i := at.index; i < behind; i++ {
		fs.release(&c.maps[i])
	}
	c.maps = slices.Delete(c.maps, at.index, behind)
	c.ends = slices.Delete(c.ends, at.index, behind)
	l.ends[at.chunk] = c.ends[len(c.ends)-1]
	l.n -= behind - at.index
	l.join(fs, at.chunk)
	if at.chunk > 0 {
		l.join(fs, at.chunk-1)
	}
}

// join makes one chunk of a chunk and the next if both are small. Otherwise a process that unmaps most of
// its mappings could have very many chunks.
func (l *layout) join(fs *files, i int) {
	if i+1 >= len(l.chunks) || len(l.chunks[i].maps)+len(l.chunks[i+1].maps) > chunkSize/2 {
		return
	}
	c, next := l.own(fs, i), l.own(fs, i+1)
	c.maps = append(c.maps, next.maps...)
	c.ends = append(c.ends, next.ends...)
	l.ends[i] = l.ends[i+1]
	l.remove(i + 1)
}

// remove takes a chunk off the list.
func (l *layout) remove(i int) {
	l.chunks = slices.Delete(l.chunks, i, i+1)
	l.ends = slices.Delete(l.ends, i, i+1)
}

// own returns a chunk that this layout alone uses, in the place of one that it may share.
func (l *layout) own(fs *files, i int) *chunk {
	c := l.chunks[i]
	if c.refs == 1 {
		return c
	}
	c.refs--
	mine := &chunk{refs: 1, maps: make([]Mapping, len(c.maps), len(c.maps)+8), ends: slices.Clone(c.ends)}
	copy(mine.maps, c.maps)
	for k := range mine.maps {
		fs.retain(&mine.maps[k])
	}
	l.chunks[i] = mine
	return mine
}

// drop gives up one layout's share of the chunk.
func (c *chunk) drop(fs *files) {
	if c.refs--; c.refs > 0 {
		return
	}
	for k := range c.maps {
		fs.release(&c.maps[k])
	}
}

// drop gives up one space's share of the layout.
func (l *layout) drop(fs *files) {
	if l.refs--; l.refs > 0 {
		return
	}
	for _, c := range l.chunks {
		c.drop(fs)
	}
	*l = layout{}
}

// unshared returns a layout that one space alone uses: l itself, or another with the same chunks.
func (l *layout) unshared() *layout {
	if l.refs == 1 {
		return l
	}
	l.refs--
	for _, c := range l.chunks {
		c.refs++
	}
	return &layout{chunks: slices.Clone(l.chunks), ends: slices.Clone(l.ends), n: l.n, refs: 1}
}

// keepYoungest drops the older half of the mappings. As munmap is not reported, a space would otherwise
// grow as long as its process maps new code.
func (l *layout) keepYoungest(fs *files, now uint32) {
	ages := make([]uint32, 0, l.n)
	for m := range l.from(0) {
		ages = append(ages, now-m.seq)
	}
	slices.Sort(ages)
	limit := ages[len(ages)/2]
	young := layout{refs: 1}
	for m := range l.from(0) {
		if now-m.seq < limit {
			fs.retain(m)
			young.put(fs, position{chunk: len(young.chunks)}, *m)
		}
	}
	for _, c := range l.chunks {
		c.drop(fs)
	}
	young.refs = l.refs
	*l = young
}
