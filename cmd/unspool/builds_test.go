package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/testdata/programs"
)

// builtTwice is what compare --builds --json writes. 'unspool help json' says what is in it.
type builtTwice struct {
	Version          int
	Sentence         string
	Confidence       float64
	Rounds, Recorded int
	A, B             struct {
		Command string
		Wall    float64 `json:"wall_s"`
		CPU     float64 `json:"cpu_s"`
		Runs    []struct {
			Wall float64 `json:"wall_s"`
			CPU  float64 `json:"cpu_s"`
		}
	}
	Wall, CPU *struct {
		Difference, Low, High float64
		ExcludesZero          bool `json:"excludes_zero"`
	}
	Difference differed
}

// ofPages are the options for a sample of each page that a program touches.
func ofPages() []string {
	return slices.Concat(programs.Faults(), []string{"--stack-size", "4096"})
}

// TestBuilds compares two builds of a program by the pages that they touch: 400, and 2,000 in a function that is
// inlined. It is one row, and what differs is known. The difference is so large that it is significant however many
// functions of the shell and the loader are compared beside it. Each runs twice in each of two rounds: once of that is
// recorded.
func TestBuilds(t *testing.T) {
	t.Parallel()
	called := buildCase(t, "inlined.c", "-O2", "-g")
	inlined := buildCase(t, "inlined.c", "-O2", "-g", "-DINLINED")
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	command := func(name, program string, pages int) string {
		return fmt.Sprintf("echo %s >>%s; exec %s %d", name, log, program, pages)
	}
	a, b := command("A", called, 400), command("B", inlined, 2000)
	e := unspool(t, dir, slices.Concat([]string{"compare", "--json", "-q"}, ofPages(),
		[]string{"--builds", a, b, "--rounds", "2"})...)
	if e.status != 0 {
		t.Fatalf("%+v", e)
	}
	var r builtTwice
	decoder := json.NewDecoder(strings.NewReader(e.stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		t.Fatalf("%v\n%s", err, e.stdout)
	}
	if r.Version != 1 || r.Rounds != 2 || r.Recorded != 2 || len(r.A.Runs) != 2 || len(r.B.Runs) != 2 ||
		r.A.Command != a || r.B.Command != b || r.CPU == nil || r.Wall == nil || r.A.Runs[0].Wall <= 0 || r.Sentence == "" {
		t.Errorf("%+v", r)
	}
	if r.CPU != nil && r.CPU.ExcludesZero != (r.CPU.Low > 0 || r.CPU.High < 0) {
		t.Errorf("%+v", r.CPU)
	}
	// Recorded and then timed, and in the next round the other way round.
	if got := strings.Fields(string(mustRead(t, log))); strings.Join(got, "") != "ABAB"+"BABA" {
		t.Errorf("%q", got)
	}
	d := &r.Difference
	if len(d.A.Runs) != 2 || len(d.B.Runs) != 2 || d.DecidedBy != "amount" || d.A.Runs[0].File != "round 1" {
		t.Errorf("%+v and %+v", d.A, d.B)
	}
	var rows []differedFunction
	for _, f := range d.Events[0].Functions {
		if f.Name == "inlined_touch" {
			rows = append(rows, f)
		}
	}
	if len(rows) != 1 {
		t.Fatalf("%+v", rows)
	}
	if f := rows[0]; f.Self.A != 800 || f.Self.B != 4000 || math.Abs(f.Self.Amount.Difference-1600) > 1e-6 ||
		!f.Self.Amount.Significant || f.Inlined {
		t.Errorf("%+v", f)
	}

	// In words, which have the same.
	e = unspool(t, dir, slices.Concat([]string{"compare", "-q"}, ofPages(),
		[]string{"--rounds=1", "--builds", a, b})...)
	for _, want := range []string{
		"One round has no interval: nothing can be said of the times.", "A         " + a + "\n",
		"rounds    1 by turns, A B, B A, without a profiler", "By function, from 1 recording of each",
		"the spread between runs is in no interval", "inlined_touch",
	} {
		if e.status != 0 || !strings.Contains(e.stdout, want) {
			t.Errorf("no %q in %+v", want, e)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "perf.data*")); err != nil || len(left) > 0 {
		t.Errorf("a recording is left: %q, %v", left, err)
	}
}

// What has failed is not compared, and what is not asked of --builds is refused.
func TestBuildsThatFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"true", "exit 3"}, "B failed when it was recorded (exit status 3): sh -c \"exit 3\""},
		{[]string{"true"}, "--builds takes two command lines"},
		{[]string{"true", "true", "true"}, "unexpected argument \"true\": --builds takes two command lines"},
		{[]string{"true", ""}, "a command line is empty"},
		{[]string{"true", "true", "--comm", "x"}, "--builds and --comm cannot be used together"},
		{[]string{"true", "true", "--rounds", "0"}, "--rounds"},
	} {
		args := slices.Concat([]string{"compare", "--builds"}, c.args)
		if e := unspool(t, t.TempDir(), args...); e.status != statusFailure || !strings.Contains(e.stderr, c.want) ||
			e.stdout != "" {
			t.Errorf("%q: %+v", args, e)
		}
	}
	if e := unspool(t, "", "compare", "--rounds", "2", "--", "true"); e.status != statusFailure ||
		!strings.Contains(e.stderr, "--rounds needs --builds") {
		t.Errorf("%+v", e)
	}
}

// Whoever asks it to end has what there is by then: the round that is under way does not count, and its command ends.
func TestBuildsAreInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// The third time that B runs, which is recorded, it asks the comparison to end, and waits to be ended.
	count := filepath.Join(dir, "count")
	pid := filepath.Join(dir, "pid")
	b := fmt.Sprintf("echo >>%[1]s; test $(wc -l <%[1]s) -lt 3 || "+
		"{ until test -e %[2]s; do sleep 0.01; done; kill -INT $(cat %[2]s); exec sleep 1000; }", count, pid)
	r := start(t, dir, nil, "compare", "-q", "--builds", "true", b)
	if err := os.WriteFile(pid+"~", []byte(fmt.Sprint(r.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(pid+"~", pid); err != nil {
		t.Fatal(err)
	}
	e := r.finish(t, time.Minute)
	if !strings.HasPrefix(e.stdout, "One round has no interval") {
		t.Errorf("%+v", e)
	}
}
