package capture

import (
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/perfring"
	testlane "unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/unwind"
	"unspool/unwind/image/fusetest"
	"unspool/unwind/link"
	"unspool/vmas/process"
)

// read reads a stack of a process once.
func (rd *stackRead) read(w *watchedStack) (there bool) {
	parts := w.parts()
	plan, buf := process.Plan{Times: 1}, make([]byte, process.Total(parts))
	see := func(r *process.Reading) bool {
		rd.set(parts, r.Memory)
		there = rd.find(w.frames, true)
		return false
	}
	process.Direct("/proc").Observe(rd.pid, parts, plan, buf, time.Sleep, see)
	return there
}

// mapped returns zeros that are read by their address: a variable may be on the stack of its goroutine, which moves.
func mapped(t *testing.T, words int) []uint64 {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, 8*words, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(memory); err != nil {
			t.Error(err)
		}
	})
	return unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), words)
}

// A read tells which frames are there still, known by their return addresses.
func TestReadFindsFramesThatAreThere(t *testing.T) {
	t.Parallel()
	const words, inner, outer = 1024, 100, 200
	stack := mapped(t, words)
	sp := func(i int) uint64 { return uint64(uintptr(unsafe.Pointer(&stack[i]))) }
	within := link.Function{Low: 0x1000, High: 0x1100}
	frames := []unwind.OpenFrame{{PC: 0x2000, SP: sp(outer)}, {PC: 0x1010, SP: sp(inner), Within: within}}
	for _, c := range []struct {
		name         string
		inner, outer uint64 // what is in the place of their return addresses
		size         int
		root         uint64
		want         []unwind.OpenFrame
		full         int // bytes
	}{
		{"both", 0x1010, 0x2000, 4096, 0, []unwind.OpenFrame{frames[1], frames[0]}, 4096},
		{"the function has called something else", 0x1020, 0x2000, 4096, 0,
			[]unwind.OpenFrame{{PC: 0x1020, SP: sp(inner), Within: within}, frames[0]}, 4096},
		{"the outer one", 0x3000, 0x2000, 4096, 0, frames[:1], 4096},
		{"neither", 0x3000, 0x2001, 4096, 0, nil, 4096},
		{"the outer one is too far away", 0x3000, 0x2000, 512, 0, nil, 512},
		{"the root is known", 0x3000, 0x2000, 512, sp(outer + 10), frames[:1], 8*111 + aboveRoot},
	} {
		stack[inner-1], stack[outer-1] = c.inner, c.outer
		rd := stackRead{pid: uint32(os.Getpid())}
		there := rd.read(&watchedStack{frames: slices.Clone(frames), size: c.size, root: c.root})
		n := len(rd.last().memory)
		if there != (len(c.want) > 0) || !rd.full || n != c.full || !slices.Equal(rd.frames, c.want) {
			t.Errorf("%s: %v, %d bytes, %+v, want %d bytes, %+v", c.name, there, n, rd.frames, c.full, c.want)
		}
	}
	for _, hostile := range []uint64{1, 8, 1 << 47, ^uint64(0)} {
		rd := stackRead{pid: uint32(os.Getpid())}
		w := watchedStack{frames: []unwind.OpenFrame{{PC: 1, SP: hostile}}, size: 64}
		if rd.read(&w) {
			t.Errorf("read at %#x", hostile)
		}
	}
}

