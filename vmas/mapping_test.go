package vmas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/testdata/lane"
)

// dump writes a space as "start-end@offset name" in units of a page.
func dump(s *Space) string {
	var b strings.Builder
	for m := range s.Mappings() {
		fmt.Fprintf(&b, "%d-%d@%d %s\n", m.Start>>12, m.End>>12, m.Offset>>12, m.File.Path)
	}
	return b.String()
}

// pages is a record that maps the pages from up to to as executable, from page off of a file on.
func pages(from, to, off uint64, name string) Map {
	return Map{Addr: from << 12, Len: (to - from) << 12, Offset: off << 12, Prot: ProtRead | ProtExec,
		Flags: FlagPrivate, Name: []byte(name)}
}

func data(from, to uint64) Map {
	m := pages(from, to, 0, "/data")
	m.Prot = ProtRead | ProtWrite
	return m
}

func TestMmapReplacesWhatItCovers(t *testing.T) {
	tests := []struct {
		name string
		maps []Map
		want string
	}{
		{"apart, given out of order", []Map{pages(30, 40, 0, "/b"), pages(10, 20, 5, "/a")},
			"10-20@5 /a\n30-40@0 /b\n"},
		{"what continues the one before", []Map{pages(10, 20, 0, "/a"), pages(20, 30, 10, "/a")},
			"10-30@0 /a\n"},
		{"another part of the file next to it", []Map{pages(10, 20, 0, "/a"), pages(20, 30, 11, "/a")},
			"10-20@0 /a\n20-30@11 /a\n"},
		{"another file next to it", []Map{pages(10, 20, 0, "/a"), pages(20, 30, 10, "/b")},
			"10-20@0 /a\n20-30@10 /b\n"},
		{"in the middle of what was two", []Map{pages(10, 20, 7, "/a"), pages(20, 30, 17, "/a"),
			pages(15, 25, 0, "/b")}, "10-15@7 /a\n15-25@0 /b\n25-30@22 /a\n"},
		{"memory without a file", []Map{pages(10, 20, 0, "//anon"), pages(20, 30, 0, "//anon")},
			"10-30@0 //anon\n"},
		{"the same again", []Map{pages(10, 20, 0, "/a"), pages(10, 20, 0, "/a")}, "10-20@0 /a\n"},
		{"in the middle: split", []Map{pages(10, 20, 7, "/a"), pages(13, 15, 0, "/b")},
			"10-13@7 /a\n13-15@0 /b\n15-20@12 /a\n"},
		{"over the beginning: trimmed", []Map{pages(10, 20, 7, "/a"), pages(8, 12, 0, "/b")},
			"8-12@0 /b\n12-20@9 /a\n"},
		{"over the end: trimmed", []Map{pages(10, 20, 7, "/a"), pages(18, 22, 0, "/b")},
			"10-18@7 /a\n18-22@0 /b\n"},
		{"over several", []Map{pages(10, 20, 0, "/a"), pages(20, 30, 0, "/b"), pages(30, 40, 0, "/c"),
			pages(15, 35, 0, "/d")}, "10-15@0 /a\n15-35@0 /d\n35-40@5 /c\n"},
		{"not executable, over nothing", []Map{data(10, 20)}, ""},
		{"not executable, in the middle", []Map{pages(10, 20, 0, "/a"), data(12, 14)},
			"10-12@0 /a\n14-20@4 /a\n"},
		{"not executable, next to it", []Map{pages(10, 20, 0, "/a"), data(20, 24), data(8, 10)},
			"10-20@0 /a\n"},
		{"empty range", []Map{{Addr: 4096, Prot: ProtExec}}, ""},
		{"overflowing range", []Map{{Addr: 1 << 63, Len: 1<<63 + 4096, Prot: ProtExec}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tab := NewTable("")
			for _, m := range tt.maps {
				tab.Mmap(1, m)
			}
			got := ""
			if s := tab.Space(1); s != nil {
				got = dump(s)
			}
			if got != tt.want {
				t.Errorf("mappings are\n%swant\n%s", got, tt.want)
			}
			checkTable(t, tab)
		})
	}
}

