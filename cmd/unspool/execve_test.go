package main

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestProgramsThatExecuteEachOther samples two programs that execute each other in one process. Between the
// old program's end and the new one's start a sample has the registers of one and the memory of the other,
// which must not be unwound. The kernel touches pages then, as it clears what lies behind a program's data.
func TestProgramsThatExecuteEachOther(t *testing.T) {
	t.Parallel()
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
			r := record(t, append([]string{"-e", "page-faults", "-c", "1", "--stack-size", "8192", "--", one,
				strconv.Itoa(2 * counted), two}, c.args...)...)
			t.Logf("%+v, ended: %v", r.stats.Samples, r.stats.Unwind.Ended)
			r.whollyComplete(t)
			if exec := r.stats.Samples.Exec; exec < 2*counted-1 {
				t.Errorf("%d of %d samples are inside execve, which is called %d times", exec, r.stats.Samples.Total,
					2*counted-1)
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
			if worked["one"] != counted || worked["two"] != counted {
				t.Errorf("at work: %v", worked)
			}
		})
	}
}
