package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/testdata/lane"
	"unspool/testdata/recordings"
)

// halvesRecording is a recording of the program halves, which is beside it. It may be changed.
func halvesRecording(t *testing.T) string {
	t.Helper()
	return placed(t, "halves")
}

// reported is what report --json writes. 'unspool help json' says what is in it.
type reported struct {
	Version int
	Header  reportedHeader
	Images  []struct {
		Name, Path string
		BuildID    string `json:"build_id"`
	}
	Events []struct {
		Name                    string
		Clock                   bool
		Samples, Period, Hidden uint64
		CPU                     float64 `json:"cpu_s"`
		Idle                    float64 `json:"idle_s"`
		Functions               []reportedFunction
		Tree                    []struct {
			Parent, Function int
			Self, Total      uint64
		}
		By     string
		Groups []struct {
			Comm, Image, File *string
			PID, TID          *uint32
			Cmdline           string
			Self, Total       uint64
			Functions         []reportedFunction
			Lines             []struct {
				Line            int
				Function, Image string
				Self, Total     uint64
			}
		}
	}
}

type reportedHeader struct {
	File, Hostname, Arch, Only string
	Command                    []string
	OSRelease                  string `json:"os_release"`
	Began                      *time.Time
	Duration                   float64 `json:"duration_s"`
	Samples                    uint64
	Recorded                   uint64 `json:"recorded_samples"`
	CPUs, Threads              int
	LostRecords                uint64 `json:"lost_records"`
	LostSamples                uint64 `json:"lost_samples"`
	Throttled                  uint64
	Stacks                     *struct {
		Total, Complete, Joined uint64
		Ended                   map[string]uint64
	}
	Notes []string
}

type reportedFunction struct {
	Name, Image, Kind string
	ImageIndex        int `json:"image_index"`
	Known, Inlined    bool
	Self, Total       uint64
}

