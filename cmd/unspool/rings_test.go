package main

import (
	"testing"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// TestMachineRingsThatFillSoon records what fills a ring within 20 ms, and within 3 ms as large as ordinary users have
// them: as long as the recorder is hardly busy, it drains them in time.
func TestMachineRingsThatFillSoon(t *testing.T) {
	lane.Machine(t, 0.9)
	needRoot(t)
	needTracepoints(t)
	switches, burn := buildCase(t, "switches.c"), programs.Build(t, "burn")
	for _, c := range []struct {
		name string
		args []string
	}{
		{"switches", []string{"-e", "sched:sched_switch", "-d", "3", "--", switches, "4"}},
		{"clock", []string{"-F", "4999", "-m", "512k", "-d", "3", "--", burn, "0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := record(t, append([]string{"-q"}, c.args...)...).stats
			lane.Figure(t, "%d samples, %d lost, %.1f %% of a CPU", s.Samples.Total, s.Samples.Lost, 100*s.Cost.CPUShare)
			if s.Samples.Lost*50 > s.Samples.Total {
				t.Errorf("of %d samples %d were lost, at %.1f %% of a CPU", s.Samples.Total+s.Samples.Lost, s.Samples.Lost,
					100*s.Cost.CPUShare)
			}
		})
	}
}
