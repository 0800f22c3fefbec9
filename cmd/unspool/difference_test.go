package main

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/testdata/browser"
	"unspool/testdata/recordings"
)

// changedRecordings are of a program before a change and after it.
func changedRecordings(t *testing.T) (before, after string) {
	t.Helper()
	dir := recordings.Place(t, "before", "after")
	return filepath.Join(dir, "before.data"), filepath.Join(dir, "after.data")
}

// differed is what report --json writes about two recordings. 'unspool help json' says what is in it.
type differed struct {
	Version   int
	A, B      differedSide
	Sure      float64 `json:"confidence"`
	DecidedBy string  `json:"decided_by"`
	Events    []struct {
		Name, Unit string
		A, B       struct {
			Samples, Hidden uint64
			Amount          float64
			Runs            []struct {
				Samples uint64
				Amount  float64
			}
		}
		Whole     differedBy
		Functions []differedFunction
		Tree      []struct {
			Parent, Function int
			SelfA            uint64 `json:"self_a"`
			SelfB            uint64 `json:"self_b"`
			Total            differedIn
		}
		By     string
		Groups []struct {
			Name        string
			Self, Total differedIn
		}
	}
}

type differedSide struct {
	reportedHeader
	Runs      []reportedHeader
	MeanDepth float64  `json:"mean_depth"`
	Unpaired  []string `json:"unpaired_events"`
	Unnamed   []string `json:"unnamed_images"`
}

type differedFunction struct {
	Name, Image, Kind string
	Known, Inlined    bool
	Self, Total       differedIn
}

type differedIn struct {
	A, B          uint64
	Share, Amount differedBy
}

type differedBy struct {
	Difference, Low, High float64
	ExcludesZero          bool `json:"excludes_zero"`
	BetweenRuns           bool `json:"between_runs"`
	Significant           bool
}