func reportJSON(t *testing.T, args ...string) (r reported) {
	t.Helper()
	e := unspool(t, "", append([]string{"report", "--json"}, args...)...)
	if e.status != 0 || e.stderr != "" {
		t.Fatalf("report --json %s: status %d\n%s", strings.Join(args, " "), e.status, e.stderr)
	}
	d := json.NewDecoder(strings.NewReader(e.stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if d.More() || r.Version != 1 {
		t.Errorf("version %d, or more than one value", r.Version)
	}
	for _, e := range r.Events {
		var self, inTree, roots uint64
		for _, f := range e.Functions {
			self += f.Self
			if f.Self > f.Total || f.Total > e.Samples || r.Images[f.ImageIndex].Name != f.Image {
				t.Errorf("%+v of %d samples", f, e.Samples)
			}
		}
		children := make([]uint64, len(e.Tree))
		for i, n := range e.Tree {
			inTree += n.Self
			switch {
			case n.Parent >= i:
				t.Fatalf("node %d comes before its parent", i)
			case n.Parent < 0:
				roots += n.Total
			default:
				children[n.Parent] += n.Total
			}
		}
		for i, n := range e.Tree {
			if n.Self+children[i] != n.Total {
				t.Errorf("node %d: self %d and its children's %d are not %d", i, n.Self, children[i], n.Total)
			}
		}
		if all := e.Samples - e.Hidden; self != all || inTree != all || roots != all {
			t.Errorf("%s: %d samples; functions add up to %d, the tree to %d, its roots to %d", e.Name, all, self,
				inTree, roots)
		}
	}
	return r
}

// groups are the first event's, with their self samples.
func (r *reported) groups(t *testing.T) map[string]uint64 {
	t.Helper()
	if len(r.Events) != 1 {
		t.Fatalf("%d events", len(r.Events))
	}
	sums := make(map[string]uint64)
	var all uint64
	for _, g := range r.Events[0].Groups {
		switch {
		case g.Comm != nil:
			sums[*g.Comm] += g.Self
		case g.Image != nil:
			sums[*g.Image] += g.Self
		default:
			sums[filepath.Base(*g.File)] += g.Self
		}
		all += g.Self
		var rows uint64
		for _, f := range g.Functions {
			rows += f.Self
		}
		for _, l := range g.Lines {
			rows += l.Self
		}
		if rows != g.Self {
			t.Errorf("group %+v: its rows have %d self samples", g, rows)
		}
	}
	if all != r.Events[0].Samples {
		t.Errorf("groups have %d samples, the event %d", all, r.Events[0].Samples)
	}
	return sums
}

// inKernel evens out the names of the kernel and its modules, "[kernel]", "[kernel.kallsyms]", "[ext4]".
func inKernel(image string) string {
	if strings.HasPrefix(image, "[") && image != "[vdso]" {
		return "[kernel]"
	}
	return image
}

// TestReportAgreesWithPerf compares the numbers of samples with perf's.
func TestReportAgreesWithPerf(t *testing.T) {
	t.Parallel()
	data := halvesRecording(t)
	need(t, "perf")
	theirs := func(key string, args ...string) map[string]uint64 {
		counts := make(map[string]uint64)
		args = append([]string{"report", "--stdio", "--no-children", "-g", "none", "-F", "sample," + key,
			"-i", data}, args...)
		for line := range strings.Lines(output(t, "", "perf", args...)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] != "#" {
				n, err := strconv.ParseUint(f[0], 10, 64)
				if err != nil {
					t.Fatalf("perf report: %q", line)
				}
				name := strings.Join(f[1:], " ")
				if key == "sym" {
					name = strings.Join(f[2:], " ") // behind "[k]"
				}
				counts[inKernel(name)] += n
			}
		}
		return counts
	}
	same := func(what string, ours, theirs map[string]uint64) {
		t.Helper()
		if len(ours) == 0 || fmt.Sprint(ours) != fmt.Sprint(theirs) {
			t.Errorf("%s: ours %v, perf's %v", what, ours, theirs)
		}
	}
	byComm := reportJSON(t, "--by", "comm", data)
	same("comm", byComm.groups(t), theirs("comm"))
	byImage := reportJSON(t, "--by", "image", data)
	images := make(map[string]uint64)
	for name, n := range byImage.groups(t) {
		if n > 0 { // others only call
			images[inKernel(name)] += n
		}
	}
	same("dso", images, theirs("dso"))
	symbols := make(map[string]uint64)
	for _, f := range byImage.Events[0].Functions {
		if f.Image == "halves" && f.Known && !strings.HasSuffix(f.Name, "@plt") {
			symbols[f.Name] += f.Self
		}
	}
	perfs := theirs("sym", "--dsos", "halves")
	for name := range symbols {
		if _, ok := perfs[name]; !ok && symbols[name] == 0 {
			delete(symbols, name)
		}
	}
	for name := range perfs {
		if _, ok := symbols[name]; !ok {
			delete(perfs, name) // perf's names for the procedure linkage table
		}
	}
	same("symbol", symbols, perfs)
	if symbols["halves_mix"] == 0 {
		t.Errorf("%v", symbols)
	}
}

func TestReportBy(t *testing.T) {
	t.Parallel()
	data := halvesRecording(t)
	p := loadProfile(t, data, symbols.Options{})
	want := make(map[string]map[string]uint64)
	count := func(by, name string, n uint64) {
		if want[by] == nil {
			want[by] = make(map[string]uint64)
		}
		want[by][name] += n
	}
	for _, s := range p.Samples {
		th := p.Threads[s.Thread]
		count("comm", th.Comm, s.Count)
		count("thread", fmt.Sprint(th.Comm, th.PID, th.TID), s.Count)
		count("process", fmt.Sprint(th.PID), s.Count)
		count("image", p.Images[p.Frames[p.Nodes[s.Node].Frame].Image].Name, s.Count)
	}
	for by, want := range want {
		t.Run(by, func(t *testing.T) {
			r := reportJSON(t, "--by", by, data)
			if r.Header.Samples != p.Count() || r.Header.Threads != len(p.Threads) || r.Events[0].By != by {
				t.Errorf("header: %+v", r.Header)
			}
			if r.Header.Recorded != p.Count() || r.Header.CPUs != recordings.CPUs || r.Events[0].CPU <= 0 {
				t.Errorf("%d samples recorded on %d CPUs, %v s of CPU time", r.Header.Recorded, r.Header.CPUs,
					r.Events[0].CPU)
			}
			r.groups(t)
			got := make(map[string]uint64)
			for _, g := range r.Events[0].Groups {
				if g.Self == 0 {
					continue // only calls
				}
				switch by {
				case "comm":
					got[*g.Comm] += g.Self
				case "thread":
					got[fmt.Sprint(*g.Comm, *g.PID, *g.TID)] += g.Self
				case "process":
					got[fmt.Sprint(*g.PID)] += g.Self
				case "image":
					got[*g.Image] += g.Self
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
	t.Run("source", func(t *testing.T) {
		r := reportJSON(t, "--by", "source", data)
		if n := r.groups(t)["halves.c"]; n == 0 {
			t.Errorf("%d samples in halves.c", n)
		}
		text := unspool(t, "", "report", "--by", "source", data).stdout
		if !regexp.MustCompile(`(?m)^ +[0-9.]+%  +[0-9.]+%  halves\.c:1[89] +halves_turn$`).MatchString(text) {
			t.Errorf("the loop's lines are not shown:\n%s", text)
		}
	})
}

func TestReportInline(t *testing.T) {
	t.Parallel()
	data := halvesRecording(t)
	const chain = `(?m)halves_mix.*\n.*halves_stir \(inlined\)\n.*halves_turn \(inlined\)$`
	if text := unspool(t, "", "report", data).stdout; strings.Contains(text, "inlined") {
		t.Errorf("inlined functions unasked:\n%s", text)
	}
	text := unspool(t, "", "report", "--inline", data).stdout
	if !regexp.MustCompile(chain).MatchString(text) {
		t.Errorf("no inlined functions:\n%s", text)
	}
	r := reportJSON(t, "--inline", data)
	for _, f := range r.Events[0].Functions {
		inlined := f.Name == "halves_stir" || f.Name == "halves_turn"
		if f.Inlined != inlined && strings.HasPrefix(f.Name, "halves") {
			t.Errorf("%+v", f)
		}
	}
}

func TestReportFilters(t *testing.T) {
	t.Parallel()
	data := halvesRecording(t)
	p := loadProfile(t, data, symbols.Options{})
	var stirs, asks profile.Thread
	counts := make(map[profile.Thread]uint64)
	byTID := make(map[uint32]uint64) // also of a thread before it had its name
	var all uint64
	for _, s := range p.Samples {
		th := p.Threads[s.Thread]
		counts[th] += s.Count
		byTID[th.TID] += s.Count
		all += s.Count
		switch th.Comm {
		case "stirs":
			stirs = th
		case "asks":
			asks = th
		}
	}
	for _, c := range []struct {
		args []string
		want uint64
	}{
		{[]string{"--comm", "stirs"}, counts[stirs]},
		{[]string{"--comm", "st*"}, counts[stirs]},
		{[]string{"--comm", "stirs,asks"}, counts[stirs] + counts[asks]},
		{[]string{"--comm", "stirs", "--comm", "[a]sks"}, counts[stirs] + counts[asks]},
		{[]string{"--pid", fmt.Sprint(stirs.PID)}, all},
		{[]string{"--tid", fmt.Sprint(stirs.TID)}, byTID[stirs.TID]},
		{[]string{"--tid", fmt.Sprintf("%d,%d", stirs.TID, asks.TID)}, byTID[stirs.TID] + byTID[asks.TID]},
	} {
		r := reportJSON(t, append(c.args, data)...)
		if r.Header.Samples != c.want || r.Header.Only == "" {
			t.Errorf("%q: %d samples, want %d, of %q", c.args, r.Header.Samples, c.want, r.Header.Only)
		}
		if r.Header.Duration != p.Duration.Seconds() {
			t.Errorf("%q: %v s, want %v", c.args, r.Header.Duration, p.Duration)
		}
	}
	var parts uint64
	for _, part := range []string{",40%", "40%,70%", "70%,"} {
		r := reportJSON(t, "--time", part, data)
		if d := r.Header.Duration; d <= 0 || d > 0.45*p.Duration.Seconds() || r.Header.Only == "" {
			t.Errorf("--time %s: %v s of %v, of %q", part, d, p.Duration, r.Header.Only)
		}
		parts += r.Header.Samples
	}
	if parts != all {
		t.Errorf("three parts of the time have %d samples, want %d", parts, all)
	}
	for _, c := range []struct {
		says string
		args []string
	}{
		{"no samples of comm nobody, stir: the recording has those of (stirs, asks|asks, stirs)\n",
			[]string{"--comm", "nobody,stir"}},
		{"no samples of comm asks; tid " + fmt.Sprint(stirs.TID) + ": the recording has those of ",
			[]string{"--comm", "asks", "--tid", fmt.Sprint(stirs.TID)}},
		{"no samples of pid 1: the recording has those of [0-9]+ \\([a-z]+\\)\n", []string{"--pid", "1"}},
		{"no samples of tid 1: the recording has those of [0-9]+ \\(stirs|asks\\)", []string{"--tid", "1"}},
		{"no samples of comm nobody in the first 50 %: the recording has those of [as]",
			[]string{"--comm", "nobody", "--time", ",50%"}},
		{"no samples between 1000 s and 2000 s: the recording has [0-9.]+ s, 20[-0-9]+ [0-9:]+",
			[]string{"--time", "1000,2000"}},
		{"no samples between 2000-01-01T10:00 and 2000-01-01T11:00: the recording has [0-9.]+ s, 20[-0-9]+ [0-9:]+",
			[]string{"--time", "2000-01-01T10:00,2000-01-01T11:00"}},
	} {
		for _, more := range [][]string{{data}, {"--json", data}, {data, data}, {"--http=localhost:0", data}} {
			e := unspool(t, "", append(append([]string{"report"}, c.args...), more...)...)
			if e.status != statusFailure || e.stdout != "" || !regexp.MustCompile(c.says).MatchString(e.stderr) {
				t.Errorf("%s %s: status %d, %d bytes\n%s", c.args, more, e.status, len(e.stdout), e.stderr)
			}
		}
	}
	r := reportJSON(t, "--no-kernel", "--by", "image", data)
	for _, f := range r.Events[0].Functions {
		if f.Kind == "kernel" {
			t.Errorf("--no-kernel shows %+v", f)
		}
	}
}

func TestReportSaysHowStacksEnded(t *testing.T) {
	t.Parallel()
	data := halvesRecording(t)
	r := reportJSON(t, data)
	s := r.Header.Stacks
	if s == nil || s.Total == 0 || s.Complete != s.Ended["root"] {
		t.Fatalf("%+v", s)
	}
	var sum uint64
	for _, n := range s.Ended {
		sum += n
	}
	if sum != s.Total {
		t.Errorf("%+v", s)
	}
	complete := regexp.MustCompile(`(?m)^stacks +(all|[0-9.]+ %) complete`)
	if text := unspool(t, "", "report", data).stdout; !complete.MatchString(text) {
		t.Error(text)
	}
}

// TestReportFindsFilesElsewhere looks for a program that is not where it was recorded.
func TestReportFindsFilesElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	id := buildID(t, recordings.Program(t, "halves"))
	program := filepath.Join(dir, "root", recordings.Here, "halves")
	cached := filepath.Join(dir, "cache/.build-id", id[:2], id[2:], "elf")
	for _, path := range []string{program, cached, filepath.Join(dir, "none", "file")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		copyFile(t, recordings.Program(t, "halves"), path)
	}
	for _, c := range []struct {
		args []string
		want bool
	}{
		{nil, false},
		{[]string{"--symfs", filepath.Join(dir, "root")}, true},
		{[]string{"--symfs", "root"}, true},
		{[]string{"--buildid-dir", filepath.Join(dir, "cache")}, true},
		{[]string{"--buildid-dir", "cache"}, true},
		{[]string{"--buildid-dir", "cache", "--no-sandbox"}, true},
	} {
		args := append([]string{"report", "--buildid-dir", filepath.Join(dir, "none")}, append(c.args,
			recordings.Path(t, "halves"))...)
		if text := unspool(t, dir, args...).stdout; strings.Contains(text, "halves_mix") != c.want {
			t.Errorf("%q: names found: %t\n%s", c.args, !c.want, text)
		}
	}
}

func TestReportCompletesWhatItAddsUpBy(t *testing.T) {
	if e := unspool(t, "", "__complete", "report", "--by", ""); !strings.HasPrefix(e.stdout,
		"function\ncomm\nprocess\nthread\nimage\nsource\n") {
		t.Errorf("%q", e.stdout)
	}
}

// TestReportOnATerminal looks at colours and at what becomes of a report that is longer than the screen.
func TestReportOnATerminal(t *testing.T) {
	t.Parallel()
	data := halvesRecording(t)
	marks := filepath.Join(t.TempDir(), "marks")
	run := func(t *testing.T, environment []string, args ...string) string {
		t.Helper()
		os.Remove(marks)
		terminal, written := openTerminal(t, 90)
		r := start(t, "", func(cmd *exec.Cmd) {
			cmd.Stdout, cmd.Stderr = terminal, terminal
			cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=", "PAGER=", "LESS=")
			cmd.Env = append(cmd.Env, environment...)
		}, append([]string{"report"}, append(args, data)...)...)
		e := r.finish(t, time.Minute)
		terminal.Close()
		text := written()
		if e.status != 0 || strings.Contains(text, "unspool: ") {
			t.Errorf("status %d: %q", e.status, text)
		}
		// On a slow machine the progress of reading comes first, on a line that goes away.
		const cleared = "\r\x1b[K"
		if i := strings.LastIndex(text, cleared); i >= 0 {
			text = text[i+len(cleared):]
		}
		return text
	}
	long, short := []string{"--top", "100", "--percent-limit", "0"}, []string{"--top", "1", "--percent-limit", "100"}
	paged := func() bool { _, err := os.Stat(marks); return err == nil }
	mark := "touch " + marks + "; "

	t.Run("colours", func(t *testing.T) {
		if text := run(t, nil, "--inline"); !strings.Contains(text, "\x1b[31m") ||
			!strings.Contains(text, "\x1b[2m (inlined)\x1b[0m") {
			t.Errorf("%q", text)
		}
		for _, plain := range []string{
			run(t, []string{"NO_COLOR=1"}), run(t, []string{"TERM=dumb"}), run(t, nil, "--color=never"),
		} {
			if strings.Contains(plain, "\x1b[") {
				t.Errorf("%q", plain)
			}
		}
		if text := run(t, []string{"NO_COLOR=1"}, "--color=always"); !strings.Contains(text, "\x1b[31m") {
			t.Errorf("%q", text)
		}
		// In a pipe there are none unless they are asked for.
		for option, want := range map[string]bool{"auto": false, "always": true} {
			e := unspool(t, "", "report", "--color", option, data)
			if strings.Contains(e.stdout, "\x1b[31m") != want {
				t.Errorf("--color %s in a pipe: %q", option, e.stdout)
			}
		}
	})
	t.Run("long", func(t *testing.T) {
		for _, name := range []string{"PAGER", "UNSPOOL_PAGER"} {
			text := run(t, []string{name + "=" + mark + "sed 's/^/> /'"}, long...)
			if !paged() || !strings.HasPrefix(text, "> file ") || !strings.Contains(text, "halves_ask") {
				t.Errorf("%s: %q", name, text)
			}
		}
		if text := run(t, []string{"PAGER=false", "UNSPOOL_PAGER=" + mark + "cat"}, long...); !paged() ||
			!strings.Contains(text, "halves_ask") {
			t.Errorf("%q", text)
		}
	})
	t.Run("short", func(t *testing.T) {
		if text := run(t, []string{"PAGER=" + mark + "cat"}, short...); paged() ||
			!strings.Contains(text, "call tree") {
			t.Errorf("%q", text)
		}
	})
	t.Run("none wanted", func(t *testing.T) {
		for _, c := range []struct {
			environment string
			args        []string
		}{
			{"PAGER=" + mark + "cat", []string{"--no-pager"}},
			{"PAGER=" + mark + "cat", []string{"--json"}},
			{"UNSPOOL_PAGER=", nil},
			{"PAGER=cat", nil},
		} {
			args := c.args
			if len(args) == 0 || args[0] != "--json" {
				args = append(args, long...)
			}
			if text := run(t, []string{c.environment}, args...); paged() || !strings.Contains(text, "halves_ask") {
				t.Errorf("%q %q: %q", c.environment, c.args, text)
			}
		}
	})
	t.Run("quit early", func(t *testing.T) {
		if text := run(t, []string{"PAGER=" + mark + "head -n 2"}, long...); !paged() ||
			strings.Count(text, "\n") != 2 {
			t.Errorf("%q", text)
		}
		run(t, []string{"PAGER=exit 3"}, long...)
	})
	t.Run("interrupted", func(t *testing.T) {
		os.Remove(marks)
		terminal, written := openTerminal(t, 90)
		r := start(t, "", func(cmd *exec.Cmd) {
			cmd.Stdout, cmd.Stderr = terminal, terminal
			cmd.Env = append(os.Environ(),
				"PAGER="+mark+"while [ -e "+marks+" ]; do sleep 0.01; done; tail -n 1; echo the end")
		}, append([]string{"report", data}, long...)...)
		lane.Eventually(t, "the pager", paged)
		r.Process.Signal(syscall.SIGINT)
		lane.Eventually(t, "the signal to be taken", func() bool { return hasTakenSignals(r.Process.Pid) })
		os.Remove(marks)
		e := r.finish(t, time.Minute)
		terminal.Close()
		if text := written(); e.status != 0 || !strings.Contains(text, "the end") {
			t.Errorf("status %d: %q", e.status, text)
		}
	})
	t.Run("not there", func(t *testing.T) {
		if text := run(t, []string{"PAGER=/nowhere/pager"}, long...); !strings.Contains(text, "halves_ask") {
			t.Errorf("%q", text)
		}
	})
	t.Run("less", func(t *testing.T) {
		need(t, "less")
		text := run(t, []string{"UNSPOOL_PAGER=less -FRX", "LESSOPEN=", "LESSSECURE=1"}, short...)
		if !strings.Contains(text, "call tree") {
			t.Errorf("%q", text)
		}
	})
}
