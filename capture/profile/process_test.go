package profile

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"unspool/capture/perfdata/replay"
	"unspool/capture/symbols"
	"unspool/perfring"
	"unspool/vmas"
)

// A thread that is sampled once in each test, with the name of its process's main thread.
type sampled struct {
	pid, tid   uint32
	comm, main string
	unmapped   bool // its code has no mapping
}

// loadProcesses loads one sample of each thread, with processes, and checks the profile and its timeline. It
// returns the stacks: the kinds of the frames, the names of processes instead.
func loadProcesses(t *testing.T, threads []sampled) (stacks []string) {
	t.Helper()
	l := newLoader(symbols.New(symbols.Options{Kallsyms: "/nonexistent"}))
	line := newTimeline(t)
	l.options, l.timeline = Options{Processes: true, Timeline: line}, line
	l.event = func(uint64) int { return 0 }
	l.p.Events = []Event{{Name: "cycles"}}
	l.sample.Callchain = words(perfring.ContextKernel, 0xffffffff81000010, perfring.ContextUser, 0x1000)
	for _, th := range threads {
		if !th.unmapped {
			l.table.Mmap(th.pid, vmas.Map{Addr: 0x1000, Len: 0x2000, Prot: vmas.ProtExec, Name: []byte("//anon")})
		}
		l.comm(&replay.Change{PID: th.pid, TID: th.tid, Comm: []byte(th.comm)})
		if th.main != "" {
			l.comm(&replay.Change{PID: th.pid, TID: th.pid, Comm: []byte(th.main)})
		}
		l.sample.PID, l.sample.TID = th.pid, th.tid
		l.addSample()
	}
	p := l.finish()
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	for thread := range p.Threads {
		for _, at := range points(t, line, int32(thread)) {
			if !slices.ContainsFunc(p.Samples, func(s Sample) bool {
				return s.Thread == int32(thread) && s.Node == at.Node
			}) {
				t.Errorf("a point of thread %d is at node %d, where it has no sample", thread, at.Node)
			}
		}
	}
	for _, s := range p.Samples {
		var stack []string
		for node := s.Node; node > 0; node = p.Nodes[node].Parent {
			f := &p.Frames[p.Nodes[node].Frame]
			if stack = append(stack, f.Kind.String()); f.Kind == Process {
				stack[len(stack)-1] = f.Name
			}
		}
		slices.Reverse(stack)
		stacks = append(stacks, strings.Join(stack, ";"))
	}
	return stacks
}

