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

	"unspool/testdata/programs"
)

// TestStormOfMappings records a program that loads and unloads libraries more than
// 500 times a second, more of them than unspool keeps open: no stack suffers, and
// what unspool holds does not grow.
func TestStormOfMappings(t *testing.T) {
	needRoot(t)
	const seconds = 3
	dir := t.TempDir()
	// Without build IDs each copy is a file of its own.
	var libraries []string
	for i, size := range []string{"64", "4000"} {
		built := buildCase(t, "reload_lib.c", "-fPIC", "-shared", "-DSIZE="+size,
			fmt.Sprintf(`-DPAD="%d"`, 16+i*1911), "-Wl,--build-id=none")
		for n := range 150 {
			path := filepath.Join(dir, fmt.Sprintf("%d-%d.so", n, i))
			copyFile(t, built, path)
			libraries = append(libraries, path)
		}
	}
	slices.Sort(libraries) // large and small by turns
	args := []string{"record", "-F", "999", "--stats", "stats.json", "-o", "perf.data",
		"--", buildCase(t, "reload.c", "-DTURNS=300000"), strconv.Itoa(seconds)}
	r := start(t, dir, nil, append(args, libraries...)...)
	var rss, files []float64 // eight times a second; KiB
	tick := time.NewTicker(time.Second / 8)
	for range 8*seconds - 4 {
		<-tick.C
		rss = append(rss, vmRSS(t, r.Process.Pid))
		files = append(files, openFiles(t, r.Process.Pid))
	}
	tick.Stop()
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
	t.Logf("%d loads; open files %.0f, resident KiB %.0f", loads, files, rss)
	if loads < 500*seconds {
		t.Errorf("%d loads in %d seconds are no storm", loads, seconds)
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
