package main

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/testdata/programs"
)

func TestRecordAfterDelay(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	pid := strconv.Itoa(burner(t))
	for name, args := range map[string][]string{
		"of a command":          {"-d", "1.2s", "--", programs.Build(t, "burn"), "0"},
		"of a process":          {"-d", "1.2s", "-p", pid},
		"of the whole system":   {"-d", "1.2s", "-a"},
		"in a confined process": {"-d", "1.2s", "--sandbox", "-p", pid},
	} {
		t.Run(name, func(t *testing.T) {
			began := monotonic(t)
			r := record(t, append([]string{"-F", "999", "-D", "700"}, args...)...)
			samples := perfScript(t, r.path)
			if len(samples) < 20 {
				t.Fatalf("%d samples", len(samples))
			}
			if first := samples[0].time - began; first < 700*time.Millisecond {
				t.Errorf("the first sample is from %v after the start", first)
			}
			// The program's mappings are from the time before.
			if share(samples, func(s *sample) bool { return slices.Contains(s.names(), "burn_inner") }) == 0 {
				t.Error("no sample in burn_inner")
			}
		})
	}
}

// TestRecordIsControlled starts and stops the sampling of a program, and ends the recording, by a FIFO.
func TestRecordIsControlled(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	pid := strconv.Itoa(burner(t))
	for name, output := range map[string]string{"perf.data": "perf.data", "another format": "out.folded"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, fifo := range []string{"ctl", "ack"} {
				if err := unix.Mkfifo(filepath.Join(dir, fifo), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			acks, err := os.OpenFile(filepath.Join(dir, "ack"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer acks.Close()
			lines := bufio.NewReader(acks)
			r := start(t, dir, nil, "record", "-p", pid, "-F", "999", "-D", "-1", "--control", "fifo:ctl,ack",
				"-o", output)
			in, err := os.OpenFile(filepath.Join(dir, "ctl"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			var at []time.Duration // when each command was followed
			for _, command := range []string{"ping", "enable", "disable", "stop"} {
				if command != "ping" {
					time.Sleep(300 * time.Millisecond)
				}
				if _, err := in.WriteString(command + "\n"); err != nil {
					t.Fatal(err)
				}
				at = append(at, monotonic(t))
				if err := acks.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
					t.Fatal(err)
				}
				if line, err := lines.ReadString('\n'); line != "ack\n" {
					t.Fatalf("%s: %q, %v\n%s", command, line, err, &r.stderr)
				}
				if command == "disable" {
					at[len(at)-1] = monotonic(t) // until then there may be samples
				}
			}
			if e := r.wait(); e.status != 0 {
				t.Fatalf("%+v", e)
			}
			if output != "perf.data" {
				return
			}
			samples := perfScript(t, filepath.Join(dir, output))
			if len(samples) < 20 {
				t.Errorf("%d samples", len(samples))
			}
			for _, s := range samples {
				if s.time < at[1] || s.time > at[2] {
					t.Fatalf("a sample at %v, between %v and %v there may be some", s.time, at[1], at[2])
				}
			}
		})
	}
}