// TestReadPassesOverLargeFrames: of large frames only both ends are read.
func TestReadPassesOverLargeFrames(t *testing.T) {
	t.Parallel()
	const words, inner, large, cfa, outer = 64 << 10, 100, 200, 16_000, 16_100
	const far, farCFA, last = cfa + 2*firstReadSize/word, 55_000, 55_100
	stack := make([]uint64, words)
	sp := func(i int) uint64 { return uint64(uintptr(unsafe.Pointer(&stack[i]))) }
	within := link.Function{Low: 0x1000, High: 0x1100}
	frames := map[string]unwind.OpenFrame{
		"inner":  {PC: 0x3000, SP: sp(inner), CFA: sp(inner + 10)},
		"pushed": {PC: 0x1020, SP: sp(large - 2), CFA: sp(cfa), Within: within},
		"large":  {PC: 0x1010, SP: sp(large), CFA: sp(cfa), Within: within},
		"saved":  {PC: 0x1010, SP: sp(large), SavedCFA: sp(cfa), Within: within},
		"leaf":   {PC: 0x1018, SP: sp(large - 3), CFA: sp(cfa), Within: within, Leaf: true},
		"outer":  {PC: 0x2000, SP: sp(outer), CFA: sp(outer + 10)},
		"far":    {PC: 0x4000, SP: sp(far), CFA: sp(farCFA)},
		"last":   {PC: 0x5000, SP: sp(last), CFA: sp(last + 10)},
	}
	stack[inner-1], stack[large-1], stack[outer-1] = 0x3000, 0x1010, 0x2000
	stack[far-1], stack[last-1] = 0x4000, 0x5000
	for _, c := range []struct {
		name    string
		watched []string
		is      map[string]int // there: how many large frames are below the part in which its caller is
		gone    int            // whose return address is not there
	}{
		{"alone", []string{"large"}, map[string]int{"large": 1}, 0},
		{"with what it pushes", []string{"large", "pushed"}, map[string]int{"large": 1}, 0},
		{"and others", []string{"outer", "large", "inner"},
			map[string]int{"inner": 0, "large": 1, "outer": 1}, 0},
		{"its CFA is saved", []string{"outer", "saved"}, map[string]int{"saved": 1, "outer": 1}, 0},
		{"sampled itself", []string{"leaf"}, map[string]int{"leaf": 1}, 0},
		{"sampled itself and in what it calls", []string{"large", "inner", "leaf"},
			map[string]int{"inner": 0, "large": 1, "leaf": 1}, 0},
		{"sampled itself, and others", []string{"inner", "far", "leaf"},
			map[string]int{"inner": 0, "leaf": 1, "far": 2}, 0},
		{"sampled itself, and one above", []string{"far", "leaf"}, map[string]int{"leaf": 1, "far": 2}, 0},
		{"not sampled itself any more", []string{"leaf", "outer"}, map[string]int{"outer": 1}, 0},
		{"it has gone", []string{"outer", "large"}, map[string]int{"outer": 1}, large},
		{"all have gone", []string{"large"}, nil, large},
		{"none is large", []string{"outer", "inner"}, map[string]int{"inner": 0}, 0}, // outer is too far away
		{"two", []string{"last", "far", "large"}, map[string]int{"large": 1, "far": 2, "last": 2}, 0},
		{"two, of which one has gone", []string{"large", "far"}, map[string]int{"far": 2}, large},
		{"two, of which the other has gone", []string{"large", "outer", "far"},
			map[string]int{"large": 1, "outer": 1}, far},
	} {
		kept := stack[max(c.gone-1, 0)]
		if c.gone > 0 {
			stack[c.gone-1] = 0x9999
		}
		w := watchedStack{size: 4096}
		for _, name := range c.watched {
			w.frames = append(w.frames, frames[name])
		}
		rd := stackRead{pid: uint32(os.Getpid())}
		there := rd.read(&w)
		stack[max(c.gone-1, 0)] = kept

		is, read := make(map[string]int), 0
		for i := range rd.frames {
			part := rd.parts[rd.partOf(&rd.frames[i])]
			for name, f := range frames {
				if f == rd.frames[i] {
					is[name] = 0
					for _, passed := range []int{cfa, farCFA} {
						if part.start == sp(passed)-savedRegs || part.start > sp(passed) {
							is[name]++
						}
					}
				}
			}
		}
		if there != (len(c.is) > 0) || !maps.Equal(is, c.is) {
			t.Errorf("%s: %v, there are %v, want %v", c.name, there, is, c.is)
		}
		for _, p := range rd.parts {
			read += len(p.memory)
		}
		if read > 2*4096+8*large+firstReadSize {
			t.Errorf("%s: %d bytes were read", c.name, read)
		}
	}
}