// checkTable checks what must always hold: mappings in order and apart, and reference counts that
// agree with the references.
func checkTable(t *testing.T, tab *Table) {
	t.Helper()
	layouts := map[*layout]int{}
	var chunks []*chunk
	files := map[*File]int{}
	for _, s := range tab.spaces {
		layouts[s.layout]++
	}
	for l, n := range layouts {
		if l.refs != n {
			t.Fatalf("layout has refs %d, %d spaces use it", l.refs, n)
		}
		chunks = append(chunks, checkLayout(t, l)...)
	}
	shares := map[*chunk]int{}
	for _, c := range chunks {
		if shares[c]++; shares[c] > 1 {
			continue
		}
		for _, m := range c.maps {
			files[m.File]++
			if m.Copied != nil {
				files[m.Copied.File]++
			}
		}
	}
	for c, n := range shares {
		if c.refs != n {
			t.Fatalf("chunk has refs %d, %d layouts use it", c.refs, n)
		}
	}
	weight := 0
	for c := range shares {
		weight += len(c.maps) * mappingWeight
	}
	idle := 0
	for _, f := range tab.files.byKey {
		weight += fileWeight + len(f.Name())
		if f.refs != files[f] {
			t.Fatalf("%s has refs %d, %d mappings point to it", f.Path, f.refs, files[f])
		}
		if f.refs == 0 {
			idle++
		}
		delete(files, f)
	}
	if len(files) > 0 {
		t.Fatalf("%d files are mapped and not interned", len(files))
	}
	if tab.files.weight != weight {
		t.Fatalf("files and mappings weigh %d bytes, not %d", weight, tab.files.weight)
	}
	threads, ordered := 0, 0
	for s := tab.oldest; s != nil; s = s.younger {
		ordered++
		threads += s.threads.len()
		if tab.spaces[s.PID] != s {
			t.Fatalf("a space of process %d is in the order and not in the table", s.PID)
		}
	}
	if ordered != len(tab.spaces) || threads != tab.threads {
		t.Fatalf("%d of %d spaces are in the order; %d threads are counted, there are %d", ordered, len(tab.spaces),
			tab.threads, threads)
	}
	if idle > maxIdle {
		t.Fatalf("%d idle files are kept", idle)
	}
}

// checkLayout checks the mappings of a layout, and returns its chunks.
func checkLayout(t *testing.T, l *layout) []*chunk {
	t.Helper()
	n, last := 0, uint64(0)
	if len(l.ends) != len(l.chunks) {
		t.Fatalf("%d ends of %d chunks", len(l.ends), len(l.chunks))
	}
	for k, c := range l.chunks {
		if len(c.maps) == 0 || len(c.maps) > chunkSize || len(c.ends) != len(c.maps) ||
			l.ends[k] != c.ends[len(c.ends)-1] {
			t.Fatalf("chunk %d, which ends at %#x, has %d mappings, %d ends", k, l.ends[k], len(c.maps), len(c.ends))
		}
		for i, m := range c.maps {
			if c.ends[i] != m.End {
				t.Fatalf("mapping %d ends at %#x, not %#x", i, m.End, c.ends[i])
			}
			if m.Start >= m.End || m.Start < last {
				t.Fatalf("mapping %d, %#x-%#x, is empty or overlaps the one before", i, m.Start, m.End)
			}
			last = m.End
		}
		n += len(c.maps)
	}
	if l.n != n {
		t.Fatalf("%d mappings are counted, there are %d", l.n, n)
	}
	return l.chunks
}

// A model of address spaces: for each page, the file and the page of it.
const modelPages = 1024 // so that there are several chunks

type modelPage struct {
	name string
	page uint64
}

type model map[uint32]*[modelPages]modelPage

func (mo model) check(t *testing.T, tab *Table) {
	t.Helper()
	for pid, want := range mo {
		s := tab.Space(pid)
		if s == nil {
			t.Fatalf("process %d is not known", pid)
		}
		for _, p := range rand.Perm(modelPages) {
			m := s.Find(uint64(p)<<12 + 123)
			var got modelPage
			if m != nil {
				got = modelPage{m.File.Path, m.Offset>>12 + uint64(p) - m.Start>>12}
			}
			if got != want[p] {
				t.Fatalf("process %d, page %d: %v, want %v", pid, p, got, want[p])
			}
		}
	}
}

