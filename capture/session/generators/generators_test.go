package generators

import (
	"slices"
	"strings"
	"testing"

	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas"
	"unspool/vmas/process"
)

// TestGeneratorsWithoutRoom samples more processes that generate code than perf maps are kept of.
func TestGeneratorsWithoutRoom(t *testing.T) {
	const more, first, at = 3, 1 << 30, 0x10000
	g := New(process.Direct("/proc"), false, false)
	table := vmas.NewTable("")
	for pid := uint32(first); pid < first+mostGenerators+more; pid++ {
		table.Mmap(pid, vmas.Map{Addr: at, Len: 4096, Prot: vmas.ProtExec, Name: []byte("//anon")})
		space := table.Space(pid)
		space.Generated = true
		for range 2 {
			g.Sampled(space, &perfring.Sample{PID: pid}, &unwind.Result{IPs: []uint64{at}})
		}
	}
	g.Finish()
	defer g.Close()
	want := func(line string) bool { return strings.Contains(line, ": 6 user stacks went through") }
	if told := g.Notes(); len(told.Nameless) != mostGenerators || !slices.ContainsFunc(told.Cut, want) {
		t.Errorf("%d processes, and said: %q", len(told.Nameless), told.Cut)
	}
}
