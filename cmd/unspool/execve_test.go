package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestProgramsThatExecuteEachOther samples two programs that execute each other in one process. Between the
// old program's end and the new one's start a sample has the registers of one and the memory of the other,
// which must not be unwound.
func TestProgramsThatExecuteEachOther(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		name  string
		flags []string
		args  []string
	}{
		{"at random addresses", nil, nil},
		{"at the same addresses", nil, []string{"fixed"}},
		{"linked to the same addresses", []string{"-static", "-no-pie"}, []string{"fixed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			one := buildCase(t, "execs.c", append([]string{"-DNAME=one"}, c.flags...)...)
			// With all its code somewhere else.
			two := buildCase(t, "execs.c",
				append([]string{"-DNAME=two", "-Wl,-z,max-page-size=0x10000"}, c.flags...)...)
			r := record(t, append([]string{"-F", "9999", "-e", "cpu-clock", "--", one, "1", two}, c.args...)...)
			t.Logf("%+v, ended: %v", r.stats.Samples, r.stats.Unwind.Ended)
			// If the kernel's part of a callchain is cut off, it does not show execve.
			if r.stats.incomplete() > 0.005 {
				t.Errorf("of %d stacks ended: %v", r.stats.Samples.User, r.stats.Unwind.Ended)
			}
			if exec := r.stats.Samples.Exec; exec*50 < r.stats.Samples.Total {
				t.Errorf("%d of %d samples are inside execve", exec, r.stats.Samples.Total)
			}

			own := ownProfile(t, r.path)
			worked := make(map[string]int)
			for _, s := range own.Samples {
				stack := userStack(own, s.Node)
				files := make(map[string]bool)
				for node := s.Node; node > 0; node = own.Nodes[node].Parent {
					if image := own.Images[own.Frames[own.Nodes[node].Frame].Image].Name; filepath.Base(image) == "execs" {
						files[image] = true
					}
				}
				if len(files) > 1 {
					t.Errorf("%d samples have frames of both programs: %s", s.Count, describe(own, s.Node))
				}
				for _, name := range []string{"one", "two"} {
					at := slices.Index(stack, name+"_work")
					if at < 0 {
						continue
					}
					worked[name] += int(s.Count)
					if !strings.HasPrefix(strings.Join(stack[at:], " "), name+"_work "+name+"_execute main ") {
						t.Errorf("%d samples, ended %v: %s", s.Count, s.End, describe(own, s.Node))
					}
				}
			}
			t.Logf("at work: %v", worked)
			if worked["one"] == 0 || worked["two"] == 0 {
				t.Errorf("at work: %v", worked)
			}
		})
	}
}
