package compare

import (
	"testing"

	"unspool/capture/profile"
)

// The samples that are loaded one by one are those of the groups, in whatever order these came; and of the
// programs.
func TestTimesOfGroups(t *testing.T) {
	times, err := profile.NewTimeline()
	if err != nil {
		t.Fatal(err)
	}
	defer times.Close()
	l := &loader{
		groups: make(map[PairGroup]int32), tasks: make(map[TaskName]int32), c: &Comparison{Times: times},
		p: &profile.Profile{
			Threads: []profile.Thread{
				{PID: 1, TID: 1, Comm: "sh", Program: "sh"}, {PID: 2, TID: 3, Comm: "worker", Program: "server"},
			},
		},
	}
	rare, often := PairGroup{Class: Early, DWARF: 1, FP: 2}, PairGroup{Class: Same, DWARF: 3, FP: 4}
	for i, g := range []PairGroup{rare, often, often, rare, often} {
		l.thread, l.first.time = int32(min(i, 1)), uint64(100+i)
		l.add(g)
	}
	c := l.c
	c.sort()
	if l.failed != nil || len(c.Groups) != 2 || c.Groups[0].DWARF != 3 || c.Groups[0].Count != 3 {
		t.Fatalf("%v, %+v", l.failed, c.Groups)
	}
	type sample struct {
		program string
		leaf    int32
		time    uint64
	}
	var got []sample
	leaf := func(g *PairGroup) int32 { return g.FP }
	for i, task := range c.Tasks {
		if err := (sideTimes{c, []int32{0, 1}, leaf}).Each(int32(i), func(p profile.Point) error {
			if p.Event != map[int32]int32{4: 0, 2: 1}[p.Node] {
				t.Errorf("%+v", p)
			}
			got = append(got, sample{task.Program, p.Node, p.Time})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	want := []sample{
		{"sh", 2, 100}, {"server", 4, 101}, {"server", 4, 102}, {"server", 2, 103}, {"server", 4, 104},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}