func TestRandomRecordsAgreeWithModel(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		tab := NewTable("")
		mo := model{}
		pid := func() uint32 { return 1 + r.Uint32N(5) }
		for step := range 6000 {
			switch p := pid(); r.IntN(400) {
			case 0:
				parent := pid()
				if mo[parent] == nil || parent == p {
					continue
				}
				tab.Fork(p, p, parent, parent)
				c := *mo[parent]
				mo[p] = &c
			case 1:
				tab.Comm(p, p, []byte("x"), true)
				mo[p] = new([modelPages]modelPage)
			case 2:
				tab.Exit(p, p)
				delete(mo, p)
				if tab.Space(p) != nil {
					t.Fatalf("process %d outlives its last thread", p)
				}
			default:
				if mo[p] == nil {
					continue
				}
				from := r.Uint64N(modelPages)
				longest := modelPages - from
				if r.IntN(50) > 0 {
					longest = min(longest, 3)
				}
				to := from + 1 + r.Uint64N(longest)
				m := pages(from, to, r.Uint64N(100), fmt.Sprintf("/f%d", r.IntN(300)))
				if r.IntN(4) == 0 {
					m.Prot = ProtRead
				}
				got := tab.Mmap(p, m)
				if (got != nil) != (m.Prot&ProtExec != 0) ||
					got != nil && (got.Start > m.Addr || got.End < m.Addr+m.Len) {
					t.Fatalf("Mmap returned %v for %v", got, m)
				}
				for i := from; i < to; i++ {
					mo[p][i] = modelPage{}
					if m.Prot&ProtExec != 0 {
						mo[p][i] = modelPage{string(m.Name), m.Offset>>12 + i - from}
					}
				}
			}
			if step%50 == 0 {
				mo.check(t, tab)
				checkTable(t, tab)
			}
		}
	}
}

func TestFindDoesNotAllocate(t *testing.T) {
	tab := NewTable("")
	for i := range uint64(500) {
		tab.Mmap(1, pages(i*4, i*4+2, 0, "/a"))
	}
	s := tab.Space(1)
	addr := uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		addr = (addr + 7*4096) % (2100 << 12)
		s.Find(addr)
	}); n != 0 {
		t.Errorf("Find allocates %v times", n)
	}
	m := pages(0, 2, 0, "/a")
	if n := testing.AllocsPerRun(1000, func() { tab.Mmap(1, m) }); n != 0 {
		t.Errorf("Mmap of a known file allocates %v times", n)
	}
}

func TestMappingsWithoutMunmapAreBounded(t *testing.T) {
	tab := NewTable("")
	const last = 3 * maxLimit
	for i := range uint64(last) {
		tab.Mmap(1, pages(10+2*i, 11+2*i, 0, "//anon"))
	}
	s := tab.Space(1)
	if n := s.layout.n; n > maxLimit || n < maxLimit/4 {
		t.Errorf("%d mappings are kept", n)
	}
	if s.Find((10+2*(last-1))<<12) == nil {
		t.Error("the youngest mapping is gone")
	}
	checkTable(t, tab)
}

// TestChunksAreFull: the kernel maps files one below the other, and allocators often one above the other.
func TestChunksAreFull(t *testing.T) {
	for _, step := range []int64{2, -2} {
		tab := NewTable("")
		const n = 100 * chunkSize
		at := int64(1 << 20)
		for range n {
			tab.Mmap(1, pages(uint64(at), uint64(at)+1, 0, "/a"))
			at += step
		}
		room := 0
		for _, c := range checkLayout(t, tab.Space(1).layout) {
			room += cap(c.maps)
		}
		if room > n+n/4 {
			t.Errorf("in steps of %d: room for %d mappings is taken for %d", step, room, n)
		}
	}
}

func TestFilesAreShared(t *testing.T) {
	tab := NewTable("")
	m := pages(1, 2, 0, "/lib/libc.so")
	m.ID = FileID{Major: 8, Minor: 1, Inode: 42, Generation: 7}
	a := tab.Mmap(1, m).File
	b := tab.Mmap(2, m).File
	if a != b {
		t.Error("one file has two Files")
	}
	m.ID.Inode = 43
	if c := tab.Mmap(3, m).File; c == a {
		t.Error("another inode is the same File")
	}
	m.ID = FileID{BuildID: NewBuildID([]byte{1, 2, 3})}
	d := tab.Mmap(4, m).File
	if d == a || d.BuildID.String() != "010203" || !slices.Equal(d.BuildID.Bytes(), []byte{1, 2, 3}) {
		t.Errorf("build ID %v", d.BuildID)
	}
	vdso := Map{Addr: 0x7fff00000000, Len: 0x2000, Prot: ProtExec, Name: []byte("[vdso]")}
	v64 := tab.Mmap(5, vdso).File
	vdso.Addr = 0x7ffe00000000
	if tab.Mmap(6, vdso).File != v64 {
		t.Error("two 64-bit processes have two vDSOs")
	}
	vdso.Addr = 0xf7f00000
	if tab.Mmap(7, vdso).File == v64 {
		t.Error("a 32-bit process has the 64-bit vDSO")
	}
}

