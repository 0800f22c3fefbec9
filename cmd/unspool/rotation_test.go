package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/testdata/programs"
)

func TestRotationTime(t *testing.T) {
	for text, want := range map[string]rotationTime{
		"signal": {}, "20M": {size: 20 << 20}, "64k": {size: 64 << 10}, "1G": {size: 1 << 30},
		"4096B": {size: 4096},
		"30s":   {every: span(30 * time.Second)}, "5m": {every: span(5 * time.Minute)},
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

// rotated reads the files of a rotation that recorded the program burn, each of which must say by itself what
// its samples are in. It returns the samples of each file.
func rotated(t *testing.T, dir string) (files [][]sample) {
	t.Helper()
	for i := 1; ; i++ {
		path := filepath.Join(dir, fmt.Sprintf("perf.data.%d", i))
		if _, err := os.Stat(path); err != nil {
			return files
		}
		samples := perfScript(t, path)
		burning := share(samples, func(s *sample) bool {
			return s.comm == "burn" && slices.Contains(s.names(), "burn_outer")
		})
		if burning < len(samples)*9/10 {
			t.Errorf("%s: %d of %d samples below burn_outer", path, burning, len(samples))
		}
		files = append(files, samples)
	}
}

func TestRecordIntoSeveralFiles(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	pid := strconv.Itoa(burner(t))
	for name, args := range map[string][]string{
		"by time":                  {"--switch-output=250ms"},
		"by size":                  {"--switch-output=12k"},
		"compressed":               {"--switch-output=250ms", "-z"},
		"in one process":           {"--switch-output=250ms", "--no-sandbox"},
		"while samples wait":       {"--switch-output=250ms", "--stack-size", "64"}, // to be joined
		"while nothing is awaited": {"--switch-output=250ms", "--no-join"},
	} {
		t.Run(name, func(t *testing.T) {
			var dir string
			var files [][]sample
			for _, seconds := range []string{"1.1", "5"} { // on a busy machine the program gets less of a CPU
				dir = t.TempDir()
				args := slices.Concat([]string{"record", "-F", "999", "-p", pid, "-d", seconds, "--stats", "stats.json",
					"--switch-max-files", "90"}, args)
				if e := unspool(t, dir, args...); e.status != 0 {
					t.Fatalf("%+v", e)
				}
				if files = rotated(t, dir); len(files) >= 3 {
					break
				}
			}
			st := statsIn(t, dir)
			if len(files) < 3 {
				t.Errorf("%d files", len(files))
			}
			n, last, size := 0, time.Duration(0), uint64(0)
			for i, samples := range files {
				size += fileSize(t, filepath.Join(dir, fmt.Sprintf("perf.data.%d", i+1)))
				n += len(samples)
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
		})
	}
}

// TestRecordKeepsTheLastFiles has a recording replace its own files, but keep what was there before.
func TestRecordKeepsTheLastFiles(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	dir := t.TempDir()
	first := filepath.Join(dir, "perf.data.1")
	if err := os.WriteFile(first, []byte("older"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := unspool(t, dir, "record", "-q", "-F", "999", "-p", strconv.Itoa(burner(t)), "-d", "1.1",
		"--switch-output=200ms", "--switch-max-files=2")
	if e.status != 0 {
		t.Fatalf("%+v", e)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"perf.data.1", "perf.data.1.old", "perf.data.2"}) {
		t.Errorf("%v", names)
	}
	if text, _ := os.ReadFile(first + ".old"); string(text) != "older" {
		t.Errorf("what was there before is now %.20q", text)
	}
	if files := rotated(t, dir); len(files) != 2 || len(files[0])+len(files[1]) == 0 {
		t.Errorf("%d files", len(files))
	}
}

// TestRecordSwitchesAtSignals also has the program start before the first file ends, and map nothing later.
func TestRecordSwitchesAtSignals(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	dir := t.TempDir()
	r := start(t, dir, nil, "record", "-q", "-F", "999", "--switch-output", "--",
		programs.Build(t, "burn"), "60000")
	for i, signal := range []syscall.Signal{syscall.SIGUSR2, syscall.SIGUSR2, syscall.SIGINT} {
		path := filepath.Join(dir, fmt.Sprintf("perf.data.%d", i+1))
		eventually(t, "samples in "+path, func() bool { return samplesIn(path) >= 100 })
		if err := r.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	if e := r.wait(); e.status != 128+int(syscall.SIGTERM) { // that of the program, which is ended
		t.Fatalf("%+v", e)
	}
	files := rotated(t, dir)
	if len(files) != 3 {
		t.Fatalf("%d files", len(files))
	}
	for i, samples := range files {
		if len(samples) < 100 {
			t.Errorf("%d samples in file %d", len(samples), i+1)
		}
	}
}

// samplesIn counts the samples that a recording has written so far, to a file that may not be there yet.
func samplesIn(path string) (n int) {
	r, err := perfdata.Open(path)
	if err != nil {
		return 0
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if err != nil {
			return n
		}
		if rec.Type() == perfring.RecordSample {
			n++
		}
	}
}

// TestRecordOfTheLast records for some time, and looks at what is written of it at a signal and at the end.
func TestRecordOfTheLast(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	pid := strconv.Itoa(burner(t))
	for name, how := range map[string][]string{
		"confined": nil, "in one process": {"--no-sandbox"}, "compressed": {"-z"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			args := []string{"record", "-q", "-F", "999", "-p", pid, "--last", "1s"}
			r := start(t, dir, nil, append(args, how...)...)
			time.Sleep(2500 * time.Millisecond)
			if _, err := os.Stat(filepath.Join(dir, "perf.data.1")); err == nil {
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
			asked := monotonic(t)
			recordsInto(t, filepath.Join(dir, "perf.data.1"))
			time.Sleep(500 * time.Millisecond)
			if err := r.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			ended := monotonic(t)
			if e := r.wait(); e.status != 0 {
				t.Fatalf("%+v", e)
			}
			files := rotated(t, dir)
			if len(files) != 2 {
				t.Fatalf("%d files", len(files))
			}
			for i, until := range []time.Duration{asked, ended} {
				samples := files[i]
				if len(samples) < 20 {
					t.Fatalf("file %d: %d samples", i+1, len(samples))
				}
				// Rounds of the loop come on top of the second, and of the quarter by which parts are forgotten.
				from := until - samples[0].time
				if from < 800*time.Millisecond || from > 2*time.Second {
					t.Errorf("file %d begins %v before it was asked for", i+1, from)
				}
				if late := until - samples[len(samples)-1].time; late > 400*time.Millisecond {
					t.Errorf("file %d ends %v before it was asked for", i+1, late)
				}
			}
		})
	}
}
