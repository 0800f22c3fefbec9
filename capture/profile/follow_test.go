package profile

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/capture/symbols"
	"unspool/perfring"
)

// TestFollowedPartsAddUp follows a recording as if it were being made: its rounds add up to what Load has.
func TestFollowedPartsAddUp(t *testing.T) {
	data := recordFaults(t, []string{"-g", "-m", "1"}, []string{"slowly"}) // small rings, so that there are many rounds
	r, err := perfdata.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var parts []*Profile
	if err := Follow(r, symbols.Options{}, func(p *Profile) error {
		if err := p.CheckValid(); err != nil {
			t.Error(err)
		}
		parts = append(parts, p)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	got, want := Merge(parts), load(t, data).ByFunction()
	if err := got.CheckValid(); err != nil {
		t.Error(err)
	}
	if len(parts) < 2 {
		t.Errorf("%d rounds with samples", len(parts))
	}
	if g, w := weights(got), weights(want); !maps.Equal(g, w) {
		t.Errorf("the parts have the stacks\n%v\nthe recording has\n%v", g, w)
	}
	if got.CPUs != want.CPUs || got.CPUs == 0 {
		t.Errorf("the parts are of %d CPUs, the recording is of %d", got.CPUs, want.CPUs)
	}
	if got.First != want.First || got.Duration != want.Duration {
		t.Errorf("the parts are from %d, %v long; the recording from %d, %v long", got.First, got.Duration,
			want.First, want.Duration)
	}
}

// A feeder gives records to a follower.
type feeder struct {
	*follower
	t      *testing.T
	format perfring.SampleFormat
}

func newFeeder(t *testing.T) *feeder {
	f := newFollower(func(uint64) int { return 0 },
		symbols.Options{Kallsyms: "/nonexistent", Root: "/nonexistent"})
	f.p.Events = []Event{{Name: "cycles"}}
	f.describeAgain = func() { f.p.Events = []Event{{Name: "cycles"}} }
	return &feeder{f, t, perfring.NewFormat(&unix.PerfEventAttr{
		Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME |
			unix.PERF_SAMPLE_CALLCHAIN,
	})}
}

func (f *feeder) give(b []byte) {
	f.t.Helper()
	r, err := perfring.CheckRecord(b)
	if err != nil {
		f.t.Fatal(err)
	}
	f.take(r, &f.format, 0)
}

// sample gives a sample of a thread at a time, of a user function.
func (f *feeder) sample(pid, tid uint32, time uint64) {
	b := words(0, 0x1000, uint64(tid)<<32|uint64(pid), time, 2, perfring.ContextUser, 0x1000)
	b[0], b[4], b[6] = 9, 2, byte(len(b))
	f.give(b)
}

// task gives a FORK or an EXIT.
func (f *feeder) task(kind perfring.RecordType, pid, tid, ppid uint32) {
	f.give(words(32<<48|uint64(kind), uint64(ppid)<<32|uint64(pid), uint64(ppid)<<32|uint64(tid), 0))
}

// comm gives a COMM with a name of at most seven characters.
func (f *feeder) comm(pid, tid uint32, name string) {
	var b [8]byte
	copy(b[:], name)
	f.give(append(words(24<<48|3, uint64(tid)<<32|uint64(pid)), b[:]...))
}

// exec gives the COMM of a process that executes a program.
func (f *feeder) exec(pid uint32, name string) {
	var b [8]byte
	copy(b[:], name)
	f.give(append(words(24<<48|unix.PERF_RECORD_MISC_COMM_EXEC<<32|3, uint64(pid)<<32|uint64(pid)), b[:]...))
}

// end ends the round and returns its profile, nil for none.
func (f *feeder) end() (part *Profile) {
	f.t.Helper()
	if err := f.round(func(p *Profile) error {
		part = p
		return p.CheckValid()
	}); err != nil {
		f.t.Fatal(err)
	}
	return part
}

// TestFollowForgetsThreads has threads end, some of which have samples after that, and one of whose IDs is
// used again.
func TestFollowForgetsThreads(t *testing.T) {
	f := newFeeder(t)
	f.comm(7, 7, "main")
	f.comm(7, 8, "worker")
	f.sample(7, 8, 1000)
	p := f.end()
	if want := (Thread{7, 8, "worker", "main"}); len(p.Threads) != 1 || p.Threads[0] != want {
		t.Errorf("threads %v, want %v", p.Threads, want)
	}
	f.task(perfring.RecordExit, 7, 8, 7)
	f.sample(7, 8, 2000) // still running
	if p := f.end(); p.Threads[0].Comm != "worker" {
		t.Errorf("in the round in which it ends, the thread is %v", p.Threads[0])
	}
	f.sample(7, 8, 3000)
	if p := f.end(); p.Threads[0].Comm != "worker" {
		t.Errorf("in the round after that in which it ended, the thread is %v", p.Threads[0])
	}
	f.sample(7, 8, 4000)
	if p := f.end(); p.Threads[0].Comm != ":8" {
		t.Errorf("two rounds after, the thread is still %v", p.Threads[0])
	}
	f.comm(9, 9, "server")
	f.comm(9, 10, "worker")
	f.task(perfring.RecordExit, 9, 9, 1)
	for range 3 {
		f.sample(9, 10, 4500)
		if p := f.end(); p.Threads[0] != (Thread{9, 10, "worker", "server"}) {
			t.Errorf("after the end of its main thread, the thread is %v", p.Threads[0])
		}
	}
	f.task(perfring.RecordExit, 9, 10, 1)
	f.sample(math.MaxUint32, math.MaxUint32, 5000)
	if p := f.end(); p.Threads[0].Comm != Exited {
		t.Errorf("the thread without an ID is %v", p.Threads[0])
	}
	for _, c := range []struct {
		name  string
		round bool // a round ends between the old process and the new one
	}{{"second", true}, {"third", false}} {
		f.task(perfring.RecordExit, 7, 7, 1)
		if c.round {
			f.end()
		}
		f.task(perfring.RecordFork, 7, 7, 1)
		f.comm(7, 7, c.name)
		f.end()
		f.end()
		f.sample(7, 7, 5000)
		if p := f.end(); p.Threads[0].Comm != c.name {
			t.Errorf("the %s process with the ID is %v", c.name, p.Threads[0])
		}
	}
	if len(f.comms) != 1 {
		t.Errorf("%d names of threads are kept: %v", len(f.comms), f.comms)
	}
}

// TestFollowLooksUpAgain follows for longer than names are kept: all that was looked up is gone then, and
// what is mapped is not.
func TestFollowLooksUpAgain(t *testing.T) {
	f := newFeeder(t)
	b, err := perfring.AppendMmap2(nil, &f.format, &perfring.Mmap2{PID: 7, TID: 7, Addr: 0x1000, Len: 0x1000,
		Inode: 5, Prot: 5, Path: []byte("/nonexistent/program")}, &perfring.SampleID{})
	if err != nil {
		t.Fatal(err)
	}
	f.give(b)
	old := f.loader.builder
	for round := range 6 {
		f.sample(7, 7, uint64(1+round)*uint64(forgetAfter-time.Second))
		p := f.end()
		if len(p.Images) != 1 || p.Images[0].Path != "/nonexistent/program" || len(p.Frames) != 1 {
			t.Errorf("round %d: images %v, frames %v", round, p.Images, p.Frames)
		}
	}
	if f.loader.builder == old {
		t.Error("nothing was forgotten")
	}
	if f.dumps == nil || f.reread == 0 {
		t.Error("the new names of generated code are not as the old ones")
	}
}

// TestFollowReadsNamesOfGeneratedCodeAgain has a process write the name of code after a first sample in it.
func TestFollowReadsNamesOfGeneratedCodeAgain(t *testing.T) {
	f := newFeeder(t)
	root := t.TempDir()
	f.loader.builder.sym = symbols.New(symbols.Options{Kallsyms: "/nonexistent", Root: root})
	b, err := perfring.AppendMmap2(nil, &f.format, &perfring.Mmap2{PID: 7, TID: 7, Addr: 0x1000, Len: 0x1000,
		Prot: 5, Path: []byte("//anon")}, &perfring.SampleID{})
	if err != nil {
		t.Fatal(err)
	}
	f.give(b)
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	perfMap := filepath.Join(root, "tmp", "perf-7.map")
	for _, c := range []struct {
		at    time.Duration
		named string // what the map has by then
		want  string
	}{
		{time.Second, "9000 10 other\n", "[anon]"},
		{2 * time.Second, "9000 10 other\n1000 10 late\n", "[anon]"}, // not read at every sample
		{2*time.Second + rereadAfter, "", "late"},
		{3*time.Second + 2*rereadAfter, "1000 10 renamed\n", "late"}, // what has a name is not looked up again
	} {
		if c.named != "" {
			if err := os.WriteFile(perfMap, []byte(c.named), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f.sample(7, 7, uint64(c.at))
		if p := f.end(); len(p.Frames) != 1 || p.Frames[0].Name != c.want {
			t.Errorf("at %v: %+v, want %s", c.at, p.Frames, c.want)
		}
	}
}
