package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"unspool/capture/profile"
	"unspool/testdata/lane"
)

var demoFlags = regexp.MustCompile(`(?m)^DEMO_FLAGS := (.*)$`)

// demo is where the demo's workload is, once it is compiled.
var demo struct {
	sync.Once
	path string
}

// buildDemo compiles the demo's workload, once.
func buildDemo(t *testing.T) string {
	t.Helper()
	need(t, "gcc", "g++")
	demo.Do(func() { demo.path = compileDemo(t) })
	if demo.path == "" {
		t.Skip("the demo's workload was not compiled")
	}
	return demo.path
}

// compileDemo compiles the demo's workload as the Makefile does.
func compileDemo(t *testing.T) string {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	m := demoFlags.FindSubmatch(makefile)
	if m == nil {
		t.Fatal("the Makefile has no DEMO_FLAGS")
	}
	dir := filepath.Join(filepath.Dir(binary), "demo")
	workload := filepath.Join(dir, "demo-workload")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var objects []string
	var g sync.WaitGroup
	for compiler, pattern := range map[string]string{"gcc": "*.c", "g++": "*.cc"} {
		sources, _ := filepath.Glob("../../testdata/demo/" + pattern)
		for _, source := range sources {
			object := filepath.Join(dir, filepath.Base(source)+".o")
			objects = append(objects, object)
			g.Go(func() {
				args := append(strings.Fields(string(m[1])), "-c", "-o", object, source)
				if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
					t.Errorf("%s %s: %v\n%s", compiler, source, err, out)
				}
			})
		}
	}
	g.Wait()
	slices.Sort(objects)
	output(t, "", "g++", slices.Concat([]string{"-pthread", "-o", workload}, objects, []string{"-lm"})...)
	return workload
}

// TestMachineDemoStacksAreComplete records what `make demo` records: threads, signals and C++ by the clock, where they
// happen to be.
func TestMachineDemoStacksAreComplete(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	need(t, "perf")
	workload := buildDemo(t)
	r := record(t, "-F", "999", "--", workload, "2")
	st := &r.stats
	if st.Samples.User < r.fewest(999, 1000) {
		t.Fatalf("only %d user samples", st.Samples.User)
	}
	if st.incomplete() > 0.01 {
		t.Errorf("%d of %d user stacks are complete: %v", st.Unwind.Complete, st.Samples.User, st.Unwind.Ended)
	}
	if st.Samples.Lost != 0 {
		t.Errorf("%d lost", st.Samples.Lost)
	}
	lane.Figure(t, "%d of %d stacks complete", st.Unwind.Complete, st.Samples.User)

	samples := perfScript(t, r.path)
	withUser := func(s *sample) bool { return len(s.user) > 0 }
	if n := share(samples, withUser); uint64(n) != st.Samples.User || uint64(len(samples)) != st.Samples.Total {
		t.Errorf("perf script shows %d samples, %d with a user stack; stats say %d and %d", len(samples), n,
			st.Samples.Total, st.Samples.User)
	}
	if n := perfReportSamples(t, r.path); n != st.Samples.Total {
		t.Errorf("perf report counts %d samples, stats %d", n, st.Samples.Total)
	}
	if n := unspoolReportSamples(t, r.path); n != st.Samples.Total {
		t.Errorf("unspool report counts %d samples, stats %d", n, st.Samples.Total)
	}

	t.Run("stacks run from the root to the leaf", func(t *testing.T) {
		bad := 0
		for i := range samples {
			if s := &samples[i]; withUser(s) && !fromRoot(s, "demo-workload") {
				if bad++; bad <= 5 {
					t.Logf("thread %s, leaf first: %s", s.comm, strings.Join(s.names(), " "))
				}
			}
		}
		if bad*100 > len(samples) {
			t.Errorf("%d of %d stacks do not start at main or a thread's start", bad, len(samples))
		}
		if incomplete := st.Samples.User - st.Unwind.Complete; uint64(bad) > incomplete {
			t.Errorf("%d stacks do not reach their root, but only %d are counted so", bad, incomplete)
		}
	})

	t.Run("functions of the workload", func(t *testing.T) {
		byPerf := output(t, "", "perf", "report", "--stdio", "--children", "-g", "none",
			"-F", "overhead_children,sym", "-i", r.path)
		byUs := unspool(t, "", "report", "--percent-limit", "0.1", "--top", "1000", r.path).stdout
		for _, name := range []string{
			"main", "worker_main", "words_round", "archive_round", "scene_round", "rules_round",
			"on_tick", "note_tick", "fold_log", "compare_text", "hash_block", "unpack_block",
			"scene::Group::intersect", "rules::Parser::", "std::_Function_handler<",
		} {
			if !strings.Contains(byPerf, name) {
				t.Errorf("perf report does not show %s", name)
			}
			if !strings.Contains(byUs, name) {
				t.Errorf("unspool report does not show %s", name)
			}
		}
	})

	t.Run("perf and unspool see the same stacks", func(t *testing.T) {
		theirs, ours := make(map[string]int), make(map[string]int)
		for i := range samples {
			if s := &samples[i]; withUser(s) {
				key := s.comm
				for _, f := range s.user {
					key += stackKey("demo-workload", filepath.Base(f.in), f.name)
				}
				theirs[key]++
			}
		}
		p := ownProfile(t, r.path)
		for _, s := range p.Samples {
			key, depth := p.Threads[s.Thread].Comm, 0
			for node := s.Node; node > 0; node = p.Nodes[node].Parent {
				if f := p.Frames[p.Nodes[node].Frame]; f.Kind != profile.Kernel {
					key += stackKey("demo-workload", p.Images[f.Image].Name, f.Name)
					depth++
				}
			}
			if depth > 0 {
				ours[key] += int(s.Count)
			}
		}
		differ, shown := 0, 0
		for key, n := range theirs {
			if more := n - ours[key]; more > 0 {
				differ += more
				if shown < 3 {
					shown++
					t.Logf("perf has %d, unspool %d of %s", n, ours[key], key)
				}
			}
		}
		shown = 0
		for key, n := range ours {
			if theirs[key] < n && shown < 3 {
				shown++
				t.Logf("unspool has %d, perf %d of %s", n, theirs[key], key)
			}
		}
		if differ*50 > len(samples) {
			t.Errorf("%d of %d stacks have other names", differ, len(samples))
		}
	})
}

