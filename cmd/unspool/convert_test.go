package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/format/export"
	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/testdata/recordings"
)

// perfCommand is a command of perf. One that records events of user code alone finds no functions of the kernel.
func perfCommand(args ...string) *exec.Cmd {
	for i, a := range args[:len(args)-1] {
		if a != "-e" {
			continue
		}
		for event := range strings.SplitSeq(args[i+1], ",") {
			if !strings.HasSuffix(event, ":u") {
				return exec.Command("perf", args...)
			}
		}
		return lane.UserPerf(args...)
	}
	return exec.Command("perf", args...)
}

// perfRecord has perf record a command with raw stacks, with the option "-" into a pipe. perf 6.1 aborts when
// another test records the whole system at the same time: see 'unspool help limits'.
func perfRecord(t testing.TB, options []string, command ...string) (path string) {
	t.Helper()
	needRoot(t)
	need(t, "perf")
	path = filepath.Join(t.TempDir(), "raw.data")
	args := slices.Concat([]string{"--buildid-dir", filepath.Join(filepath.Dir(path), "cache"), "record",
		"-q", "-o", path, "--call-graph", "dwarf,16384"}, options)
	if !slices.Contains(options, "-m") { // a program may touch pages faster than perf writes
		args = append(args, "-m", "16M")
	}
	if slices.Contains(options, "-a") {
		// perf reads build IDs when it ends, also those of files that other tests have replaced meanwhile. Without
		// them, files are identified by what the kernel has said when they were mapped.
		args = append(args, "--no-buildid")
	}
	args = slices.Concat(args, []string{"--"}, command)
	for range 5 {
		cmd := perfCommand(args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if err == nil && slices.Contains(options, "-") {
			err = os.WriteFile(path, stdout.Bytes(), 0o600)
		}
		if err == nil {
			checkEdges(t, path, nil)
			return path
		}
		if !strings.Contains(stderr.String(), "assertion failed") {
			t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
		}
	}
	const aborts = "perf aborts: somebody records the whole system all the time"
	if os.Getenv("CI") != "" { // where nobody else does
		t.Fatal(aborts)
	}
	t.Skip(aborts)
	return ""
}

// convert runs unspool convert, which is expected to succeed.
func convert(t testing.TB, in string, args ...string) recording {
	t.Helper()
	dir := t.TempDir()
	path, stats := filepath.Join(dir, "perf.data"), filepath.Join(dir, "stats.json")
	e := unspool(t, dir, append([]string{"convert", in, "-o", path, "--stats", stats}, args...)...)
	if e.status != 0 {
		t.Fatalf("unspool convert %s: status %d\n%s", strings.Join(args, " "), e.status, e.stderr)
	}
	content, err := os.ReadFile(stats)
	if err != nil {
		t.Fatal(err)
	}
	r := recording{path, readStatistics(t, content), e}
	r.stats.addUp(t)
	if size := fileSize(t, path); size != r.stats.Bytes.Written {
		t.Errorf("stats: %d bytes written, but the file has %d", r.stats.Bytes.Written, size)
	}
	return r
}

// sameAsConverted compares the stacks of a recording with those of its conversion.
func sameAsConverted(t *testing.T, raw string, own map[sampleKey]walked) {
	t.Helper()
	// The walks are over each copy by itself.
	r, err := perfdata.Open(convert(t, raw, "--no-join").path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var s perfring.Sample
	same, differ := 0, 0
	err = r.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
		if rec.Type() != perfring.RecordSample {
			return nil
		}
		if err := f.Sample(rec, &s); err != nil {
			return err
		}
		var chain []uint64
		for i := range s.Callchain.Len() {
			if ip := s.Callchain.At(i); int64(ip) == unix.PERF_CONTEXT_USER {
				chain = []uint64{}
			} else if chain != nil {
				chain = append(chain, ip)
			}
		}
		w, ok := own[sampleKey{int(s.TID), time.Duration(s.Time)}]
		if !ok && chain == nil {
			return nil
		}
		if slices.EqualFunc(chain, w.frames, func(ip uint64, l located) bool { return ip == l.ip }) {
			same++
		} else {
			differ++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if same == 0 || differ > 0 {
		t.Errorf("converted: %d stacks are the same, %d differ", same, differ)
	}
}

func TestConvertInAPipeIsTheSameAsLater(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf", "tee")
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c",
		`perf record -q -B -N -e page-faults:u -c 1 -m 4M --call-graph dwarf,8192 -o - -- "$1" =20 | tee raw.data | `+
			`"$2" convert -q - -o live.data`,
		"sh", programs.Build(t, "plain"), binary)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	live, raw := filepath.Join(dir, "live.data"), filepath.Join(dir, "raw.data")
	readableBy(t, live)
	later := convert(t, raw)
	a, b := mustRead(t, live), mustRead(t, later.path)
	if !bytes.Equal(a, b) {
		t.Errorf("%d bytes at once, %d later", len(a), len(b))
	}
	if len(a)*10 > int(fileSize(t, raw)) {
		t.Errorf("%d bytes became %d", fileSize(t, raw), len(a))
	}
	report := exec.Command("sh", "-c",
		`"$1" convert -q raw.data -o - | perf report --stdio --no-children -g none -i -`, "sh", binary)
	report.Dir = dir
	if out, err := report.Output(); err != nil || !strings.Contains(string(out), "plain_leaf") {
		t.Errorf("%v\n%s", err, out)
	}
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A PID in a recording may be anybody's now, and a path may lead to another build.
func TestConvertUsesTheBuildThatRan(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	built := programs.Build(t, "plain", "-static", "-Wl,--build-id")
	for _, way := range []struct {
		name    string
		options []string
	}{{"build ID", nil}, {"inode", []string{"-B", "-N"}}} {
		t.Run(way.name, func(t *testing.T) {
			copyFile(t, built, program)
			raw := perfRecord(t, slices.Concat(programs.Faults(), []string{"-m", "4M"}, way.options), program,
				programs.Times(counted))
			complete := func(name string, args ...string) bool {
				r := convert(t, raw, args...)
				t.Logf("%s: ended %v", name, r.stats.Unwind.Ended)
				if lost := r.stats.Unwind.Ended["no_image"]; lost > 0 && strings.Count(r.stderr, program) != 1 {
					t.Errorf("%s: not named once:\n%s", name, r.stderr)
				}
				return r.stats.Unwind.Ended["no_image"] == 0 && r.stats.Unwind.Complete >= counted
			}
			if !complete("in its place") {
				t.Error("the file is where it was, and is not used")
			}
			other := programs.Build(t, "plain", "-static", "-Wl,--build-id", "-O0")
			if way.options != nil { // else perf's cache may have a link to it
				copyFile(t, other, program) // over it, as cp does
				if complete("rewritten", "--buildid-dir", dir) {
					t.Error("another build was used")
				}
			}
			if err := os.Remove(program); err != nil {
				t.Fatal(err)
			}
			copyFile(t, other, program)
			if complete("replaced", "--buildid-dir", dir) {
				t.Error("another build was used")
			}
			symfs := t.TempDir()
			if err := os.MkdirAll(symfs+dir, 0o777); err != nil {
				t.Fatal(err)
			}
			copyFile(t, built, symfs+program)
			if !complete("--symfs", "--symfs", symfs) {
				t.Error("the file below --symfs is not used")
			}
			if cache := filepath.Join(filepath.Dir(raw), "cache"); way.options == nil &&
				!complete("--buildid-dir", "--buildid-dir", cache) {
				t.Error("perf's build-ID cache is not used")
			}
		})
	}
}

func TestConvertOfAStormIsTheSameOnSeveralCores(t *testing.T) {
	t.Parallel()
	raw := placed(t, "raw-storm")
	one := convert(t, raw)
	readableBy(t, one.path)
	// There are 50 processes besides the first.
	tids := make(map[int]bool)
	for _, s := range perfScriptHeads(t, one.path) {
		tids[s.tid] = true
	}
	if len(tids) != 51 {
		t.Errorf("%d processes", len(tids))
	}
	for _, jobs := range []int{2, 3} {
		several := convert(t, raw, "-j", strconv.Itoa(jobs))
		if !bytes.Equal(mustRead(t, one.path), mustRead(t, several.path)) {
			t.Errorf("-j %d: another output", jobs)
		}
		if one.stats.Samples != several.stats.Samples ||
			fmt.Sprint(one.stats.Unwind) != fmt.Sprint(several.stats.Unwind) {
			t.Errorf("-j %d: %+v instead of %+v", jobs, several.stats, one.stats)
		}
	}
}

func TestConvertOfADamagedRecordingSaysSo(t *testing.T) {
	t.Parallel()
	whole := mustRead(t, recordings.Path(t, "raw"))
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"cut":      whole[:len(whole)*2/3],
		"features": whole[:len(whole)-100],
		"damaged": slices.Concat(whole[:len(whole)/2], bytes.Repeat([]byte{0xff}, 40000),
			whole[len(whole)/2+40000:]),
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		e := unspool(t, dir, "convert", "-q", path, "-o", path+".out")
		e.fails(t, statusFailure, name+": damaged at offset [0-9]+: ")
		readableBy(t, path+".out")
	}
}

// TestConvertOfAnUnwoundRecording converts what holds no raw stacks.
func TestConvertOfAnUnwoundRecording(t *testing.T) {
	t.Parallel()
	data, dir := halvesRecording(t), t.TempDir()
	e := unspool(t, dir, "convert", data, "-o", "copy")
	copied := regexp.MustCompile(`^unspool: .* has no raw stacks: it is copied unchanged\n` +
		`[\d,]+ samples copied in [\d.]+ s\nunspool took [\d.]+ s of CPU time; [\d.]+ [KM]iB in copy\n$`)
	if !copied.MatchString(e.stderr) || e.status != 0 {
		t.Errorf("status %d\n%s", e.status, e.stderr)
	}

	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	read.Close()
	unread := func(cmd *exec.Cmd) { cmd.Stdout = write }
	e = start(t, dir, unread, "convert", data, "-o", "-").finish(t, time.Minute)
	if strings.Contains(e.stderr, " samples") || !strings.Contains(e.stderr, "broken pipe") ||
		e.status != statusFailure {
		t.Errorf("for a reader that is gone: status %d\n%s", e.status, e.stderr)
	}
}

// TestConvertOfNoSamples converts a part of a recording that is behind its end.
func TestConvertOfNoSamples(t *testing.T) {
	t.Parallel()
	data, dir := halvesRecording(t), t.TempDir()
	const before = "what was there"
	for _, format := range export.Formats()[1:] {
		t.Run(format.Name, func(t *testing.T) {
			out := filepath.Join(dir, format.Name)
			if err := os.WriteFile(out, []byte(before), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, output := range []string{out, "-"} {
				e := unspool(t, dir, "convert", data, "--time", "90,95", "--format", format.Name, "-o", output)
				says := regexp.MustCompile(`^unspool: no samples between 90 s and 95 s: the recording has [\d.]+ s, ` +
					`[\d-]+ [\d:]+ (to [\d:]+ )?\S.*\n$`)
				if e.status != statusFailure || !says.MatchString(e.stderr) || e.stdout != "" {
					t.Errorf("status %d, %d bytes on stdout\n%s", e.status, len(e.stdout), e.stderr)
				}
			}
			if text := mustRead(t, out); string(text) != before {
				t.Errorf("the output was replaced by %d bytes", len(text))
			}
		})
	}
}

func TestConvertSaysWhatItCannotDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("this is not a recording of anything"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-o", "out"}, "nothing to convert"},
		{[]string{"a", "b", "-o", "out"}, `unexpected argument "b"`},
		{[]string{text}, "no output given"},
		{[]string{text, "-o", "out"}, "text: not a perf.data file"},
		{[]string{"missing", "-o", "out"}, "missing: no such file"},
		{[]string{text, "-o", text}, "same file"},
		{[]string{text, "-o", text, "--format", "folded"}, "same file"},
		{[]string{text, "-o", dir, "--format", "folded"}, "is a directory"},
		{[]string{text, "-o", "out", "-j", "0"}, "-j 0: must be 1 to 64"},
		{[]string{text, "-o", "out", "--max-stack", "0"}, "--max-stack 0"},
		{[]string{text, "-o", "out", "-z=23"}, "-z 23"},
		{[]string{text, "-o", "out", "--symfs", "nowhere"}, "nowhere: no such file"},
		{[]string{text, "-o", "out.folded", "--symfs", "nowhere"}, "nowhere: no such file"},
		{[]string{text, "-o", "out.folded", "--time", "1"}, `--time "1": must be FROM,TO`},
		{[]string{text, "-o", "-", "--stats", "-"}, "cannot both write to stdout"},
	} {
		e := unspool(t, dir, append([]string{"convert"}, c.args...)...)
		e.fails(t, statusFailure, c.says)
		if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
			t.Errorf("%v: there is an output", c.args)
		}
	}
}
