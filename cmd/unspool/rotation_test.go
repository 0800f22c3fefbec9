package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	outfile "unspool/capture/output"
	"unspool/capture/perfdata"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

func TestRotationTime(t *testing.T) {
	for text, want := range map[string]rotationTime{
		"signal": {}, "20M": {size: 20 << 20}, "64k": {size: 64 << 10}, "1G": {size: 1 << 30},
		"4096B": {size: 4096}, "1B": {size: 1},
		"30s": {every: span(30 * time.Second)}, "5m": {every: span(5 * time.Minute)},
		"1h": {every: span(time.Hour)}, "200ms": {every: span(200 * time.Millisecond)},
	} {
		var got rotationTime
		if err := got.Set(text); err != nil || got.size != want.size || got.every != want.every {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "20", "0s", "0M", "-1s", "-1M", "s", "M", "usr2", "9999999999G", "1e99h"} {
		var got rotationTime
		if err := got.Set(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// rotated reads the files of a rotation that recorded a toucher, each of which must say by itself what
// its samples are in. It returns the samples of each file.
func rotated(t *testing.T, dir string) (files [][]sample) {
	t.Helper()
	for _, path := range rotatedPaths(dir) {
		samples := perfScript(t, path)
		for _, s := range touching(samples) {
			// Of a stack of which 64 bytes were copied, the rest may not have been seen.
			whole := isTouching(&s) || strings.HasSuffix(t.Name(), "while_samples_wait") && s.user[1].name == "touches_outer"
			if s.comm != "touches" || !whole {
				t.Errorf("%s: a stack of %s: %v", path, s.comm, s.names())
			}
		}
		files = append(files, samples)
	}
	return files
}

// rotatedPaths are the files of a rotation, the oldest first.
func rotatedPaths(dir string) []string { return perfdata.PieceNames(filepath.Join(dir, "perf.data")) }

// rotatedPath waits for the nth file of a rotation.
func rotatedPath(t *testing.T, dir string, n int) (path string) {
	t.Helper()
	lane.Eventually(t, "another file", func() bool {
		all := rotatedPaths(dir)
		if len(all) >= n {
			path = all[n-1]
		}
		return path != ""
	})
	return path
}

func TestRecordIntoSeveralFiles(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	p := startToucher(t)
	for name, args := range map[string][]string{
		"by time":                  {"--switch-output=200ms"},
		"by size":                  {"--switch-output=12k"},
		"compressed":               {"--switch-output=200ms", "-z"},
		"in one process":           {"--switch-output=200ms", "--no-sandbox"},
		"while samples wait":       {"--switch-output=200ms", "--stack-size", "64"}, // to be joined
		"while nothing is awaited": {"--switch-output=200ms", "--no-join"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r, control := startControlled(t, dir, slices.Concat([]string{"record", "--stats", "stats.json",
				"--switch-max-files", "100"}, faultsOf(p), args)...)
			control("enable")
			touched := p.touchUntil("three files", func() bool {
				time.Sleep(10 * time.Millisecond) // few samples are enough
				return len(rotatedPaths(dir)) >= 3
			})
			control("stop")
			if e := r.finish(t, time.Minute); e.status != 0 {
				t.Fatalf("%+v", e)
			}
			files, st := rotated(t, dir), statsIn(t, dir)
			n, leaves, last, size := 0, 0, time.Duration(0), uint64(0)
			for i, samples := range files {
				size += fileSize(t, rotatedPath(t, dir, i+1))
				n += len(samples)
				leaves += len(touching(samples))
				for _, s := range samples {
					if s.time < last {
						t.Fatalf("file %d: a sample is older than one of the file before", i+1)
					}
				}
				if len(samples) > 0 {
					last = samples[len(samples)-1].time
				}
			}
			if uint64(n) != st.Samples.Total || size != st.Bytes.Written {
				t.Errorf("%d samples and %d bytes in the files, %d and %d in the statistics", n, size, st.Samples.Total,
					st.Bytes.Written)
			}
			if len(files) < 3 || leaves != touched || st.Samples.Lost > 0 {
				t.Errorf("%d samples in touches_leaf, of %d, in %d files, %d lost", leaves, touched, len(files),
					st.Samples.Lost)
			}
		})
	}
}

// TestRecordKeepsTheLastFiles has a recording remove its own files, but keep what was there before. The name of a file
// stays, and says when it was begun.
func TestRecordKeepsTheLastFiles(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	p, dir := startToucher(t), t.TempDir()
	before := []string{"perf.data", "perf.data.2020010203040506"}
	for _, name := range before {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("older"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	r, control := startControlled(t, dir, slices.Concat([]string{"record", "--switch-output",
		"--switch-max-files=2"}, faultsOf(p))...)
	control("enable")
	const switches = 3
	var files []string
	for i := range switches + 1 {
		lane.Eventually(t, "another file", func() bool {
			all := rotatedPaths(dir)
			if last := all[len(all)-1]; len(all) > 1 && !slices.Contains(files, last) {
				files = append(files, last)
			}
			return len(files) > i
		})
		p.touch(counted + i)
		awaitSamples(t, files[i], counted+i)
		if i == switches {
			break
		}
		if err := r.Process.Signal(syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
	}
	control("stop")
	e := r.finish(t, time.Minute)
	if says := "2 files, " + filepath.Base(files[switches-1]) + " to " + filepath.Base(files[switches]); e.status != 0 ||
		!strings.Contains(e.stderr, " in "+says) {
		t.Fatalf("want %q: %+v", says, e)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if names = append(names, e.Name()); slices.Contains(before, e.Name()) {
			if text, _ := os.ReadFile(filepath.Join(dir, e.Name())); string(text) != "older" {
				t.Errorf("%s, which was there before, is now %.20q", e.Name(), text)
			}
		}
	}
	want := append(before, filepath.Base(files[switches-1]), filepath.Base(files[switches]))
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	for i, path := range files[switches-1:] {
		if n := len(touching(perfScript(t, path))); n != counted+switches-1+i {
			t.Errorf("%s has %d samples of %d", path, n, counted+switches-1+i)
		}
		at, ok := outfile.ParseDated("perf.data", filepath.Base(path))
		if !ok || at.Before(began.Truncate(10*time.Millisecond)) || at.After(time.Now()) {
			t.Errorf("%s: of %v", path, at)
		}
	}
}

// TestRecordSwitchesAtSignals also has the program start before the first file ends, and map nothing later.
func TestRecordSwitchesAtSignals(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	dir := t.TempDir()
	r, p := startTold(t, dir, slices.Concat([]string{"record", "-q", "--switch-output"}, programs.Faults(),
		[]string{"--", buildToucher(t, "")})...)
	for i, signal := range []syscall.Signal{syscall.SIGUSR2, syscall.SIGUSR2, syscall.SIGINT} {
		path := rotatedPath(t, dir, i+1)
		p.touch(counted + i)
		lane.Eventually(t, "samples", func() bool { return samplesIn(path) >= counted+i })
		if err := r.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	if e := r.finish(t, time.Minute); e.status != 128+int(syscall.SIGTERM) { // that of the program, which is ended
		t.Fatalf("%+v", e)
	}
	files := rotated(t, dir)
	if len(files) != 3 {
		t.Fatalf("%d files", len(files))
	}
	for i, samples := range files {
		if n := len(touching(samples)); n != counted+i {
			t.Errorf("%d samples in file %d, of %d", n, i+1, counted+i)
		}
	}
}

// TestRecordOfTheLast looks at what is written of a recording at a signal and at the end.
func TestRecordOfTheLast(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	p := startToucher(t)
	for name, how := range map[string][]string{
		"confined": nil, "in one process": {"--no-sandbox"}, "compressed": {"-z"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r, control := startControlled(t, dir, slices.Concat([]string{"record", "-q", "--last", "1h"}, faultsOf(p),
				how)...)
			control("enable")
			p.touch(counted)
			control("ping") // until they have been drained
			if len(rotatedPaths(dir)) > 0 {
				t.Error("a file is written before the signal")
			}
			if err := r.Process.Signal(syscall.SIGUSR2); err != nil {
				t.Fatal(err)
			}
			for child := range childrenOf(t, r.Process.Pid) { // as pkill does
				if err := syscall.Kill(child, syscall.SIGUSR2); err != nil {
					t.Error(err)
				}
			}
			awaitSamples(t, rotatedPath(t, dir, 1), counted)
			p.touch(counted + 1)
			if err := r.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if e := r.finish(t, time.Minute); e.status != 0 {
				t.Fatalf("%+v", e)
			}
			files := rotated(t, dir)
			if len(files) != 2 {
				t.Fatalf("%d files", len(files))
			}
			for i, want := range []int{counted, 2*counted + 1} {
				if n := len(touching(files[i])); n != want {
					t.Errorf("%d samples in file %d, of %d", n, i+1, want)
				}
			}
		})
	}
	t.Run("what is older is forgotten", func(t *testing.T) {
		dir := t.TempDir()
		r, control := startControlled(t, dir, slices.Concat([]string{"record", "-q", "--last", "1s"}, faultsOf(p))...)
		control("enable")
		p.tell(fmt.Sprintf("%d 10", counted)) // by their depth they are known again
		files := 0
		lane.Eventually(t, "a file without the first samples", func() bool {
			files++
			p.touch(1)
			if err := r.Process.Signal(syscall.SIGUSR2); err != nil {
				t.Fatal(err)
			}
			rotatedPath(t, dir, files)
			time.Sleep(300 * time.Millisecond) // few files are enough
			return share(perfScript(t, rotatedPath(t, dir, files)), func(s *sample) bool { return len(s.user) > 10 }) == 0
		})
		control("stop")
		if e := r.finish(t, time.Minute); e.status != 0 {
			t.Fatalf("%+v", e)
		}
	})
}

// TestRecordOfTheLastWithoutOpener kills the process that would create the file: nothing is said to be in it.
func TestRecordOfTheLastWithoutOpener(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir()
	r, control := startControlled(t, dir, slices.Concat([]string{"record", "--last", "1h"}, faultsOf(startToucher(t)))...)
	control("ping")
	if err := syscall.Kill(child(t, r.Process.Pid, "(opener)"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e := r.finish(t, time.Minute)
	if e.status != statusFailure || strings.Contains(e.stderr, " in perf.data") ||
		!strings.Contains(e.stderr, "was killed, so the recording ends here: cannot write perf.data: ") {
		t.Errorf("status %d\n%s", e.status, e.stderr)
	}
}

// TestMachineRecordOfTheLast looks at the time that is kept.
func TestMachineRecordOfTheLast(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	need(t, "perf")
	dir := t.TempDir()
	r := start(t, dir, nil, "record", "-q", "-F", "999", "-p", strconv.Itoa(burner(t)), "--last", "1s")
	time.Sleep(2500 * time.Millisecond)
	if err := r.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	asked := monotonic(t)
	recordsInto(t, rotatedPath(t, dir, 1))
	time.Sleep(500 * time.Millisecond)
	if err := r.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	ended := monotonic(t)
	if e := r.finish(t, time.Minute); e.status != 0 {
		t.Fatalf("%+v", e)
	}
	for i, until := range []time.Duration{asked, ended} {
		samples := perfScript(t, rotatedPath(t, dir, i+1))
		if len(samples) < 20 {
			t.Fatalf("file %d: %d samples", i+1, len(samples))
		}
		// Rounds of the loop come on top of the second, and of the quarter by which parts are forgotten.
		from, late := until-samples[0].time, until-samples[len(samples)-1].time
		lane.Figure(t, "file %d begins %v before it was asked for, and ends %v before that", i+1, from, late)
		if from < 800*time.Millisecond || from > 2*time.Second || late > 400*time.Millisecond {
			t.Errorf("file %d begins %v before it was asked for, and ends %v before that", i+1, from, late)
		}
	}
}
