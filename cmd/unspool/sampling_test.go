package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/testdata/programs"
)

// TestRecordAfterDelay has samples come all the time, of which those of the delay are not to be recorded.
func TestRecordAfterDelay(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	p := startToucher(t)
	path := buildToucher(t, "")
	const delay = 200 * time.Millisecond
	for name, args := range map[string][]string{
		"of a command":          append(programs.Faults(), "--", path),
		"of a process":          faultsOf(p),
		"of the whole system":   {"-a"},
		"in a confined process": append(faultsOf(p), "--sandbox"),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "of the whole system" {
				args = append(args, rareOnly(t)...)
			}
			dir, p := t.TempDir(), p
			data := filepath.Join(dir, "perf.data")
			args := slices.Concat([]string{"record", "-D", strconv.Itoa(int(delay.Milliseconds()))}, args)
			began := monotonic(t)
			var r *running
			if name == "of a command" {
				r, p = startTold(t, dir, args...)
			} else {
				r = start(t, dir, nil, args...)
			}
			p.touchUntil("samples", func() bool { return samplesIn(data) >= counted })
			r.Process.Signal(syscall.SIGINT)
			if e := r.finish(t, time.Minute); name != "of a command" && e.status != 0 {
				t.Fatalf("%+v", e)
			}
			samples := perfScript(t, data)
			if first := samples[0].time - began; first < delay {
				t.Errorf("the first sample is from %v after the start", first)
			}
			// The program's mappings are from the time before.
			samples = touching(of(samples, p.pid))
			for _, s := range samples {
				if !isTouching(&s) {
					t.Errorf("a stack of %v", s.names())
				}
			}
			if len(samples) == 0 {
				t.Error("no sample in touches_leaf")
			}
		})
	}
}

// TestRecordIsControlled starts and stops the sampling of a program, and ends the recording, by a FIFO.
func TestRecordIsControlled(t *testing.T) {
	t.Parallel()
	needRoot(t)
	p := startToucher(t)
	for name, output := range map[string]string{"perf.data": "perf.data", "another format": "out.folded"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r, control := startControlled(t, dir, slices.Concat([]string{"record", "-o", output}, faultsOf(p))...)
			control("ping")
			// By the depths of the stacks, samples are known again: those of 2 and 4 are to be recorded.
			p.tell("20 1")
			control("enable")
			p.tell("20 2")
			control("disable")
			p.tell("20 3")
			control("enable")
			p.tell("20 4")
			control("disable")
			p.tell("20 5")
			control("stop")
			if e := r.finish(t, time.Minute); e.status != 0 {
				t.Fatalf("%+v", e)
			}
			data := filepath.Join(dir, output)
			var got string
			for depth := 1; depth <= 5; depth++ {
				got += fmt.Sprint(" ", ofDepth(t, data, depth))
			}
			if want := " 0 20 0 20 0"; got != want {
				t.Errorf("samples%s, and not%s", got, want)
			}
		})
	}
}

// ofDepth counts the samples of a toucher that are below so many frames of touches_outer.
func ofDepth(t *testing.T, path string, depth int) (n int) {
	t.Helper()
	frames := strings.Repeat("touches_outer;", depth)
	if filepath.Ext(path) == ".folded" {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("touches_pages;"+frames+`touches_leaf (\d+)\n`).FindAllSubmatch(text, -1) {
			count, _ := strconv.Atoi(string(m[1]))
			n += count
		}
		return n
	}
	p := ownProfile(t, path)
	for _, s := range p.Samples {
		if strings.HasPrefix(strings.Join(userStack(p, s.Node), ";"), "touches_leaf;"+frames+"touches_pages;main;") {
			n += int(s.Count)
		}
	}
	return n
}

func TestBadControl(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"never enabled":     {[]string{"-D", "-1", "true"}, "-D -1 needs --control.*--help"},
		"delay is no time":  {[]string{"-D", "soon", "true"}, "-D soon: must be a number of milliseconds.*--help"},
		"negative delay":    {[]string{"-D", "-2", "true"}, "-D -2: must be a number of milliseconds.*--help"},
		"no kind":           {[]string{"--control", "ctl", "true"}, `--control: must be fifo:CTL.*"ctl"`},
		"no FIFO":           {[]string{"--control", "fifo:/dev/null", "true"}, "/dev/null is not a FIFO"},
		"nothing is there":  {[]string{"--control", "fifo:no", "true"}, "--control: cannot open no: no such file"},
		"no path of a FIFO": {[]string{"--control", "fifo:", "true"}, "--control: must be fifo:CTL"},
	} {
		t.Run(name, func(t *testing.T) {
			unspool(t, t.TempDir(), append([]string{"record", "-q"}, c.args...)...).fails(t, statusFailure, c.says)
		})
	}
}
