package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"unspool/capture/output/human"
	"unspool/perfring"
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

// TestRecordSaysWhatRingsTake: with -v, in words and in the statistics; and if copies are smaller than they would be,
// in any case.
func TestRecordSaysWhatRingsTake(t *testing.T) {
	needRoot(t)
	program := programs.Build(t, "qsort")
	online, err := perfring.ReadCPUList("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(unspool(t, t.TempDir(), "doctor").stdout, "real-time") {
		t.Skip("real-time priority is not permitted")
	}
	page := os.Getpagesize()
	for _, c := range []struct {
		args        []string
		each, stack int
		beside      int // bytes of the ring for other records
		says        string
		copies      bool // says that they are small
	}{
		{[]string{"-F", "16", "--stack-size", "15k"}, 1 << 20, 15 << 10, 2 << 20,
			"full after 4.0 s of samples with 15.0 KiB of stack", false},
		{[]string{"-F", "999", "-m", "1M"}, 1 << 20, 7 << 10, 128 << 10, "full after 128 ms of samples with 7.0 KiB of stack",
			true},
		{[]string{"-F", "999", "-m", "1M", "--no-join"}, 1 << 20, 65528, 128 << 10,
			"full after 16 ms of samples with 64.0 KiB", false},
		{[]string{"-c", "1", "-m", "1M"}, 1 << 20, 65528, 128 << 10, "as events are counted", false},
	} {
		r := record(t, slices.Concat([]string{"-v", "-e", "page-faults:u"}, c.args, []string{"--", program, "1"})...)
		is := r.stats.Rings
		if is.Each != c.each || is.Stack != c.stack || is.Total != len(online)*(c.each+c.beside+2*page) {
			t.Errorf("%q: %+v", c.args, is)
		}
		if (is.Lasts == 0) != (c.args[0] == "-c") {
			t.Errorf("%q: the rings last %v s", c.args, is.Lasts)
		}
		line := fmt.Sprintf("unspool: rings: 1.0 MiB for the samples of each CPU, %s in all", human.Bytes(uint64(is.Total)))
		if !strings.Contains(r.stderr, line) || !strings.Contains(r.stderr, c.says) {
			t.Errorf("%q: does not say %q, %q:\n%s", c.args, line, c.says, r.stderr)
		}
		const small = "7 KiB of each stack are copied instead of 64, as rings of 1024 KiB a CPU"
		if strings.Contains(r.stderr, small) != c.copies {
			t.Errorf("%q: says of copies %t:\n%s", c.args, !c.copies, r.stderr)
		}
	}
}
