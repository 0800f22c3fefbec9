package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// TestProcessesThatComeAndGo records the whole system while processes come and go, and has a sample of each.
func TestProcessesThatComeAndGo(t *testing.T) {
	t.Parallel()
	program := stormMark.build(t)
	const processes = 60
	dir := t.TempDir()
	r := record(t, slices.Concat([]string{"-a"}, stormMark.options(), []string{"--", "sh", "-c",
		`for i in $(seq $1); do "$0" =1 & "$0" =1; done; wait`, program, strconv.Itoa(processes / 2)})...)
	if r.stats.Samples.Total != processes || r.stats.Samples.Lost > 0 {
		t.Errorf("%+v, want %d", r.stats.Samples, processes)
	}
	r.whollyComplete(t)
	own := ownProfile(t, r.path)
	chain := programs.Chain{Kind: programs.Main, Frames: []string{"main", "marks_run", "marks_leaf"}}
	if n := matchEnd(t, own, chain); n != processes {
		t.Errorf("%d stacks at the chain's end, want %d", n, processes)
	}
	seen := make(map[uint32]bool)
	for _, s := range own.Samples {
		seen[own.Threads[s.Thread].PID] = true
	}
	if len(seen) != processes {
		t.Errorf("%d processes were sampled, of %d", len(seen), processes)
	}
	text := output(t, dir, "sh", "-c", `perf report --stats -i "$0" 2>/dev/null || true`, r.path)
	if strings.Contains(text, "LOST events") {
		t.Errorf("perf found lost records:\n%s", text)
	}
}

// TestMachineStormOfProcesses records the whole system while a thousand processes come and go: nothing is lost, and
// the memory of unspool does not grow with the number of processes that it has seen.
func TestMachineStormOfProcesses(t *testing.T) {
	lane.Machine(t, 0.9)
	needRoot(t)
	need(t, "perf")
	seconds, rate := 10, 100 // a second
	if testing.Short() {
		seconds, rate = 6, 50
	}
	dir := t.TempDir()
	// Under a name that no other process has.
	name := fmt.Sprintf("gust%d", os.Getpid())
	commands := []string{filepath.Join(dir, "dynamic", name), filepath.Join(dir, "static", name)}
	for i, flags := range [][]string{nil, {"-static"}} {
		if err := os.Mkdir(filepath.Dir(commands[i]), 0o755); err != nil {
			t.Fatal(err)
		}
		copyFile(t, programs.Build(t, "burn", flags...), commands[i])
	}
	r := start(t, dir, nil, slices.Concat(
		[]string{"record", "-a", "-F", "999", "--stats", "stats.json", "-o", "perf.data", "--",
			programs.Build(t, "storm"), strconv.Itoa(seconds), strconv.Itoa(rate)}, commands)...)

	var rss, files []float64 // once a second; KiB
	tick := time.NewTicker(time.Second)
	for range seconds - 1 {
		<-tick.C
		rss = append(rss, vmRSS(t, r.Process.Pid))
		files = append(files, openFiles(t, r.Process.Pid))
	}
	tick.Stop()
	e := r.finish(t, time.Minute)
	if e.status != 0 || !strings.Contains(e.stdout, fmt.Sprintf("storm %d\n", seconds*rate)) {
		t.Fatalf("status %d, storm printed %q\n%s", e.status, e.stdout, e.stderr)
	}
	t.Logf("resident KiB, each second: %.0f", rss)
	t.Logf("open files, each second: %.0f", files)
	// Other programs start meanwhile as well, and their files stay known: so some
	// room. Between the quarters compared the storm starts 500 processes.
	levelsOff(t, "resident KiB", rss, 12<<10)
	levelsOff(t, "open files", files, 64)

	content, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	if err != nil {
		t.Fatal(err)
	}
	st := readStatistics(t, content)
	st.addUp(t)
	if st.Samples.Lost != 0 {
		t.Errorf("%d records were lost", st.Samples.Lost)
	}
	path := filepath.Join(dir, "perf.data")
	if stats := output(t, "", "perf", "report", "--stats", "-i", path); strings.Contains(stats, "LOST events") {
		t.Errorf("perf found lost records:\n%s", stats)
	}

	// The samples of the short-lived processes, and those of them that reach a
	// start: the program's own or, before it is there, the dynamic linker's.
	var ours, complete int
	var processes []int
	shown := 0
	for _, s := range perfScript(t, path) {
		if s.comm != name || len(s.user) == 0 {
			continue
		}
		ours++
		processes = append(processes, s.pid)
		top := s.outermost()
		if filepath.Base(top.in) == name && top.name == "_start" ||
			strings.HasPrefix(filepath.Base(top.in), "ld-") {
			complete++
		} else if shown++; shown <= 5 {
			t.Logf("not complete, leaf first: %s (%s)", strings.Join(s.names(), " "), top.in)
		}
	}
	slices.Sort(processes)
	seen := len(slices.Compact(processes))
	lane.Figure(t, "%d samples of %d short-lived processes, %d complete; %d samples in all, %.1f µs each, %v",
		ours, seen, complete, st.Samples.Total, st.Cost.PerSample, st.Unwind.Ended)
	if seen < seconds*rate*9/10 {
		t.Errorf("only %d of %d processes were sampled", seen, seconds*rate)
	}
	if ours == 0 || complete*100 < ours*95 {
		t.Errorf("%d of the %d user stacks of short-lived processes are complete", complete, ours)
	}
}

// levelsOff compares the last quarter of a series with its second quarter.
func levelsOff(t testing.TB, what string, series []float64, constant float64) {
	t.Helper()
	n := len(series)
	mean := func(s []float64) (m float64) {
		for _, v := range s {
			m += v / float64(len(s))
		}
		return m
	}
	early, late := mean(series[n/4:n/2]), mean(series[n-n/4:])
	if late > 1.1*early+constant {
		t.Errorf("%s grow from %.0f to %.0f: %.0f", what, early, late, series)
	}
}

func vmRSS(t testing.TB, pid int) float64 {
	t.Helper()
	kib, ok := residentMemory(pid)
	if !ok {
		t.Fatal("no VmRSS")
	}
	return kib
}

// residentMemory is in KiB; ok is false for a process that has ended.
func residentMemory(pid int) (kib float64, ok bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(status) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == "VmRSS:" {
			kib, err := strconv.ParseFloat(string(f[1]), 64)
			return kib, err == nil
		}
	}
	return 0, false
}

func openFiles(t testing.TB, pid int) float64 {
	t.Helper()
	n, ok := descriptors(pid)
	if !ok {
		t.Fatal("no open files")
	}
	return n
}

// descriptors is how many a process has; ok is false where it has ended.
func descriptors(pid int) (n float64, ok bool) {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return float64(len(fds)), err == nil
}
