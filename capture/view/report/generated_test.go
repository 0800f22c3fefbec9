package report

import (
	"slices"
	"strings"
	"testing"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/capture/symbols/runtimes"
	"unspool/unwind"
)

// runtimeOf is that of a process with a file.
func runtimeOf(file string) *runtimes.Runtime { return runtimes.Of(slices.Values([]string{file})) }

// TestGeneratedCodeWithoutNames: stacks that go through such code count, where they do not end in it, too, and it is
// said for each process what gives names, as far as is known what it has written.
func TestGeneratedCodeWithoutNames(t *testing.T) {
	const map1 = "/tmp/perf-1.map"
	refused := map1 + ": not used: it belongs to user 7"
	for _, c := range []struct {
		name    string
		g       profile.Generator
		problem string
		want    string
	}{
		{"node", profile.Generator{Runtime: runtimeOf("/usr/bin/node")}, "",
			"node (process 1) generated: start it with `node --perf-basic-prof` (or --perf-prof)"},
		{"a JVM that runs", profile.Generator{Runtime: runtimeOf("/lib/server/libjvm.so"), Runs: true}, "",
			"Java (process 1) generated: run `jcmd 1 Compiler.perfmap` while it runs (Java 17 or later)"},
		{"a JVM that has ended", profile.Generator{Runtime: runtimeOf("/lib/server/libjvm.so")}, "",
			"Java (process 1) generated: run `jcmd PID Compiler.perfmap` before it ends, or start it with"},
		{"a map of other code", profile.Generator{Runtime: runtimeOf("/usr/bin/node"), Written: runtimes.Names}, "",
			"node (process 1) generated: the names that it wrote are of other code, so they are older, or incomplete: start"},
		{"a map that is not used", profile.Generator{Runtime: runtimeOf("/usr/bin/node"), Refused: map1,
			Written: runtimes.Refused}, refused,
			"node (process 1) generated: the names that it wrote are not used: see the notes at the end"},
		{"a note that is not there", profile.Generator{Runtime: runtimeOf("/usr/bin/node"), Refused: map1,
			Written: runtimes.Refused}, "", "node (process 1) generated: start it with"},
		{"another program", profile.Generator{}, "", "prog (process 1) generated: if its runtime can write"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := profiletest.New(&profile.Profile{
				Images: []profile.Image{{Name: "[anon]", Path: "//anon"}, {Name: "prog", Path: "/bin/prog"}},
				Frames: []profile.Frame{{Name: "[anon]", Kind: profile.JIT}, {Name: "main", Image: 1, Known: true}},
				Events: []profile.Event{{Name: "cpu-clock", Clock: true}}, Generators: map[uint32]profile.Generator{1: c.g},
			})
			if c.problem != "" {
				p.Problems, p.Kinds = []string{c.problem}, map[string]string{c.problem: "map"}
			}
			thread := profile.Thread{PID: 1, TID: 1, Comm: "prog"}
			p.Add(thread, 0, 4, 1, 0)
			p.Add(thread, 0, 86, 1, 0, 1)
			p.Add(thread, 0, 10, 1)
			got := write(t, p.Profile, Options{Width: 1000})
			for _, want := range []string{
				"\nnames     90.0 % of the stacks go through code without names, 4.0 % end in it\n",
				"\nnames     90.0 % go through code that " + c.want,
			} {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
			if strings.Contains(got, theNotes) != strings.Contains(got, "\nnote ") {
				t.Errorf("the notes are not there:\n%s", got)
			}
		})
	}
}

// TestStacksThatGeneratedCodeBreaks counts them, and says what makes them whole, where something does.
func TestStacksThatGeneratedCodeBreaks(t *testing.T) {
	p := profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: "[anon]", Path: "//anon"}, {Name: "prog", Path: "/bin/prog"}},
		Frames: []profile.Frame{{Name: "f", Kind: profile.JIT, Known: true}, {Name: "main", Image: 1, Known: true}},
		Events: []profile.Event{{Name: "cpu-clock", Clock: true}},
		Generators: map[uint32]profile.Generator{
			1: {Runtime: runtimeOf("/lib/libjvm.so")}, 2: {Runtime: runtimeOf("/bin/node")},
		},
	})
	through, past := p.Stack(0), p.Stack(1)
	for _, s := range []struct {
		pid  uint32
		node int32
		end  profile.End
		n    uint64
	}{
		{1, through, profile.Ended(unwind.NoCFI), 25}, {1, through, profile.Ended(unwind.Unmapped), 5},
		{1, through, profile.Ended(unwind.DumpTooShort), 10}, {1, through, profile.Complete, 20},
		{1, past, profile.Ended(unwind.NoCFI), 20}, {2, through, profile.Ended(unwind.NoCFI), 20},
	} {
		thread := p.Thread(profile.Thread{PID: s.pid, TID: s.pid, Comm: "prog"})
		p.Sample(profile.Sample{Thread: thread, Node: s.node, CPU: -1, Count: s.n, Period: s.n, End: s.end})
	}
	got := write(t, p.Profile, Options{Width: 1000})
	const want = "\nstacks    30.0 % end at code that Java (process 1) generated without frame pointers, or are wrong " +
		"behind it: start it with `java -XX:+PreserveFramePointer`\n"
	if !strings.Contains(got, want) || strings.Count(got, "\nstacks") != 2 {
		t.Errorf("no %q in\n%s", want, got)
	}
}

// TestInterpretersAreToldOf: where functions have no code of their own, nothing lacks a name, and they are not there.
func TestInterpretersAreToldOf(t *testing.T) {
	p := profiletest.New(&profile.Profile{
		Images: []profile.Image{{Name: "libpython3.12.so.1.0", Path: "/lib/libpython3.12.so.1.0"}},
		Frames: []profile.Frame{{Name: "_PyEval_EvalFrameDefault", Known: true}},
		Events: []profile.Event{{Name: "cpu-clock", Clock: true}},
	})
	p.Add(profile.Thread{PID: 1, TID: 1, Comm: "python3"}, 0, 100, 0)
	const want = "\nnames     100 % go through Python (process 1), whose functions are not in the stacks: start it with " +
		"`python3 -X perf` (3.12 or later)\n"
	if got := write(t, p.Profile, Options{Width: 1000}); !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
	p.Generators = map[uint32]profile.Generator{1: {Written: runtimes.Names}}
	if got := write(t, p.Profile, Options{Width: 1000}); strings.Contains(got, "\nnames") {
		t.Errorf("it has them:\n%s", got)
	}
}
