package main

import (
	"bytes"
	encoding "encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/testdata/programs"
)

// layouts are the ways in which a recording is written that other readers than perf open.
var layouts = []struct {
	name string
	args []string
}{
	{"plain", nil},
	{"compressed", []string{"-z"}},
	{"two events", []string{"-e", "minor-faults:u"}},
	{"the whole machine", []string{"-a"}},
}

// hotspotsDepths are how many addresses Hotspot has of the samples that perf script prints, by time. Between
// the kernel's addresses and the user's it puts the sampled one, which is the kernel's first
// (resolveCallchain in perfparser's perfunwind.cpp).
func hotspotsDepths(samples []sample) map[time.Duration][]int {
	of := make(map[time.Duration][]int)
	for i := range samples {
		s := &samples[i]
		n := len(s.kernel) + len(s.user)
		if len(s.kernel) > 0 && len(s.user) > 0 {
			n++
		}
		of[s.time] = append(of[s.time], n)
	}
	return of
}

// TestHotspotOpensRecordings has Hotspot export what it has read. 1.6 can do that without a window.
func TestHotspotOpensRecordings(t *testing.T) {
	t.Parallel()
	need(t, "hotspot", "perf")
	help := exec.Command("hotspot", "--help")
	help.Env = append(os.Environ(), "QT_QPA_PLATFORM=offscreen")
	if text, _ := help.CombinedOutput(); !strings.Contains(string(text), "--exportTo") {
		t.Skip("this version of Hotspot has no --exportTo: make test-sid tries a later one")
	}
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			r := record(t, slices.Concat(programs.Faults(), l.args,
				[]string{"--", programs.Build(t, "burn"), programs.Times(faultsTaken)})...)
			out := filepath.Join(t.TempDir(), "out.perfparser")
			cmd := exec.Command("hotspot", "--exportTo", out, r.path)
			cmd.Env = append(os.Environ(), "QT_QPA_PLATFORM=offscreen")
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			content := mustRead(t, out)
			want, samples, differ := hotspotsDepths(perfScript(t, r.path)), 0, 0
			for m := range perfparserMessages(t, content) {
				if m[0] != perfparserSample {
					continue
				}
				samples++
				// PID, TID, time, CPU, and then a list of addresses.
				at, n := time.Duration(encoding.BigEndian.Uint64(m[9:])), int(encoding.BigEndian.Uint32(m[21:]))
				if !takes(want, at, n) {
					differ++
				}
			}
			t.Logf("%d samples, %d of another depth", samples, differ)
			if samples < faultsTaken || uint64(samples) != r.stats.Samples.Total || differ > 0 {
				t.Errorf("Hotspot has %d samples of %d, %d of another depth", samples, r.stats.Samples.Total, differ)
			}
		})
	}
}

// takes removes a depth of a time, if it is there.
func takes(of map[time.Duration][]int, at time.Duration, n int) bool {
	for i, d := range of[at] {
		if d == n {
			of[at] = append(of[at][:i:i], of[at][i+1:]...)
			return true
		}
	}
	return false
}

// Of the messages between Hotspot and its parser (perfparser's perfunwind.h).
const (
	perfparserError  = 8
	perfparserSample = 13
)

// perfparserMessages are those in a file: each a length, a kind, and what Qt's QDataStream has written.
func perfparserMessages(t *testing.T, content []byte) func(yield func([]byte) bool) {
	const magic = "QPERFSTREAM\x00"
	if !bytes.HasPrefix(content, []byte(magic)) {
		t.Fatalf("it begins with %.12q", content)
	}
	return func(yield func([]byte) bool) {
		for rest := content[len(magic)+4:]; len(rest) > 4; {
			size := encoding.LittleEndian.Uint32(rest)
			m := rest[4:][:size]
			if m[0] == perfparserError {
				t.Logf("its parser says %q", m[1:])
			}
			if !yield(m) {
				return
			}
			rest = rest[4+size:]
		}
	}
}

// TestSamplyOpensRecordings has samply read recordings into the format of Firefox Profiler. It takes the
// samples of the first event.
func TestSamplyOpensRecordings(t *testing.T) {
	t.Parallel()
	need(t, "samply", "perf")
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			r := record(t, slices.Concat(programs.Faults(), l.args,
				[]string{"--", programs.Build(t, "burn"), programs.Times(faultsTaken)})...)
			out := filepath.Join(t.TempDir(), "profile.json")
			text, err := exec.Command("samply", "import", "-s", "-n", "-o", out, r.path).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			var profile struct {
				Threads []samplyThread
			}
			if err := json.Unmarshal(mustRead(t, out), &profile); err != nil {
				t.Fatal(err)
			}
			got, want := make(map[string]int), make(map[string]int)
			for _, thread := range profile.Threads {
				for _, stack := range thread.Samples.Stack {
					got[fmt.Sprintf("%s: %d addresses", thread.Name, thread.depth(stack))]++
				}
			}
			samples := perfScript(t, r.path)
			for i := range samples {
				s := &samples[i]
				if strings.HasPrefix(s.event, "minor-faults") {
					continue
				}
				want[fmt.Sprintf("%s: %d addresses", s.comm, len(s.kernel)+len(s.user))]++
			}
			missing := 0
			for key, n := range want {
				if strings.HasPrefix(key, "burn:") {
					missing += max(0, n-got[key])
				}
			}
			t.Logf("%d samples, %d missing or of another depth", len(samples), missing)
			if len(samples) < faultsTaken || missing > 0 {
				t.Errorf("%d of %d samples are missing or have another depth", missing, len(samples))
			}
		})
	}
}

// A samplyThread is a thread in the format of Firefox Profiler, as far as its stacks need.
type samplyThread struct {
	Name    string
	Samples struct {
		Stack []*int
	}
	StackTable struct {
		Prefix []*int
	}
}

// depth is how many frames a stack has.
func (s *samplyThread) depth(stack *int) (n int) {
	for ; stack != nil; n++ {
		stack = s.StackTable.Prefix[*stack]
	}
	return n
}