// TestPartsAreNotTooLarge: what is read at once has a bound with large frames, too.
func TestPartsAreNotTooLarge(t *testing.T) {
	t.Parallel()
	const sp = 0x10008
	for _, frames := range [][]unwind.OpenFrame{
		{{SP: sp}}, {{SP: sp}, {SP: sp + 1000, CFA: sp + 2*largeFrame}},
		{{SP: sp}, {SP: sp + maxReadSize - 8, CFA: sp + maxReadSize + 2*largeFrame}},
		{{SP: sp}, {SP: sp + 2*maxReadSize, CFA: sp + 3*maxReadSize},
			{SP: sp + 4*maxReadSize, CFA: sp + 5*maxReadSize}},
		{{SP: sp, SavedCFA: ^uint64(0)}, {SP: sp + maxReadSize, SavedCFA: sp + maxReadSize + 2*largeFrame}},
		{{SP: 1, CFA: 1 + 2*largeFrame}, {SP: 2, CFA: ^uint64(0)}, {SP: ^uint64(0) - largeFrame, CFA: ^uint64(0)}},
	} {
		w := watchedStack{frames: frames, size: maxReadSize}
		parts := w.parts()
		if last := parts[len(parts)-1]; !(process.Plan{}).IsValid(parts) || last.Size < aboveRoot {
			t.Errorf("%+v: parts %+v", frames, parts)
		}
	}
}

// TestStackIsReadForOneThread has threads on one stack, one after the other, and a neighbour.
func TestStackIsReadForOneThread(t *testing.T) {
	t.Parallel()
	r := newStackReader(process.Direct("/proc"))
	r.account.earn(1, settled{read: 1000})
	const stack, below = 0x20000, 0x10000
	at := func(tid uint32, sp uint64) {
		from := unwind.OpenFrame{PC: 1, SP: sp}
		r.note(&cutStack{pid: 1, tid: tid, space: 1, from: from}, 1)
	}
	for _, root := range []uint64{0, stack + 0x3000} { // not known yet, and known
		for tid := range uint32(20) {
			at(100, below)
			at(tid, stack+16*uint64(tid%3))
			if w := r.watched[tid]; w != nil {
				w.root = root
			}
			if n := len(r.watched); n != 2 || r.watched[tid] == nil || r.watched[100] == nil {
				t.Fatalf("root %#x, thread %d: %d stacks are read", root, tid, n)
			}
		}
	}
}

// TestStackIsReadOnceCutOften: of a thread whose stack is cut now and then, nothing is read, and it takes no
// other one's place.
func TestStackIsReadOnceCutOften(t *testing.T) {
	t.Parallel()
	const ms = uint64(time.Millisecond)
	for _, c := range []struct {
		name    string
		samples []int // in each drain
		apart   uint64
		whole   int  // samples that are not cut after each that is
		isOfUse bool // the last reading was
		read    int  // before which drain it is read first, 0 if it never is
	}{
		{"once", []int{1}, 100 * ms, 0, false, 0},
		{"one in each drain", []int{1, 1, 1}, 100 * ms, 0, false, 3},
		{"all in one drain", []int{3}, 100 * ms, 0, false, 1},
		{"two together, twice", []int{2, 2}, 100 * ms, 0, false, 2},
		{"long after each other", []int{2, 2, 2, 2}, watchedFor + ms, 0, false, 0},
		{"one of three", []int{20}, 100 * ms, 2, false, 1},
		{"one of ten", []int{20, 20, 20}, 100 * ms, 9, false, 0},
		{"one of ten, where reading is of use", []int{20}, 100 * ms, 9, true, 1},
	} {
		watcher := &fakeWatcher{}
		r := newStackReader(watcher)
		read, now := 0, 1000*ms
		cut := cutStack{pid: 1, tid: 1, space: 1, from: unwind.OpenFrame{PC: 1, SP: 8}}
		r.account.see(1, !c.isOfUse)
		for drain, samples := range c.samples {
			for range samples {
				r.note(&cut, now)
				for range c.whole {
					r.noteRoot(1, 1, 0, 0x1000, now)
				}
			}
			if _ = r.watch(now); len(watcher.watches) > 0 && read == 0 {
				read = drain + 1
			}
			now += c.apart
		}
		if read != c.read {
			t.Errorf("%s: read at drain %d, want %d", c.name, read, c.read)
		}
		for tid := range uint32(2 * maxWatched) {
			r.note(&cutStack{pid: 1, tid: 10 + tid, space: 1, from: cut.from}, now)
		}
		_ = r.watch(now)
		other := cutStack{pid: 1, tid: 2, space: 1, from: unwind.OpenFrame{PC: 1, SP: 1 << 30}}
		now += watchedFor + ms
		for range cutOften {
			r.note(&other, now)
		}
		if _ = r.watch(now); r.watched[other.tid] == nil {
			t.Errorf("%s: there is no room for a thread that is cut often", c.name)
		}
	}
}

