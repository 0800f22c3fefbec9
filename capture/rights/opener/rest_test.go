package opener

import (
	"testing"

	"unspool/capture/rights/rest"
	"unspool/perfring"
	"unspool/testdata/programs"
)

// TestReadRing samples a program with very small copies, and the opener reads the rest of each stack. Once the opener
// is confined, it goes on reading, but takes no other ring.
func TestReadRing(t *testing.T) {
	c := startOpener(t)
	const times = 100
	program := programs.StartCounted(t, programs.Build(t, "plain"), times)
	p := c.RaisePriority()
	defer p.Restore()
	if p.String() != "real-time 1" {
		t.Skipf("skipped for want of real-time priority: %s", p)
	}
	events, err := perfring.ParseEvents("page-faults:u")
	if err != nil {
		t.Fatal(err)
	}
	const copied = 64
	source, err := perfring.Open(perfring.Target{PIDs: []int{program.Process.Pid}},
		perfring.Options{Events: events, Period: 1, Pages: 512, StackSize: copied})
	if err != nil {
		t.Skipf("skipped for want of perf events: %v", err)
	}
	defer source.Close()
	rings := source.SampleRings()
	stacks := make(map[int]*rest.Stacks)
	for i := range rings {
		its, tid, err := c.ReadRing(&rings[i])
		if err == nil {
			err = source.SignalTo(rings[i].CPU, tid, rest.Signal)
		}
		if err != nil {
			t.Fatalf("CPU %d: %v", rings[i].CPU, err)
		}
		stacks[rings[i].CPU] = its
	}
	large := rings[0]
	large.Pages = mostRingPages + 1
	if _, _, err := c.ReadRing(&large); err == nil {
		t.Error("reads in a ring of any size")
	}
	if err := c.Seal(true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.ReadRing(&rings[0]); err == nil || err.Error() != errSealed.Error() {
		t.Errorf("once it is confined: %v", err)
	}
	if err := source.Signal(true, false); err != nil {
		t.Fatal(err)
	}
	if err := source.Enable(); err != nil {
		t.Fatal(err)
	}
	program.Continue()
	<-program.Ended()
	samples, found := 0, 0
	if err := source.Flush(func(r perfring.Record) error {
		var s perfring.Sample
		if r.Type() != perfring.RecordSample || source.Format().Sample(r, &s) != nil || s.DynSize < copied {
			return nil
		}
		samples++
		const sp = 7
		base, _ := s.Reg(sp)
		if of := stacks[source.CPU()].Find(s.TID, s.Time, base+s.DynSize); len(of.Memory) > 0 {
			found++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if found < 20 { // a virtual machine that waits for a CPU may keep some from being read
		t.Errorf("of %d samples, %d stacks were read", samples, found)
	}
}
