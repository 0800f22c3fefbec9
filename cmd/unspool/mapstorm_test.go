package main

import (
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

// TestManyMappings records a program that loads and unloads more libraries than unspool keeps open, and is at
// the end of a chain in each: all stacks are complete, and unspool has no more files open when all have been
// loaded a second time.
func TestManyMappings(t *testing.T) {
	t.Parallel()
	needRoot(t)
	const files = 300
	libraries := manyLibraries(t, files/2)
	proc := programs.StartCounted(t, buildCase(t, "loads.c", "-ldl"), 2*files, libraries...)
	r := startRecording(t, slices.Concat(programs.Faults(), []string{"--stack-size", "16384", "-p",
		strconv.Itoa(proc.Process.Pid)})...)
	var open [2]float64
	for round := range open {
		// It stops after each tenth of them.
		for range 10 {
			proc.Continue()
			untilStopped(t, proc.Process.Pid)
			r.drained()
		}
		open[round] = openFiles(t, r.Process.Pid)
	}
	got := r.stop(t)
	if open[1] > open[0]+16 {
		t.Errorf("%v files are open when all were loaded once, and twice", open)
	}
	if got.stats.Samples.Lost > 0 {
		t.Errorf("%d lost", got.stats.Samples.Lost)
	}
	got.whollyComplete(t)
	if n := matchEnd(t, ownProfile(t, got.path), proc.Chain); n != 2*files {
		t.Errorf("%d stacks at the chain's end, of %d", n, 2*files)
	}
}

// manyLibraries makes n copies of each of two libraries that differ in how their code lies. Without build IDs
// each copy is a file of its own.
func manyLibraries(t *testing.T, n int) (libraries []string) {
	t.Helper()
	dir := t.TempDir()
	for i, size := range []string{"64", "4000"} {
		built := buildCase(t, "reload_lib.c", "-fPIC", "-shared", "-DSIZE="+size,
			fmt.Sprintf(`-DPAD="%d"`, 16+i*1911), "-Wl,--build-id=none")
		for k := range n {
			path := filepath.Join(dir, fmt.Sprintf("%d-%d.so", k, i))
			copyFile(t, built, path)
			libraries = append(libraries, path)
		}
	}
	slices.Sort(libraries) // large and small by turns
	return libraries
}

// TestMachineStormOfMappings records a program that loads and unloads libraries more than 500 times a second of its
// CPU time, more of them than unspool keeps open: all stacks stay complete, and the memory of unspool does
// not grow.
func TestMachineStormOfMappings(t *testing.T) {
	lane.Machine(t, 0.9)
	needRoot(t)
	const seconds, least = 3, 1500 // on a busy machine the loads take longer
	dir := t.TempDir()
	libraries := manyLibraries(t, 150)
	args := []string{"record", "-F", "999", "--stats", "stats.json", "-o", "perf.data",
		"--", buildCase(t, "reload.c", "-DTURNS=300000", fmt.Sprintf("-DLEAST=%d", least)), strconv.Itoa(seconds)}
	r := start(t, dir, nil, append(args, libraries...)...)
	go r.wait()
	var rss, files []float64 // eight times a second; KiB
	tick, late := time.NewTicker(time.Second/8), time.After(time.Minute)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-tick.C:
			kib, ok := residentMemory(r.Process.Pid)
			n, alive := descriptors(r.Process.Pid)
			if ok && alive {
				rss, files = append(rss, kib), append(files, n)
			}
		case <-late:
			over = true
		case <-r.done:
			over = true
		}
	}
	e := r.finish(t, time.Minute)
	if e.status != 0 {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	content, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	if err != nil {
		t.Fatal(err)
	}
	got := recording{filepath.Join(dir, "perf.data"), readStatistics(t, content), e}
	lines := strings.Split(strings.TrimSpace(e.stdout), "\n")
	var loads int
	if _, err := fmt.Sscanf(lines[len(lines)-1], "loads %d", &loads); err != nil {
		t.Fatalf("%v: %q", err, e.stdout)
	}
	took := float64(got.stats.Samples.Total) / 999 // of CPU time
	lane.Figure(t, "%d loads in %.2f s; open files %.0f, resident KiB %.0f", loads, took, files, rss)
	if float64(loads) < 500*took {
		t.Errorf("%d loads in %.2f s are no storm", loads, took)
	}
	levelsOff(t, "resident KiB", rss, 4<<10)
	levelsOff(t, "open files", files, 16)
	got.whole(t)
	if s := got.stats; s.Samples.Lost != 0 || s.incomplete() > 0.001 {
		t.Errorf("%d records lost, ended: %v", s.Samples.Lost, s.Unwind.Ended)
	}
	chain, err := programs.ParseChain(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	matchLeaves(t, got, chain)
}