// TestReadsAreBounded: neither are more stacks watched than there is room for, nor are they read when the
// time is spent.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	r := newStackReader(process.Direct("/proc"))
	r.account.earn(0, settled{read: 1000})
	for i := range uint32(10 * maxWatched) {
		r.note(&cutStack{pid: 1, tid: i, from: unwind.OpenFrame{PC: 1, SP: 8}}, 1)
		r.note(&cutStack{pid: 1, tid: 7, from: unwind.OpenFrame{PC: 1, SP: 8 * uint64(i)}}, 1)
	}
	if n, frames := len(r.watched), r.watched[7].frames; n > maxWatched || len(frames) > maxWatchedFrames ||
		frames[len(frames)-1].SP != 8*(10*maxWatched-1) {
		t.Errorf("%d stacks, frames of one: %+v", n, frames)
	}
	const ms = uint64(time.Millisecond)
	now := 1000 * ms
	r.budget.Spend(now, 10*ms)
	if !r.budget.IsSpent(now + 9*budgetShare*ms - budgetSlack) {
		t.Error("the time is not spent")
	}
	if r.budget.IsSpent(now + 10*budgetShare*ms) {
		t.Error("the time is spent for ever")
	}
	now += 10 * budgetShare * ms
	if u, _ := r.plan(now, true); u != nil || len(r.watched) > 0 {
		t.Errorf("%d stacks are watched long after they were cut", len(r.watched))
	}
}

// A fakeWatcher gives what a test has put there.
type fakeWatcher struct{ watches []*fakeWatch }

type fakeWatch struct {
	pid      uint32
	parts    []process.Part
	plan     process.Plan
	readings []process.Reading
	until    uint64 // when it will be over
	over     bool
}

func (f *fakeWatcher) Watch(pid uint32, parts []process.Part, plan process.Plan) (process.Watch, error) {
	w := &fakeWatch{pid: pid, parts: slices.Clone(parts), plan: plan}
	f.watches = append(f.watches, w)
	return w, nil
}

func (w *fakeWatch) Next() (r process.Reading, ok, over bool) {
	if len(w.readings) == 0 {
		return r, false, w.over
	}
	r, w.readings = w.readings[0], w.readings[1:]
	return r, true, false
}

// A thread is read when a quarter of its cut stacks is missed, and not for one now and then.
func TestMisses(t *testing.T) {
	t.Parallel()
	for every, want := range map[int]bool{1: true, 2: true, 3: true, 8: false, 20: false} {
		m := make(misses)
		most := often(0)
		for i := range 1000 {
			if m.count(1, i%every == 0); i > 100 {
				most = max(most, m[1])
			}
		}
		if got := most.isMany(); got != want {
			t.Errorf("one of %d is missed: %v, want %v", every, got, want)
		}
	}
	m := make(misses)
	for tid := range uint32(3 * maxCutSpaces) {
		if m.count(tid, true); len(m) > maxCutSpaces {
			t.Fatalf("%d threads", len(m))
		}
	}
}

// cutPrograms are the variants of the program in testdata/cut.c, whose stacks no sample holds.
var cutPrograms = []string{"deep", "frame", "frames", "realigned", "leaf"}

