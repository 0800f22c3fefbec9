package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// TestEverySampleIsAccountedFor has perf and unspool record the same calls of the system on the whole machine. Both
// have all of them, and each of perf's samples has a user frame after conversion, also where nothing was copied
// of the stack. Inside execve there is none, which is counted.
func TestEverySampleIsAccountedFor(t *testing.T) {
	t.Parallel()
	program := accountingMark.build(t)
	need(t, "perf")
	dir := t.TempDir()
	const processes = 5
	load := fmt.Sprintf("for i in 1 2 3 4 5; do %[1]s =%[2]d; %[1]s =%[2]d unseen; done", program, counted)
	event := accountingMark.options()
	e := unspool(t, dir, slices.Concat([]string{"record", "-a", "-o", "own.data", "--stats", "own.json"}, event,
		[]string{"--", "perf", "record", "-q", "-a", "--no-buildid", "-m", "1M", "-k", "CLOCK_MONOTONIC"}, event,
		[]string{"-e", "sched:sched_process_exec", "--call-graph", "dwarf,8192", "-o", "raw.data", "--", "sh", "-c",
			load})...)
	if e.status != 0 {
		t.Fatal(e.stderr)
	}
	const calls = 2 * processes * counted
	own, st := readSamples(t, filepath.Join(dir, "own.data")), statisticsIn(t, filepath.Join(dir, "own.json"))
	if len(own.samples) != calls || st.Samples.Total != calls || st.Samples.Lost > 0 || st.Samples.User != calls {
		t.Errorf("%d samples in the file, %+v counted, of %d", len(own.samples), st.Samples, calls)
	}
	for _, s := range own.samples {
		if !s.user {
			t.Errorf("thread %d: a sample without a user frame", s.tid)
		}
	}
	raw := readSamples(t, filepath.Join(dir, "raw.data"))
	if len(raw.samples) < calls+2*processes || raw.lost > 0 {
		t.Errorf("perf has %d samples of %d calls and %d programs that begin, and lost %d", len(raw.samples), calls,
			2*processes, raw.lost)
	}
	registers, empty := convertsAll(t, dir, raw)
	t.Logf("%d samples, %d with registers, nothing copied of %d", len(raw.samples), registers, empty)
	if empty < calls/2 {
		t.Errorf("nothing was copied of %d, want %d", empty, calls/2)
	}
}

// convertsAll converts raw.data, and expects that each sample with user registers has a user frame then, but for those
// inside execve. It counts the samples with registers, and those of which nothing was copied.
func convertsAll(t *testing.T, dir string, raw accounted) (registers, empty uint64) {
	t.Helper()
	if e := unspool(t, dir, "convert", "raw.data", "-o", "converted.data", "--stats", "converted.json"); e.status != 0 {
		t.Fatal(e.stderr)
	}
	st := statisticsIn(t, filepath.Join(dir, "converted.json"))
	converted := readSamples(t, filepath.Join(dir, "converted.data"))
	if len(converted.samples) != len(raw.samples) || st.Samples.Total != uint64(len(raw.samples)) {
		t.Fatalf("%d samples, %d converted, %d counted", len(raw.samples), len(converted.samples),
			st.Samples.Total)
	}
	var missing []string
	for i, s := range raw.samples {
		c := converted.samples[i]
		if c.time != s.time || c.tid != s.tid {
			t.Fatalf("sample %d: time %d of thread %d, converted %d of %d", i, s.time, s.tid, c.time, c.tid)
		}
		if !s.registers {
			continue
		}
		registers++
		if !c.user {
			missing = append(missing, fmt.Sprintf("thread %d in mode %d, %d bytes copied", s.tid, s.mode,
				s.copied))
		}
		if s.copied == 0 {
			empty++
		}
	}
	if uint64(len(missing)) != st.Samples.Exec || registers != st.Samples.User+st.Samples.Exec {
		t.Errorf("%d samples have registers, %d a user stack, %d are inside execve; without a frame: %s",
			registers, st.Samples.User, st.Samples.Exec, strings.Join(missing, "; "))
	}
	return registers, empty
}

