package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/testdata/programs"
)

// TestProcessesThatAreGone records processes that run for two milliseconds each,
// each of another file: when the first sample of a file is read, the process has
// ended, and may wait for its parent or have left /proc.
func TestProcessesThatAreGone(t *testing.T) {
	needRoot(t)
	need(t, "perf")
	for _, c := range []struct{ name, each, end string }{
		{"reaped", "%s 2\n", ""},
		{"zombies", "%s 2 &\n", "sleep 0.2; wait"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			program := programs.Build(t, "burn")
			var script strings.Builder
			for i := range 30 {
				path := filepath.Join(dir, fmt.Sprintf("gone%d", i))
				copyFile(t, program, path)
				fmt.Fprintf(&script, c.each, path)
			}
			r := record(t, "-v", "-F", "4999", "-e", "cpu-clock", "--", "sh", "-c", script.String()+c.end)
			var ours, complete int
			for _, s := range perfScript(t, r.path) {
				if !strings.HasPrefix(s.comm, "gone") || len(s.user) == 0 {
					continue
				}
				ours++
				if top := s.outermost(); top.name == "_start" || strings.HasPrefix(filepath.Base(top.in), "ld-") {
					complete++
				}
			}
			if ours < 100 || complete*100 < ours*95 {
				t.Errorf("%d of %d stacks are complete; %v\n%s", complete, ours, r.stats.Unwind.Ended, r.stderr)
			}
		})
	}
}

// TestProgramsInMountsThatAreGone records programs that run for 60 milliseconds each in a mount namespace,
// and from a file system, of their own: nothing of it is left when their samples are read.
func TestProgramsInMountsThatAreGone(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "unshare")
	need(t, "mount")
	dir, program := t.TempDir(), programs.Build(t, "burn")
	script := fmt.Sprintf("mount -t tmpfs gone %[1]s && cp %[2]s %[1]s/gone$i && %[1]s/gone$i 60", dir, program)
	r := record(t, "-F", "1999", "-e", "cpu-clock", "--", "sh", "-c",
		"for i in 1 2 3 4 5 6 7 8; do export i; unshare -m sh -c '"+script+"'; done")
	own := ownProfile(t, r.path)
	var ours, complete uint64
	for _, s := range own.Samples {
		comm := own.Threads[s.Thread].Comm
		if len(userStack(own, s.Node)) > 0 && strings.HasPrefix(comm, "gone") {
			ours += s.Count
			if s.End == profile.Complete {
				complete += s.Count
			}
		}
	}
	if ours < enough || complete*100 < ours*98 {
		t.Errorf("%d of %d stacks are complete; %v\n%s", complete, ours, r.stats.Unwind.Ended, r.stderr)
	}
}

// TestGoProgram records a Go program, which has frame pointers and no CFI.
func TestGoProgram(t *testing.T) {
	t.Parallel()
	needRoot(t)
	r := record(t, "-F", "4999", "--", binary, "record", "-q", "-o", filepath.Join(t.TempDir(), "inner.data"),
		"-F", "9999", "--", programs.Build(t, "burn"), "300")
	p := loadProfile(t, r.path, symbols.Options{})
	for _, problem := range p.Problems {
		t.Errorf("report would say: %s", problem)
	}
	named := 0
	for _, s := range p.Samples {
		if slices.Contains(userStack(p, s.Node), "main.main") {
			named += int(s.Count)
		}
	}
	if named < 5 {
		t.Errorf("%d of %d samples show main.main", named, p.Count())
	}
	t.Logf("%d samples, %d show main.main; %v by %v", p.Count(), named, r.stats.Unwind.Ended,
		r.stats.Unwind.FramesBy)
}
