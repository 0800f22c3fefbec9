package profile

import (
	"slices"
	"strings"
	"testing"

	"unspool/capture/replay"
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
			[]string{"GC;jit;kernel", "sh;jit;kernel"}},
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
