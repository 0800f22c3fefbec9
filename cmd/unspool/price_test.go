package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/capture/verdict/compare"
	"unspool/testdata/lane"
)

// TestPrice measures the price of a command that is recorded once for its stacks, and then runs once in each way of two
// rounds: what it runs under is in its log.
func TestPrice(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	// An opener starts what is recorded.
	command := fmt.Sprintf("{ tr '\\0' ' ' </proc/$(sed -n 's/^PPid:.//p' /proc/$PPID/status)/cmdline; echo; } >>%s", log)
	e := unspool(t, dir, "compare", "-q", "--json", "--no-sandbox", "--stack-size", "4096", "--price", "--rounds", "2",
		"--", "sh", "-c", command)
	if e.status != 0 {
		t.Fatalf("%+v", e)
	}
	var ways []string
	for line := range strings.Lines(string(mustRead(t, log))) {
		way := "alone"
		if _, options, ok := strings.Cut(line, " record "); ok {
			fields := strings.Fields(options)
			way = strings.Join(fields[slices.Index(fields, "--stack-size=4096")+1:][:2], " ")
		}
		ways = append(ways, way)
	}
	want := []string{"alone"}
	for round := range 2 {
		for _, w := range compare.PriceTurns(round) {
			way := "alone"
			if w.Hz > 0 {
				way = fmt.Sprintf("--freq=%d --chains-only=%t", w.Hz, !w.Stacks)
			}
			want = append(want, way)
		}
	}
	if !slices.Equal(ways, want) {
		t.Errorf("%q, want %q\n%s", ways, want, mustRead(t, log))
	}
	r := comparedJSON(t, e)
	if p := r.Price; p == nil || p.Rounds != 2 || len(p.Rows) != 10 || p.Without <= 0 || p.Kernel == "" || p.CPUs < 1 ||
		p.Rows[3].CPU <= 0 || !strings.Contains(r.Verdict.Sentence, " The price of DWARF at 999 Hz is ") {
		t.Errorf("%+v", p)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.data*")); err != nil || len(left) > 0 {
		t.Errorf("a recording is left: %q, %v", left, err)
	}
}

// A price needs a command that does the same work again and again.
func TestPricesThatFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-a"}, "--price needs a COMMAND alone"},
		{[]string{"perf.data"}, "--price needs a COMMAND alone"},
		{[]string{"-c", "1", "--", "true"}, "leave out -c"},
		{[]string{"-d", "1", "--", "true"}, "leave out -d"},
		{[]string{"--rounds", "1", "--", "true"}, "--rounds 1: a price takes 2 rounds or more"},
	} {
		e := unspool(t, t.TempDir(), slices.Concat([]string{"compare", "--price"}, c.args)...)
		if e.status != statusFailure || !strings.Contains(e.stderr, c.want) || e.stdout != "" {
			t.Errorf("%q: %+v", c.args, e)
		}
	}
	needRoot(t)
	e := unspool(t, t.TempDir(), "compare", "-q", "--price", "--", "sh", "-c", "exit 3")
	if e.status != statusFailure || !strings.Contains(e.stderr, "failed when it was run for its price: exit status 3") {
		t.Errorf("%+v", e)
	}
}

// Whoever asks it to end in the second round has the comparison, without a price.
func TestPriceIsInterrupted(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir()
	pid := filepath.Join(dir, "pid")
	command := fmt.Sprintf("echo >>%[1]s.runs; test $(wc -l <%[1]s.runs) -lt 8 || "+
		"{ until test -e %[1]s; do sleep 0.01; done; kill -INT $(cat %[1]s); exec sleep 1000; }", pid)
	r := start(t, dir, nil, "compare", "-q", "--stack-size", "4096", "--price", "--", "sh", "-c", command)
	if err := os.WriteFile(pid+"~", []byte(fmt.Sprint(r.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(pid+"~", pid); err != nil {
		t.Fatal(err)
	}
	e := r.finish(t, time.Minute)
	if e.status != 0 || !strings.Contains(e.stderr, "asked to end before 2 rounds were over: there is no price") ||
		!strings.Contains(e.stdout, "frame pointers and DWARF") || strings.Contains(e.stdout, "price") {
		t.Errorf("%+v", e)
	}
}

// TestMachinePrice measures what a second of work costs more: samples cost more at a higher rate, and with stacks.
func TestMachinePrice(t *testing.T) {
	lane.Machine(t, 0.9)
	needRoot(t)
	program := buildUsable(t, keepsFrames...)
	r := start(t, t.TempDir(), nil, "compare", "-q", "--json", "--price", "--", program, "1000", "1000000")
	p := comparedJSON(t, r.finish(t, 5*time.Minute)).Price
	row := func(way string, hz uint64) compare.PriceRow {
		return p.Rows[slices.IndexFunc(p.Rows, func(r compare.PriceRow) bool { return r.Way == way && r.Hz == hz })]
	}
	for _, r := range p.Rows {
		lane.Figure(t, "%s: %s of %.2f s", r.Words(), r.Text(), p.Without)
	}
	most, few, chains := row("stacks", 4999), row("stacks", 999), row("frame_pointers", 4999)
	if most.Low <= 0 || most.Share <= few.Share || most.Share <= chains.Share {
		t.Errorf("%+v is not above zero, %+v and %+v", most, few, chains)
	}
}