func TestNamesAreClassified(t *testing.T) {
	tests := []struct {
		name, path string
		kind       Kind
		deleted    bool
	}{
		{"/usr/bin/perl", "/usr/bin/perl", Regular, false},
		{"/usr/bin/perl (deleted)", "/usr/bin/perl", Regular, true},
		{"(unreachable)/x", "(unreachable)/x", Regular, false},
		{"[vdso]", "[vdso]", VDSO, false},
		{"[vsyscall]", "[vsyscall]", Vsyscall, false},
		{"[heap]", "[heap]", Heap, false},
		{"[stack]", "[stack]", Stack, false},
		{"//anon", "//anon", Anonymous, false},
		{"", "", Anonymous, false},
		{"[vvar]", "[vvar]", Anonymous, false},
		{"[uprobes]", "[uprobes]", Anonymous, false},
		{"//toolong", "//toolong", Nameless, false},
		{"/memfd:jit (deleted)", "/memfd:jit", Memfd, true},
		{"/dev/zero (deleted)", "/dev/zero", Shared, true},
		{"/dev/zero", "/dev/zero", Shared, false},
		{"/SYSV00000000 (deleted)", "/SYSV00000000", Shared, true},
		{"/SYSVfile", "/SYSVfile", Regular, false},
		{"anon_inode:[perf_event]", "anon_inode:[perf_event]", Device, false},
		{"/dev/dri/card0", "/dev/dri/card0", Device, false},
		{"/dev/shm/lib.so", "/dev/shm/lib.so", Regular, false},
	}
	for _, tt := range tests {
		path, kind, deleted := classify(tt.name)
		if path != tt.path || kind != tt.kind || deleted != tt.deleted {
			t.Errorf("%q: %q, %v, deleted %v", tt.name, path, kind, deleted)
		}
		if paths := Paths(tt.name); paths[0] != tt.name || paths[len(paths)-1] != tt.path {
			t.Errorf("%q: paths %q", tt.name, paths)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	tab := NewTable("")
	for i := range uint64(200) {
		tab.Mmap(1, pages(i*4, i*4+2, 0, "/a"))
	}
	s := tab.Space(1)
	b.Run("same", func(b *testing.B) {
		for b.Loop() {
			s.Find(400 << 12)
		}
	})
	b.Run("far", func(b *testing.B) {
		addr := uint64(0)
		for b.Loop() {
			addr = (addr + 148<<12) % (800 << 12)
			s.Find(addr)
		}
	})
}

// A process that maps new code where old code was, as with dlopen and dlclose.
func BenchmarkMmap(b *testing.B) {
	tab := NewTable("")
	for i := range uint64(2000) {
		tab.Mmap(1, pages(i*4, i*4+2, 0, "/a"))
	}
	m := pages(0, 3, 0, "/b")
	i := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		i = (i + 997) % 8000
		m.Addr = i << 12
		tab.Mmap(1, m)
	}
}

// One more mapping in a process that has very many already, like a runtime that maps each function
// separately; and the same in a child of such a process.
func BenchmarkMmapAmongMany(b *testing.B) {
	for _, n := range []uint64{2_000, 20_000, 120_000} {
		tab := NewTable("")
		for i := range n {
			tab.Mmap(1, pages(2*i, 2*i+1, 0, "//anon"))
		}
		i := uint64(0)
		again := func(b *testing.B, pid uint32) {
			i = (i + 7919) % n
			if i%2 == 0 {
				tab.Mmap(pid, data(2*i, 2*i+1))
			}
			tab.Mmap(pid, pages(2*i, 2*i+1, 0, "//anon"))
		}
		b.Run(fmt.Sprintf("%d/one process", n), func(b *testing.B) {
			for b.Loop() {
				again(b, 1)
			}
		})
		b.Run(fmt.Sprintf("%d/forks", n), func(b *testing.B) {
			for k := 0; b.Loop(); k++ {
				if k%64 == 0 {
					tab.Fork(2, 2, 1, 1)
				}
				again(b, 2)
			}
		})
	}
}

// A process that maps and unmaps a page at random addresses, again and again: no record tells of
// the unmapping, so as many mappings are known as a space may hold.
func TestMachineVeryManyMappingsCostNoMoreEach(t *testing.T) {
	lane.Machine(t, 0.99)
	cost := func(span uint64) time.Duration {
		r := rand.New(rand.NewPCG(1, span))
		tab := NewTable("")
		random := func(n uint64) {
			for range n {
				i := r.Uint64N(span)
				tab.Mmap(1, pages(2*i, 2*i+1, 0, "//anon"))
			}
		}
		random(2 * span)
		best := time.Duration(math.MaxInt64)
		for range 5 {
			begin := time.Now()
			random(2000)
			best = min(best, time.Since(begin))
		}
		return best
	}
	few, many := cost(500), cost(maxLimit-1)
	lane.Figure(t, "2,000 mappings take %v among %d, %v among 500", many, maxLimit-1, few)
	if many > 30*few {
		t.Errorf("2,000 mappings take %v among %d, %v among 500", many, maxLimit-1, few)
	}
}
