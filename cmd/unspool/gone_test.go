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
	"unspool/unwind"
)

// TestProcessesThatAreGone records processes that end as soon as they have been counted,
// each of another file: when the first sample of a file is read, the process has
// ended, and may wait for its parent or have left /proc.
func TestProcessesThatAreGone(t *testing.T) {
	t.Parallel()
	needRoot(t)
	const processes, times = 10, 5
	for _, c := range []struct{ name, each, end string }{
		{"reaped", "%s =%d\n", ""},
		{"zombies", "%s =%d & pids=\"$pids $!\"\n", "for p in $pids; do\n" +
			"  while read -r pid name state rest </proc/$p/stat && [ $state != Z ]; do :; done\ndone\n" +
			"echo $$ >%s; kill -STOP $$; wait\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, fifo := t.TempDir(), programs.FIFO(t)
			program := programs.Build(t, "plain")
			var script strings.Builder
			for i := range processes {
				path := filepath.Join(dir, fmt.Sprintf("gone%d", i))
				copyFile(t, program, path)
				fmt.Fprintf(&script, c.each, path, times)
			}
			if c.end != "" {
				fmt.Fprintf(&script, c.end, fifo.Name())
			}
			s := startUnsampled(t, slices.Concat(programs.Faults(), []string{"-D", "0", "--stack-size", "8192", "--", "sh", "-c",
				script.String()})...)
			if c.end != "" {
				s.goOn(t, fifo)
			}
			goneAreComplete(t, s.end(t), "plain_leaf", processes*times)
		})
	}
}

// goneAreComplete expects the stacks of programs whose names begin with gone to be complete. If the program is still
// there, n of them begin in a function.
func goneAreComplete(t *testing.T, r recording, leaf string, n int) {
	t.Helper()
	own := ownProfile(t, r.path)
	var ours, leaves int
	for _, s := range own.Samples {
		stack := userStack(own, s.Node)
		if !strings.HasPrefix(own.Threads[s.Thread].Comm, "gone") || len(stack) == 0 {
			continue
		}
		ours += int(s.Count)
		if stack[0] == leaf {
			leaves += int(s.Count)
		}
		image := own.Images[own.Frames[own.Nodes[s.Node].Frame].Image].Name
		// The dynamic linker begins on pages of the stack that were never touched.
		starts := strings.HasPrefix(image, "ld-") && s.End == profile.Ended(unwind.DumpTooShort)
		if s.End != profile.Complete && s.End != profile.Joined && !starts {
			t.Errorf("%d samples, ended %v: %s", s.Count, s.End, describe(own, s.Node))
		}
	}
	if ours < n || leaf != "" && leaves != n {
		t.Errorf("%d samples, %d of them in %s, of %d; %v\n%s", ours, leaves, leaf, n, r.stats.Unwind.Ended, r.stderr)
	}
}

// TestProgramsInMountsThatAreGone records programs in a mount namespace, and from a file system, of their own: nothing
// of it is left when the last of their samples are read.
func TestProgramsInMountsThatAreGone(t *testing.T) {
	t.Parallel()
	needRoot(t)
	programs.NeedMounts(t)
	const processes, times = 3, 5
	dir, program, fifo := t.TempDir(), buildCase(t, "stays.c"), programs.FIFO(t)
	script := fmt.Sprintf("mount -t tmpfs gone %[1]s && cp %[2]s %[1]s/gone$i && %[1]s/gone$i =%[3]d %[4]s", dir,
		program, times, fifo.Name())
	s := startUnsampled(t, slices.Concat(programs.Faults(), []string{"-D", "0", "--stack-size", "8192", "--", "sh", "-c",
		"for i in 1 2 3; do export i; unshare -m sh -c '" + script + "'; done"})...)
	for range processes {
		s.goOn(t, fifo)
	}
	goneAreComplete(t, s.end(t), "", 2*processes*times)
}

// TestGoProgram records a Go program, which has frame pointers and no CFI.
func TestGoProgram(t *testing.T) {
	t.Parallel()
	needRoot(t)
	r := record(t, slices.Concat(programs.Faults(), []string{"--stack-size", "16384", "--", binary, "record", "-q", "-o",
		filepath.Join(t.TempDir(), "inner.data")}, programs.Faults(), []string{"--", programs.Build(t, "plain"), "=5"})...)
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
	if named == 0 {
		t.Errorf("%d of %d samples show main.main", named, p.Count())
	}
	t.Logf("%d samples, %d show main.main; %v by %v", p.Count(), named, r.stats.Unwind.Ended,
		r.stats.Unwind.FramesBy)
}