func statisticsIn(t *testing.T, path string) statistics {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	st := readStatistics(t, content)
	st.addUp(t)
	return st
}

// TestMachineEverySampleIsAccountedFor has perf and unspool record the whole machine at the same time. The samples
// that unspool wrote, left out and lost are as many as perf has; and every sample of perf's recording with
// user registers has a user frame after conversion.
func TestMachineEverySampleIsAccountedFor(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	need(t, "perf")
	need(t, "taskset")
	dir := t.TempDir()
	burn, fresh := programs.Build(t, "burn"), buildCase(t, "fresh.c")
	load := fmt.Sprintf("timeout 0.8 taskset -c 0 %[1]s 0 & timeout 0.8 taskset -c 1 %[1]s 0 & "+
		"timeout 0.8 %[2]s 1 leaf & for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done; wait; true", burn, fresh)
	e := unspool(t, dir, "record", "-a", "-e", "cpu-clock", "-F", "999", "-o", "own.data",
		"--stats", "own.json", "--", "perf", "record", "-q", "-a", "-k", "CLOCK_MONOTONIC", "-e", "cpu-clock",
		"-F", "999", "-m", "16M",
		"--call-graph", "dwarf,8192", "-o", "raw.data", "--", "sh", "-c", load)
	if e.status != 0 {
		t.Fatal(e.stderr)
	}
	raw, own := readSamples(t, filepath.Join(dir, "raw.data")), readSamples(t, filepath.Join(dir, "own.data"))
	st := statisticsIn(t, filepath.Join(dir, "own.json"))
	if uint64(len(own.samples)) != st.Samples.Total {
		t.Errorf("%d samples in the file, %d counted", len(own.samples), st.Samples.Total)
	}
	first, last := raw.span()
	perfs, ours := raw.lost, st.Samples.Lost+st.Samples.Excluded
	for _, s := range raw.samples {
		if s.pid != 0 { // the idle task
			perfs++
		}
	}
	for _, s := range own.samples {
		if s.time >= first && s.time <= last {
			ours++
		}
	}
	lane.Figure(t, "perf: %d of %d; unspool: %d, %+v", perfs, len(raw.samples), ours, st.Samples)
	if perfs < 1000 || ours*100 < perfs*95 || perfs*100 < ours*95 {
		t.Errorf("perf has %d samples, unspool accounts for %d", perfs, ours)
	}

	_, empty := convertsAll(t, dir, raw)
	if empty < 20 {
		t.Errorf("nothing was copied of %d only", empty)
	}
}

// recorded are the samples of a recording, in order of time.
type accounted struct {
	samples []recordedSample
	lost    uint64
}

type recordedSample struct {
	time, copied uint64
	pid, tid     uint32
	mode         uint16
	registers    bool
	user         bool // there are user frames
}

func (r *accounted) span() (first, last uint64) {
	if len(r.samples) > 0 {
		first, last = r.samples[0].time, r.samples[len(r.samples)-1].time
	}
	return first, last
}

func readSamples(t *testing.T, path string) (all accounted) {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	err = r.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
		var s perfring.Sample
		var l perfring.Lost
		switch {
		case rec.Type() == perfring.RecordLost && perfring.DecodeLost(rec, &l) == nil:
			all.lost += l.Lost
		case rec.Type() == perfring.RecordSample && f.Sample(rec, &s) == nil:
			first, _ := s.UserPart()
			all.samples = append(all.samples, recordedSample{
				time: s.Time, copied: s.DynSize, pid: s.PID, tid: s.TID, mode: s.CPUMode(),
				registers: s.RegsABI != unix.PERF_SAMPLE_REGS_ABI_NONE, user: first < s.Callchain.Len(),
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