// fromRoot reports whether a stack of a program begins where programs and
// threads begin. Above what the program's symbol table names there are up to
// three frames of libc, which may be nameless.
func fromRoot(s *sample, program string) bool {
	top := s.outermost()
	if filepath.Base(top.in) == program {
		return top.name == "_start"
	}
	if strings.HasPrefix(filepath.Base(top.in), "ld-") {
		return true // before the program was reached: the dynamic linker's own start
	}
	for i, f := range slices.Backward(s.user) {
		if filepath.Base(f.in) != program {
			continue
		}
		if f.name == "on_tick" {
			break // the signal came to libc's own part of the thread, before or after the program's
		}
		return f.name == "worker_main" && len(s.user)-i <= 4
	}
	// In a thread that has not reached the program, or has left it.
	return top.name == "clone3" || top.name == "__clone3"
}

func TestFromRoot(t *testing.T) {
	for _, c := range []struct {
		names string // leaf first; those with a star are the program's
		want  bool
	}{
		{"hash_block* main* __libc_start_main _start*", true},
		{"hash_block* main*", false},
		{"hash_block* worker_main* start_thread clone3", true},
		{"hash_block* start_thread clone3", false},
		{"start_thread clone3", true},
		{"start_thread", false},
		{"on_tick* __restore_rt hash_block* worker_main* start_thread clone3", true},
		{"on_tick* __restore_rt hash_block* start_thread clone3", false},
		{"fold_log* note_tick* on_tick* __restore_rt start_thread clone3", true},
		{"fold_log* note_tick* on_tick* __restore_rt start_thread", false},
		{"fold_log* note_tick* on_tick*", false},
		{"fold_log* note_tick* start_thread clone3", false},
	} {
		var s sample
		for _, name := range strings.Fields(c.names) {
			f := frame{name: name, in: "libc.so.6"}
			if name, its := strings.CutSuffix(name, "*"); its {
				f = frame{name: name, in: "demo-workload"}
			}
			s.user = append(s.user, f)
		}
		if got := fromRoot(&s, "demo-workload"); got != c.want {
			t.Errorf("%s: %v", c.names, got)
		}
	}
}

// stackKey names a frame so that perf's name and ours agree. Only a function of
// the program itself goes by its name: libraries have several names for one
// address, and perf knows more of them where debug files are installed.
func stackKey(program, file, name string) string {
	if file != program {
		return " " + file
	}
	name, _, _ = strings.Cut(strings.TrimPrefix(name, "void "), "(") // perf 7.2 shows what templates return
	if strings.HasPrefix(name, "[") || strings.HasSuffix(name, "@plt") {
		return " ?" // in the procedure linkage table
	}
	return " " + strings.TrimSuffix(name, ".cold")
}