func TestProcessesAreTheFirstLevel(t *testing.T) {
	for _, c := range []struct {
		name    string
		threads []sampled
		want    []string
	}{
		{"two programs", []sampled{{7, 7, "cc1", "", false}, {8, 8, "as", "", false}, {9, 9, "cc1", "", false}},
			[]string{"cc1;jit;kernel", "as;jit;kernel", "cc1;jit;kernel"}},
		{"one program, two processes", []sampled{{7, 7, "cc1", "", false}, {9, 9, "cc1", "", false}},
			[]string{"jit;kernel", "jit;kernel"}},
		{"frames that are found after the process", []sampled{{7, 7, "cc1", "", false}, {9, 9, "cc1", "", true}},
			[]string{"jit;kernel", "unmapped;kernel"}},
		{"threads of one process", []sampled{{7, 8, "GC", "java", false}, {7, 9, "pool-1", "java", false}},
			[]string{"jit;kernel", "jit;kernel"}},
		{"threads beside another program", []sampled{{7, 8, "GC", "java", false}, {9, 9, "sh", "", false}},
			[]string{"java;jit;kernel", "sh;jit;kernel"}},
		{"a main thread that is not known", []sampled{{7, 8, "GC", "", false}, {9, 9, "sh", "", false}},
			[]string{":7;jit;kernel", "sh;jit;kernel"}},
		{"a program after exec", []sampled{{7, 7, "sh", "", false}, {7, 7, "sleep", "", false}},
			[]string{"sh;jit;kernel", "sleep;jit;kernel"}},
		{"no samples", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := loadProcesses(t, c.threads); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestProcessesAreNamedAfterTheirMainThreads samples threads of processes whose main threads mostly have no sample.
func TestProcessesAreNamedAfterTheirMainThreads(t *testing.T) {
	server := func(f *feeder) {
		f.comm(7, 7, "server")
		f.comm(7, 8, "pool")
		f.sample(7, 8, 1000)
	}
	for _, c := range []struct {
		name  string
		steps func(f *feeder)
		want  []Thread
	}{
		{"a thread", server, []Thread{{7, 8, "pool", "server"}}},
		{"a thread that renames itself", func(f *feeder) {
			server(f)
			f.comm(7, 8, "busy")
			f.sample(7, 8, 2000)
		}, []Thread{{7, 8, "pool", "server"}, {7, 8, "busy", "server"}}},
		{"a main thread that renames itself", func(f *feeder) {
			server(f)
			f.comm(7, 7, "old")
			f.sample(7, 8, 2000)
			f.comm(7, 7, "server")
			f.sample(7, 8, 3000)
		}, []Thread{{7, 8, "pool", "server"}, {7, 8, "pool", "old"}}},
		{"an exec", func(f *feeder) {
			server(f)
			f.exec(7, "cc1")
			f.task(perfring.RecordFork, 7, 8, 7)
			f.sample(7, 8, 2000)
		}, []Thread{{7, 8, "pool", "server"}, {7, 8, "cc1", "cc1"}}},
		{"IDs that are used again by another process", func(f *feeder) {
			server(f)
			f.task(perfring.RecordExit, 7, 8, 1)
			f.task(perfring.RecordExit, 7, 7, 1)
			f.comm(1, 1, "init")
			f.task(perfring.RecordFork, 7, 7, 1)
			f.exec(7, "cron")
			f.task(perfring.RecordFork, 7, 8, 7)
			f.comm(7, 8, "pool")
			f.sample(7, 8, 2000)
		}, []Thread{{7, 8, "pool", "server"}, {7, 8, "pool", "cron"}}},
		{"a thread's ID that is used again by a process", func(f *feeder) {
			server(f)
			f.task(perfring.RecordExit, 7, 8, 1)
			f.task(perfring.RecordFork, 8, 8, 7)
			f.exec(8, "child")
			f.sample(8, 8, 2000)
			f.task(perfring.RecordFork, 8, 9, 8)
			f.sample(8, 9, 3000)
		}, []Thread{{7, 8, "pool", "server"}, {8, 8, "child", "child"}, {8, 9, "child", "child"}}},
		{"a main thread that has ended", func(f *feeder) {
			f.comm(7, 7, "server")
			f.comm(7, 8, "pool")
			f.task(perfring.RecordExit, 7, 7, 1)
			f.sample(7, 8, 2000)
		}, []Thread{{7, 8, "pool", "server"}}},
		{"no name, and a file", func(f *feeder) {
			f.comm(7, 8, "pool")
			f.table.Mmap(7, vmas.Map{Addr: 0x7000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte("/lib/libc.so.6")})
			f.table.Mmap(7, vmas.Map{Addr: 0x3000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte("//anon")})
			f.table.Mmap(7, vmas.Map{Addr: 0x4000, Len: 0x1000, Prot: vmas.ProtExec,
				Name: []byte("/opt/gnome-session-binary (deleted)")})
			f.sample(7, 8, 2000)
			f.sample(7, 7, 3000)
		}, []Thread{{7, 8, "pool", "gnome-session-b"}, {7, 7, ":7", "gnome-session-b"}}},
		{"no name, and then one", func(f *feeder) {
			f.comm(7, 8, "pool")
			f.sample(7, 8, 2000)
			f.comm(7, 7, "server")
			f.sample(7, 8, 3000)
			f.task(perfring.RecordExit, 7, 7, 1)
			f.comm(7, 8, "busy")
			f.sample(7, 8, 4000)
		}, []Thread{{7, 8, "pool", ":7"}, {7, 8, "pool", "server"}, {7, 8, "busy", "server"}}},
		{"no names of two processes with the same ID", func(f *feeder) {
			for _, file := range []string{"/bin/first", "/bin/second"} {
				f.task(perfring.RecordFork, 7, 7, 1)
				f.table.Mmap(7, vmas.Map{Addr: 0x4000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte(file)})
				f.sample(7, 7, 2000)
			}
		}, []Thread{{7, 7, ":7", "first"}, {7, 7, ":7", "second"}}},
	} {
		for _, follows := range []bool{false, true} {
			f := newFeeder(t)
			f.follows = follows
			c.steps(f)
			if !slices.Equal(f.p.Threads, c.want) {
				t.Errorf("%s: threads %v, want %v", c.name, f.p.Threads, c.want)
			}
			said := strings.Contains(strings.Join(f.finish().Problems, "\n"), "no COMM record names ")
			if said != strings.HasPrefix(c.name, "no name") {
				t.Errorf("%s: the notes say that a name is missing: %v", c.name, said)
			}
		}
	}
}

// TestOneNameForEachProcess asks for the name of a process that had several.
func TestOneNameForEachProcess(t *testing.T) {
	p := &Profile{
		Threads: []Thread{{7, 7, "sh", "sh"}, {7, 8, "pool", "java"}, {7, 9, "GC", "java"}, {9, 9, "b", "b"},
			{9, 9, "a", "a"}, {11, 11, "asleep", "asleep"}},
		Samples: []Sample{{Thread: 0, Count: 5}, {Thread: 1, Count: 3}, {Thread: 2, Count: 3}, {Thread: 3, Count: 2},
			{Thread: 4, Count: 2}},
	}
	want := map[uint32]string{7: "java", 9: "a", 11: "asleep"}
	if got := p.Processes(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
