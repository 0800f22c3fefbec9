package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"unspool/bench/workloads"
	"unspool/capture/rights/priority"
)

// TestProgramsMadeToBreakJoins: next to no joined stack is not the one that the program tells, at each size of the
// copy. Few are joined at all. What is read when they are sampled is right.
func TestProgramsMadeToBreakJoins(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	raised := priority.Raise()
	t.Cleanup(raised.Restore)
	breakJoins(t, true)
}

// TestProgramsMadeToBreakReads is the same for reading, where what reads stacks has no real-time priority.
func TestProgramsMadeToBreakReads(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	breakJoins(t, false)
}

func breakJoins(t *testing.T, links bool) {
	sizes := []uint64{8 << 10, 16 << 10, 32 << 10}
	folders := make(map[string]string)
	for i, mode := range workloads.BreakingModes {
		period := []time.Duration{time.Millisecond, 10 * time.Millisecond}[i%2]
		p := workloads.BreakingProgram(mode, period, 400*time.Millisecond)
		if m := p.Missing(); m != "" {
			t.Logf("%s: no %s", mode, m)
			continue
		}
		kind := mode
		if mode != "python" && mode != "growing" {
			kind = "C"
		}
		w := workloads.Workload{Program: &p, Dir: folders[kind]}
		if w.Dir == "" {
			w.Dir = t.TempDir()
			folders[kind] = w.Dir
			if err := w.Prepare(); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var trials []*trial
			for k, size := range sizes {
				if links {
					trials = append(trials, &trial{size: size})
				}
				if k == i%len(sizes) { // what is read at the samples is read for one size at a time, by turns
					trials = append(trials, &trial{size: size, atOnce: true})
				}
			}
			if err := live(w.Command(), 999, trials...); err != nil {
				t.Fatal(err)
			}
			for _, r := range trials {
				name := fmt.Sprintf("%d bytes, at once %v", r.size, r.atOnce)
				t.Logf("%s: %s", name, r.line())
				if r.untrue > 0 {
					t.Errorf("%s: %d stacks that the copy holds are not what the program tells", name, r.untrue)
				}
				const chance = 1 // a function that was entered from the same place many times, and not this time
				if r.wrongRead > 0 {
					t.Errorf("%s: %d stacks that were read are wrong", name, r.wrongRead)
				}
				if links && r.stays > chance+r.joined/100 {
					t.Errorf("%s: %d of %d joined stacks are wrong, in %d stays", name, r.wrong, r.joined, r.stays)
				}
			}
		})
	}
}
