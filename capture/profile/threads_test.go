package profile

import (
	"fmt"
	"strings"
	"testing"

	"unspool/capture/perfdata/replay"
	"unspool/capture/symbols"
	"unspool/vmas"
)

// TestThreadsWithoutEnd names and samples more threads than have room. What is kept of them is bounded, one thread
// stands for the others, and the notes say so.
func TestThreadsWithoutEnd(t *testing.T) {
	const most, more = 5000, 1000
	l := newLoader(symbols.New(symbols.Options{}))
	l.most = most
	long := []byte(strings.Repeat("x", 1000))
	for i := range uint32(most + more) {
		l.comm(&replay.Change{PID: 1 + i/1000, TID: 1 + i, Comm: []byte("named")})
	}
	l.fork(&replay.Change{PID: 1, PPID: 1, TID: 1 << 30, PTID: 1})
	l.comm(&replay.Change{PID: 1, TID: 1, Comm: long})
	if n := len(l.comms); n != most || l.unnamed != more+1 || len(l.comms[threadKey(1, 1)]) != mostComm {
		t.Errorf("%d names, %d left out; one of %d bytes", n, l.unnamed, len(l.comms[threadKey(1, 1)]))
	}
	for i := range uint32(most + more) {
		at := l.threadNow(1+i/1000, 1+i)
		if is, other := l.p.Threads[at], i >= most; (is == otherThread) != other {
			t.Fatalf("sample %d is of %+v", i, is)
		}
	}
	if n := len(l.p.Threads); n != most+1 || len(l.current) != most {
		t.Errorf("%d threads, %d of them now", n, len(l.current))
	}
	for i := range uint32(2 * mostGenerated) {
		l.mapped(1+i, fmt.Sprintf("/tmp/jit-%d.dump", 1+i))
		l.began(1<<30+i, 1)
	}
	if n := len(l.dumps); n != mostGenerated {
		t.Errorf("%d dumps of generated code", n)
	}
	notes := strings.Join(l.finish().Problems, "\n")
	for _, want := range []string{
		"the names of 1,001 were not kept", "1,000 samples of the others are shown as one thread",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note says %q:\n%s", want, notes)
		}
	}
}

// TestProcessesWithoutEnd tells of more processes than are kept: a note counts them.
func TestProcessesWithoutEnd(t *testing.T) {
	l := newLoader(symbols.New(symbols.Options{}))
	for i := range uint32(vmas.MaxSpaces + 7) {
		l.table.Fork(1+i, 1+i, 0, 0)
	}
	if notes := strings.Join(l.finish().Problems, "\n"); !strings.Contains(notes, "forgotten: 7, whose") {
		t.Errorf("the notes do not say what was forgotten:\n%s", notes)
	}
}