func differenceJSON(t *testing.T, args ...string) (d differed) {
	t.Helper()
	e := unspool(t, "", append([]string{"report", "--json"}, args...)...)
	if e.status != 0 || e.stderr != "" {
		t.Fatalf("report --json %q: status %d\n%s", args, e.status, e.stderr)
	}
	decoder := json.NewDecoder(strings.NewReader(e.stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

// function finds a function of an event.
func (d *differed) function(t *testing.T, name string) (f differedFunction) {
	t.Helper()
	i := slices.IndexFunc(d.Events[0].Functions, func(f differedFunction) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("there is no %s", name)
	}
	return d.Events[0].Functions[i]
}

// What was changed is found, and no difference between two runs of the same program. How often the kernel
// interrupts it is the machine's business, and does differ.
func TestDifferenceOfAProgram(t *testing.T) {
	t.Parallel()
	dir := recordings.Place(t, "before", "again", "after")
	before, after := filepath.Join(dir, "before.data"), filepath.Join(dir, "after.data")
	d := differenceJSON(t, "--no-kernel", before, after)
	for name, more := range map[string]bool{"changed_pack": true, "changed_gone": false} {
		f := d.function(t, name)
		if s := f.Self; !s.Share.ExcludesZero || !s.Amount.ExcludesZero || s.Share.Difference > 0 != more ||
			s.Amount.Difference > 0 != more || f.Image != "app-old / app-new" {
			t.Errorf("%+v", f)
		}
	}
	// The functions that have changed come first, and each number lies in its interval.
	for i, f := range d.Events[0].Functions {
		if name := f.Name; i < 2 && name != "changed_pack" && name != "changed_gone" && name != "changed_mix" {
			t.Errorf("%d: %+v", i, f)
		}
		for _, by := range []differedBy{f.Self.Share, f.Self.Amount, f.Total.Share, f.Total.Amount} {
			if by.Low > by.Difference || by.High < by.Difference || by.ExcludesZero != (by.Low > 0 || by.High < 0) ||
				by.Significant || by.BetweenRuns {
				t.Errorf("%+v", f)
			}
		}
	}
	if d.Version != 3 || d.Sure != 0.95 || d.DecidedBy != "share" || d.A.Samples != d.Events[0].A.Samples ||
		d.Events[0].Unit != "s" || d.A.MeanDepth < 4 {
		t.Errorf("%+v", d)
	}

	// Between these two runs of the same program there is no more than the error of sampling.
	again := filepath.Join(dir, "again.data")
	for _, f := range differenceJSON(t, "--no-kernel", before, again).Events[0].Functions {
		if f.Self.Share.ExcludesZero || f.Total.Share.ExcludesZero {
			t.Errorf("the same program differs: %+v", f)
		}
	}
	text := unspool(t, "", "report", "--no-kernel", before, again).stdout
	if !strings.Contains(text, "No function differs by more than the error of sampling.") {
		t.Error(text)
	}
}

// A program that was built anew at the same path can be compared as a whole only, unless perf's cache keeps
// the file that was recorded.
func TestDifferenceOfAProgramThatWasReplaced(t *testing.T) {
	t.Parallel()
	need(t, "perf")
	// The two programs were called app-old and app-new. Now they have one path.
	dir := recordings.Place(t, "before", "after")
	program := filepath.Join(dir, "app-one")
	for from, to := range map[string]string{"before.data": "a.data", "after.data": "b.data"} {
		content := regexp.MustCompile("app-(old|new)").ReplaceAll(mustRead(t, filepath.Join(dir, from)), []byte("app-one"))
		if err := os.WriteFile(filepath.Join(dir, to), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept := filepath.Join(dir, ".debug")
	copyFile(t, filepath.Join(dir, "app-old"), program)
	output(t, dir, "perf", "--buildid-dir", kept, "buildid-cache", "--add", program)
	if err := os.Rename(filepath.Join(dir, "app-new"), program); err != nil { // the cache has a link
		t.Fatal(err)
	}
	report := func(home string) string {
		r := start(t, dir, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), noPerfConfig, "HOME="+home) },
			"report", "--percent-limit", "0", "a.data", "b.data")
		e := r.finish(t, time.Minute)
		if e.status != 0 {
			t.Fatalf("status %d\n%s", e.status, e.stderr)
		}
		return e.stdout
	}
	const says, function = "names     app-one is not here as A recorded it", "changed_pack"
	// The row [app-one] is there only if its share has changed much.
	if text := report(t.TempDir()); !strings.Contains(text, says) || strings.Contains(text, function) {
		t.Errorf("without the file:\n%s", text)
	}
	if text := report(dir); strings.Contains(text, says) || !strings.Contains(text, function) {
		t.Errorf("with the file in %s:\n%s", kept, text)
	}
}

// The text of a difference, in colours.
func TestDifferenceText(t *testing.T) {
	t.Parallel()
	before, after := changedRecordings(t)
	one := unspool(t, "", "report", "--color", "always", before, after).stdout
	two := unspool(t, "", "report", "--color", "always", before+","+before, after+","+after).stdout
	for text, all := range map[string][]string{
		one: {
			"A         " + before + "\n", "B         " + after + "\n", "call tree, where it differs", "nothing here is called",
		},
		two: {
			"A         2 recordings\n", "A1        " + before + ": ", "B2        " + after + ": ",
			"call tree, where it has changed", "2 runs of A and 2 of B", "\x1b[31m", "\x1b[94m",
		},
	} {
		for _, want := range append(all, "CPU time  ", "app-old / app-new\x1b[0m\n") {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	}
	if strings.Contains(one, "\x1b[31m") || strings.Contains(one, "\x1b[94m") {
		t.Errorf("what single runs show is called more or less:\n%s", one)
	}
}

// Of several recordings a side, what differs by more than they do among themselves is significant. A file whose name
// has a comma is one.
func TestDifferenceOfSeveralRecordings(t *testing.T) {
	t.Parallel()
	before, after := changedRecordings(t)
	single := differenceJSON(t, before, after)
	d := differenceJSON(t, before+","+before, after+","+after+","+after)
	if len(single.A.Runs) != 1 || len(d.A.Runs) != 2 || len(d.B.Runs) != 3 || d.A.Samples != 2*single.A.Samples ||
		d.B.Runs[2].File != after || d.B.Runs[2].Samples != single.B.Samples ||
		d.Events[0].B.Samples != 3*single.Events[0].B.Samples || len(d.Events[0].B.Runs) != 3 ||
		math.Abs(d.Events[0].B.Amount-single.Events[0].B.Amount) > 1e-9 {
		t.Errorf("%+v and %+v, of single ones %+v and %+v", d.A, d.B, single.A, single.B)
	}
	// Runs that are the same have no spread, so that it is the error of sampling that is left, of more samples.
	of, alone := d.function(t, "changed_pack").Self.Share, single.function(t, "changed_pack").Self.Share
	if !of.Significant || !of.BetweenRuns || math.Abs(of.Difference-alone.Difference) > 1e-9 ||
		of.High-of.Low >= alone.High-alone.Low || alone.Significant || !alone.ExcludesZero || alone.BetweenRuns {
		t.Errorf("%+v, of single ones %+v", of, alone)
	}
	if e := unspool(t, "", "report", before+","+before, after); e.status != 0 ||
		!strings.Contains(e.stdout, "2 of A, 1 of B: the spread between runs is in no interval") {
		t.Errorf("%+v", e)
	}
	page := filepath.Join(t.TempDir(), "page.html")
	title := filepath.Base(before) + " and 1 more → " + filepath.Base(after)
	if e := unspool(t, "", "report", before+","+before, after, "--html", page); e.status != 0 ||
		!strings.Contains(string(mustRead(t, page)), "<h1>"+title+"</h1>") {
		t.Errorf("%+v", e)
	}
	comma := filepath.Join(t.TempDir(), "a,b")
	copyFile(t, before, comma)
	if d := differenceJSON(t, comma, after); len(d.A.Runs) != 1 || d.A.File != comma {
		t.Errorf("%+v", d.A)
	}
	for _, c := range []struct{ want, a, b string }{
		{"commas stand between the recordings of a side", before + ",", after},
		{"standard input holds one recording", before + ",-", "-"},
	} {
		if e := unspool(t, "", "report", c.a, c.b); e.status == 0 || !strings.Contains(e.stderr, c.want) {
			t.Errorf("%q, %q: %+v", c.a, c.b, e)
		}
	}
}

// The page says what --json says.
func TestDifferencePage(t *testing.T) {
	t.Parallel()
	before, after := changedRecordings(t)
	dir := t.TempDir()
	e := unspool(t, dir, "report", "--json", "--html", "page.html", before, after)
	if e.status != 0 || e.stderr != "" {
		t.Fatalf("status %d\n%s", e.status, e.stderr)
	}
	var d differed
	if err := json.Unmarshal([]byte(e.stdout), &d); err != nil {
		t.Fatal(err)
	}
	p := browser.Open(t, filepath.Join(dir, "page.html"), 1400, 900)
	p.Until("document.documentElement.dataset.ready")
	p.Shows("h1", "before.data → after.data")
	var want []string
	for _, f := range d.Events[0].Functions {
		if f.Self.Share.ExcludesZero || f.Total.Share.ExcludesZero {
			want = append(want, f.Name)
		}
	}
	have := browser.Eval[[]string](p, "[...document.querySelectorAll('#changes .fn')].map(e => e.textContent)")
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("functions %q, want %q", have, want)
	}
	for _, c := range p.Complaints() {
		t.Error(c)
	}
	for _, nowhere := range []string{filepath.Join(dir, "none", "page.html"), "/dev/full"} {
		if e := unspool(t, "", "report", "--html", nowhere, before, after); e.status != statusFailure {
			t.Errorf("a page that cannot be written to %s is no error: %+v", nowhere, e)
		}
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Error("the device is gone")
	}
}

// The options of report hold for both recordings.
func TestDifferenceFilters(t *testing.T) {
	t.Parallel()
	before, after := changedRecordings(t)
	all := differenceJSON(t, before, after)
	if d := differenceJSON(t, "--comm", "app-new", before, after); d.Events[0].A.Samples != 0 ||
		d.Events[0].B.Samples == 0 || d.A.Only != "comm app-new" {
		t.Errorf("--comm: %+v", d.Events)
	}
	half := differenceJSON(t, "--time", "0,50%", before, after)
	for data, side := range map[string][2]uint64{
		before: {half.Events[0].A.Samples, all.Events[0].A.Samples},
		after:  {half.Events[0].B.Samples, all.Events[0].B.Samples},
	} {
		want := reportJSON(t, "--time", "0,50%", data).Header.Samples
		if side[0] != want || want == 0 || want >= side[1] {
			t.Errorf("--time: %d of %d samples, want %d", side[0], side[1], want)
		}
	}
	for _, f := range differenceJSON(t, "--no-kernel", before, after).Events[0].Functions {
		if f.Kind == "kernel" {
			t.Errorf("--no-kernel: %+v", f)
		}
	}
	if d := differenceJSON(t, "--by", "image", "--absolute", before, after); d.DecidedBy != "amount" ||
		d.Events[0].By != "image" || !slices.ContainsFunc(d.Events[0].Groups, func(g struct {
		Name        string
		Self, Total differedIn
	},
	) bool {
		return g.Name == "app-old / app-new"
	}) {
		t.Errorf("--by: %+v", d.Events[0].Groups)
	}
	// One of the two may come through a pipe.
	r := start(t, "", func(cmd *exec.Cmd) {
		file, err := os.Open(before)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		cmd.Stdin = file
	}, "report", "-", after)
	if e := r.finish(t, time.Minute); e.status != 0 || !strings.Contains(e.stdout, "changed_pack") {
		t.Errorf("a pipe: %+v", e)
	}
}

// On a terminal it is in colours, as wide as that, and goes through a pager where it is too long.
func TestDifferenceOnATerminal(t *testing.T) {
	t.Parallel()
	before, after := changedRecordings(t)
	for _, wide := range []uint16{72, 110} {
		terminal, written := openTerminal(t, wide)
		r := start(t, "", func(cmd *exec.Cmd) {
			cmd.Stdout, cmd.Stderr = terminal, terminal
			cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=", "PAGER=sed 's/^/> /'")
		}, "report", "--percent-limit", "0", before, after)
		e := r.finish(t, time.Minute)
		terminal.Close()
		text := written()
		if i := strings.LastIndex(text, "\r\x1b[K"); i >= 0 { // the progress of reading
			text = text[i:]
		}
		if e.status != 0 || !strings.Contains(text, "> A         ") || !strings.Contains(text, "\x1b[2m") ||
			strings.Contains(text, "CPU s") != (wide > 80) {
			t.Errorf("status %d: %q", e.status, text)
		}
	}
}