// recordCut records one of them until it ends, or for a while.
func recordCut(t *testing.T, o Options, proc *programs.Process) *Stats {
	t.Helper()
	o.PIDs, o.StackSize, o.MaxStack = []int{proc.Process.Pid}, 8192, 256
	o.Output = filepath.Join(t.TempDir(), "perf.data")
	out := RecordControlled(t, o, func(func()) { proc.Continue() })
	t.Logf("%d of %d stacks are completed by reads, %d frames", out.Stats.Links[link.JoinedByRead], out.Stats.User,
		out.Stats.FramesBy[unwind.ByLive])
	return &out.Stats
}

// Of a stack that no sample holds, what the copy cuts off is read from the process, but of CFI alone.
func TestCutStacksAreRead(t *testing.T) {
	t.Parallel()
	testlane.Root(t)
	for _, kind := range cutPrograms {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path := programs.BuildFile(t, "testdata/cut.c")
			// The program goes on until some were read.
			proc := programs.StartCounted(t, path, 100_000, kind)
			var done atomic.Bool
			st := recordCut(t, Faults(Options{Progress: func(st *Stats) {
				if st.Links[link.JoinedByRead] > enoughSamples && !done.Swap(true) {
					_ = proc.Process.Kill()
				}
			}}), proc)
			if joined, frames := st.Links[link.JoinedByRead], st.FramesBy[unwind.ByLive]; !done.Load() || frames < 30*joined {
				t.Errorf("%d stacks are completed, by %d frames", joined, frames)
			}
			strict := recordCut(t, Faults(Options{Strict: true}), programs.StartCounted(t, path, 200, kind))
			if joined, frames := strict.Links[link.JoinedByRead], strict.FramesBy[unwind.ByLive]; joined+frames > 0 {
				t.Error("some are read, and were not to be")
			}
		})
	}
}

// Most of the stacks that no sample holds are completed.
func TestMachineMostCutStacksAreRead(t *testing.T) {
	testlane.Machine(t, 0.9)
	testlane.Root(t)
	path := programs.BuildFile(t, "testdata/cut.c")
	for _, kind := range cutPrograms {
		proc := programs.Start(t, path, 20, kind)
		st := recordCut(t, Options{Freq: 999, Duration: time.Second}, proc)
		_ = proc.Process.Kill()
		joined, frames := st.Links[link.JoinedByRead], st.FramesBy[unwind.ByLive]
		testlane.Figure(t, "%s: %d of %d stacks completed, by %d frames", kind, joined, st.User, frames)
		if st.User < enoughSamples || joined < st.User/2 || frames < 30*joined {
			t.Errorf("%s: most are not completed, or by a part of their frames", kind)
		}
	}
}

// A process whose memory is locked does not hold up the session, nor the reads of other processes.
func TestReadThatHangs(t *testing.T) {
	t.Parallel()
	hanging, page, unlock := fusetest.Lock(t)
	stack := mapped(t, 1024)
	stack[99] = 0x1010
	honest := cutStack{pid: uint32(os.Getpid()), tid: 1, from: unwind.OpenFrame{PC: 0x1010}}
	honest.from.SP = uint64(uintptr(unsafe.Pointer(&stack[100])))
	hung := cutStack{pid: hanging, tid: 2, from: unwind.OpenFrame{PC: 1, SP: page + 8}}

	r := newStackReader(process.Direct("/proc"))
	drain := func(stacks ...cutStack) (reads int) {
		for u := r.next(noRead - 1); u != nil; u = r.next(noRead - 1) {
			if u.pid == honest.pid { // the other one is read, too, once it can be
				reads++
			}
			r.taken(u)
		}
		for _, c := range stacks {
			for range cutOften {
				r.note(&c, perfring.Now())
			}
			r.completed(c.space, c.tid, link.JoinedByRead)
		}
		if err := r.watch(perfring.Now()); err != nil {
			t.Error(err)
		}
		return reads
	}
	hangs := func() bool { return r.hanging() > 0 }
	testlane.Eventually(t, "a read that hangs", func() bool { drain(hung); return hangs() })
	reads := 0
	other := hung
	other.tid++
	other.from.SP += 1 << 20
	testlane.Eventually(t, "reads of another process", func() bool {
		reads += drain(hung, other, honest)
		return reads >= 3
	})
	asked := 0
	for _, u := range r.under {
		if u.pid == hung.pid {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("a process that hangs is asked for %d readings", asked)
	}
	unlock()
	testlane.Eventually(t, "the end of the read", func() bool { drain(honest); return !hangs() })
	if _, postponed := r.slow[hung.pid]; postponed {
		t.Error("the process is not read any more")
	}
}

// TestReadsThatHang has many reads hang: the user is told.
func TestReadsThatHang(t *testing.T) {
	t.Parallel()
	r := newStackReader(process.Direct("/proc"))
	var told error
	for n := range maxHanging {
		hanging, page, _ := fusetest.Lock(t)
		for range cutOften {
			r.note(&cutStack{pid: hanging, tid: uint32(n), space: uint64(n),
				from: unwind.OpenFrame{PC: 1, SP: page + 8}}, perfring.Now())
		}
		for range 100 {
			r.completed(uint64(n), uint32(n), link.JoinedByRead)
		}
		testlane.Soon(func() bool {
			told = r.watch(perfring.Now())
			return r.hanging() > n && (told != nil || n < maxHanging-1)
		})
		if (told != nil) != (n == maxHanging-1) {
			t.Fatalf("with %d reads that hang: %v", n+1, told)
		}
	}
}

// A walk does not wait for memory that is locked, and others are read on.
func TestMemoryThatIsLocked(t *testing.T) {
	t.Parallel()
	pid, page, _ := fusetest.Lock(t)
	self := uint32(os.Getpid())
	s := NewSession(Config{Format: new(perfring.Format), Live: true})
	word := mapped(t, 1)
	word[0] = 4711
	at, buf := uint64(uintptr(unsafe.Pointer(&word[0]))), make([]byte, 8)
	for range 2 * maxHung {
		if n := s.interrupted.processes.ReadMemory(pid, buf, page); n != 0 {
			t.Fatalf("%d bytes of memory that is locked", n)
		}
	}
	// On a busy machine, a read may take longer than is waited for.
	if !testlane.Soon(func() bool {
		return s.interrupted.processes.ReadMemory(self, buf, at) == 8 && binary.LittleEndian.Uint64(buf) == word[0]
	}) {
		t.Error("another process is not read")
	}
}

// Where the memory of as many processes hangs as may, no other process is read, and the user is told, once.
func TestMemoryOfManyThatIsLocked(t *testing.T) {
	t.Parallel()
	s := NewSession(Config{Format: new(perfring.Format), Live: true})
	word := mapped(t, 1)
	at, buf := uint64(uintptr(unsafe.Pointer(&word[0]))), make([]byte, 8)
	told := func() string {
		var out strings.Builder
		WriteFiles(&out, s.Trouble())
		return out.String()
	}
	for range maxHung {
		hanging, page, _ := fusetest.Lock(t)
		s.interrupted.processes.ReadMemory(hanging, buf, page)
		if text := told(); text != "" {
			t.Errorf("said before another one is read: %q", text)
		}
	}
	for range 2 {
		if got := s.interrupted.processes.ReadMemory(uint32(os.Getpid()), buf, at); got != 0 {
			t.Errorf("%d bytes though %d processes hang", got, maxHung)
		}
	}
	if text := told(); strings.Count(text, "memory of 8 processes: reads of it hang") != 1 {
		t.Errorf("said: %q", text)
	}
}

// A sampled function of which nothing on the stack says that it is there still is taken for there soon after
// the sample only.
func TestLeafIsThereForAWhile(t *testing.T) {
	t.Parallel()
	const sampled = uint64(time.Hour)
	r := newStackReader(process.Direct("/proc"))
	leaf := unwind.OpenFrame{PC: 0x1010, SP: 0x10000, CFA: 0x40000, Leaf: true}
	r.note(&cutStack{pid: 1, tid: 1, space: 1, from: leaf}, sampled)
	for after, want := range map[time.Duration]bool{
		0: true, latestRead: true, latestRead + 1: false, time.Second: false,
	} {
		rd := stackRead{tid: 1, space: 1, time: sampled + uint64(after)}
		if there := rd.find(r.framesOf(&rd)); there != want {
			t.Errorf("%v after the sample: there: %v", after, there)
		}
	}
}
