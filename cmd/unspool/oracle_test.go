package main

import (
	"bytes"
	"debug/elf"
	le "encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/capture/session"
	"unspool/perfring"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/unwind"
	"unspool/vmas"
)

// A located frame is an address as its file has it, the way perf prints it.
type located struct {
	ip, offset uint64
	in         string
}

// A walked sample is one that was unwound out of a recording with raw stacks.
type walked struct {
	frames []located // leaf first, return addresses unadjusted
	end    unwind.Reason
	last   uint64 // word of the stack copy
}

// sampleKey tells the samples of a recording apart.
type sampleKey struct {
	tid  int
	time time.Duration
}

// A walkReader unwinds the samples of a recording with raw stacks.
type walkReader struct {
	table  *vmas.Table
	format perfring.SampleFormat // of the samples that the session hands on
	sample perfring.Sample
	frames []located
}

func (w *walkReader) WriteSample(sample *perfdata.Walked) error { return sample.Records(w.Write) }

func (w *walkReader) Write(rec []byte) error {
	if perfring.Record(rec).Type() != perfring.RecordSample {
		return nil
	}
	if err := w.format.Sample(rec, &w.sample); err != nil {
		return err
	}
	w.frames = nil
	user := false
	for i := range w.sample.Callchain.Len() {
		ip := w.sample.Callchain.At(i)
		if !user {
			user = int64(ip) == unix.PERF_CONTEXT_USER
			continue
		}
		f := located{ip, ip, "[unknown]"}
		if space := w.table.Space(w.sample.PID); space != nil {
			if m := space.Find(ip); m != nil {
				f = located{ip, ip - m.Start + m.Offset, m.File.Path}
			}
		}
		w.frames = append(w.frames, f)
	}
	return nil
}

// walkRecording unwinds every sample of a recording that perf made with raw
// stacks.
func walkRecording(t testing.TB, path string) map[sampleKey]walked {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	events := r.Events()
	if len(events) == 0 {
		t.Fatalf("%s: no events", path)
	}
	format := perfring.NewFormat(&events[0].PerfEventAttr)
	reader := &walkReader{format: format.Unwound()}
	// Kernel: what was sampled inside of execve has no stack of its own.
	s := session.New(session.Config{Format: &format, Sink: reader, MaxStack: 2048, Kernel: true})
	reader.table = s.Table()
	samples := make(map[sampleKey]walked)
	err = r.Ordered(func(rec perfring.Record, _ *perfring.SampleFormat, _ uint64) error {
		ended := s.Stats.Ended
		user := s.Stats.User
		if err := s.Record(rec); err != nil {
			return err
		}
		if s.Stats.User == user {
			return nil
		}
		w := walked{frames: reader.frames}
		var raw perfring.Sample
		if err := format.Sample(rec, &raw); err != nil {
			return err
		}
		if n := len(raw.Stack); n >= 8 {
			w.last = le.LittleEndian.Uint64(raw.Stack[n-8:])
		}
		for reason := range ended {
			if s.Stats.Ended[reason] != ended[reason] {
				w.end = unwind.Reason(reason)
			}
		}
		samples[sampleKey{int(reader.sample.TID), time.Duration(reader.sample.Time)}] = w
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Stats.Malformed > 0 || r.Unknown() > 0 {
		t.Errorf("%d malformed records, %d of unknown events", s.Stats.Malformed, r.Unknown())
	}
	return samples
}

// comparison counts how the stacks of a recording compare with perf's.
type comparison struct {
	same, longer, shorter, differ int
	ended                         map[string]int
	examples                      map[string]string
	count                         map[string]int
	cfi                           map[located]bool // whether there is CFI for the frame
	leaves                        map[string]int   // how often a function was sampled, as perf names it
}

func (c *comparison) note(kind, example string) {
	if c.count[kind]++; c.count[kind] == 1 {
		c.examples[kind] = example
	}
}

// agree reports whether perf prints the address of an own frame. perf prints the addresses of callers less
// one, except of frames that a signal interrupted: as their files have them in 6.1, as the process has them
// in later versions.
func agree(own located, perf frame, caller bool) bool {
	p := perf.ip
	return own.offset == p || own.ip == p || caller && (own.offset-1 == p || own.ip-1 == p)
}

// misses reports whether perf leaves out frame k, which called code that no CFI describes. perf follows the
// frame pointer there, which is still the caller's. What 6.1 finds after that is not to be compared: it has
// the wrong registers.
func (c *comparison) misses(k int, own walked, perf []frame) bool {
	if k == 0 || k+1 >= len(own.frames) || own.end != unwind.Root || !agree(own.frames[k+1], perf[k], true) {
		return false
	}
	f := own.frames[k-1]
	has, known := c.cfi[f]
	if !known {
		has = hasCFI(f)
		c.cfi[f] = has
	}
	return !has
}

// hasCFI reports whether readelf finds an FDE that covers the frame's address.
func hasCFI(f located) bool {
	// Its status is 1 for some files that it reads well.
	dump, _ := exec.Command("readelf", "--debug-dump=frames", "-W", f.in).Output()
	if !bytes.Contains(dump, []byte(" pc=")) {
		return true // it is not known that there is none
	}
	address, ok := addressOf(f)
	if !ok {
		return true
	}
	for line := range strings.Lines(string(dump)) {
		var start, end uint64
		if _, pc, found := strings.Cut(line, " pc="); found {
			if n, _ := fmt.Sscanf(pc, "%x..%x", &start, &end); n == 2 && start <= address && address < end {
				return true
			}
		}
	}
	return false
}

// addressOf is the frame's address in the numbering of its file, where the segments are.
func addressOf(f located) (uint64, bool) {
	file, err := elf.Open(f.in)
	if err != nil {
		return 0, false
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && f.offset-p.Off < p.Filesz {
			return f.offset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}

// compare compares a stack with perf's.
func (c *comparison) compare(own walked, perf []frame) {
	c.ended[own.end.String()]++
	n := min(len(own.frames), len(perf))
	for i := range n {
		if agree(own.frames[i], perf[i], i > 0) {
			continue
		}
		onStack := func(f frame) bool { return f.in == "[stack]" } // where these programs have no code
		if own.end == unwind.Root && slices.ContainsFunc(perf[i:], onStack) {
			c.longer++
			c.note("perf takes data of the stack for a caller", sideBySide(own, perf, i))
			return
		}
		if c.misses(i, own, perf) {
			c.longer++
			c.note("perf leaves out the caller of code without CFI", sideBySide(own, perf, i))
			return
		}
		c.differ++
		before := "the sample"
		if i > 0 {
			before = fmt.Sprintf("%s in %s", perf[i-1].name, filepath.Base(perf[i-1].in))
		}
		c.note("another caller of "+before, sideBySide(own, perf, i))
		return
	}
	switch {
	case len(own.frames) > len(perf):
		c.longer++
		last := perf[n-1]
		if own.frames[n].ip == own.last {
			// access_mem in tools/perf/util/unwind-libunwind-local.c compares
			// with >= where the word ends with the copy. The word is there.
			c.note("perf does not read the last word of the copy", sideBySide(own, perf, n))
			return
		}
		c.note(fmt.Sprintf("perf stops at %s in %s", last.name, filepath.Base(last.in)), sideBySide(own, perf, n))
	case len(own.frames) < len(perf):
		c.shorter++
		last := own.frames[n-1]
		c.note(fmt.Sprintf("perf goes on above %#x in %s, where the walk ends: %v", last.offset,
			filepath.Base(last.in), own.end), sideBySide(own, perf, n))
	default:
		c.same++
	}
}

// sideBySide shows two stacks about frame k.
func sideBySide(own walked, perf []frame, k int) string {
	var b strings.Builder
	for i := max(0, k-3); i < max(len(own.frames), len(perf)) && i < k+3; i++ {
		o, p := "-", "-"
		if i < len(own.frames) {
			o = fmt.Sprintf("%#x %s", own.frames[i].offset, filepath.Base(own.frames[i].in))
		}
		if i < len(perf) {
			p = fmt.Sprintf("%#x %s (%s)", perf[i].ip, perf[i].name, filepath.Base(perf[i].in))
		}
		fmt.Fprintf(&b, "    %3d  %-40s  perf: %s\n", i, o, p)
	}
	fmt.Fprintf(&b, "    %d frames, ended: %v; perf: %d frames\n", len(own.frames), own.end, len(perf))
	return b.String()
}

// aProgram is a whole program to record, of one process. It runs for some seconds of CPU time if it is long, and
// otherwise does a little of the same; then so many of its page faults make a sample.
type aProgram struct {
	name    string
	each    string
	command func(t *testing.T, long bool) []string
}

// On a busy machine it takes longer to have enough CPU time.
const pythonWork = `
import json, re, time
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def deep(n, f): return f() if n == 0 else deep(n - 1, f)
class C:
    def __init__(self, v): self.v = v
    def __lt__(self, other): return self.v < other.v
LOOP
    fib(12)
    sorted(C(i * 7919 % 331) for i in range(331))
    json.loads(json.dumps({str(i): [i] * 5 for i in range(200)}))
    re.sub(r'(\w+)-(\d+)', lambda m: deep(9, lambda: m[2]), 'one-1 two-2 three-3 ' * 30)
`

const perlWork = `
use Time::HiRes; my $end = Time::HiRes::time() + 1.5; my %h; my $rounds = 0;
sub deep { my $n = shift; return $n ? deep($n - 1) : join ',', sort { $h{$a} <=> $h{$b} } keys %h }
while (LOOP) {
	$h{$_ % 97} += $_ for 1 .. 2000;
	deep(20);
	my $s = 'one-1 two-2 ' x 50; $s =~ s/(\w+)-(\d+)/eval "$2 + 1"/ge;
}
`

const sqliteWork = `
create table t(a integer primary key, b text);
insert into t with recursive c(n) as (select 1 union all select n + 1 from c where n < ROWS)
	select n, hex(n * 7919 % 100003) from c;
create index i on t(b);
select count(*), sum(length(x.b)) from t x join t y on x.b = y.b where y.a % 3 = 0;
select count(*) from (select b, group_concat(a) g from t group by substr(b, 1, 3) order by g desc);
`

// choose puts the long or the short loop into a program.
func choose(long bool, program, loop, short string) string {
	if !long {
		loop = short
	}
	return strings.Replace(program, "LOOP", loop, 1)
}

// aRepository makes a repository.
func aRepository(t *testing.T, commits int) string {
	t.Helper()
	dir := t.TempDir()
	output(t, dir, "git", "init", "-q")
	var stream bytes.Buffer
	lines := make([]string, 3000)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %d of the file %d\n", i, i*7919%331)
	}
	for c := range commits {
		for k := range 40 {
			lines[(c*101+k*67)%len(lines)] = fmt.Sprintf("changed by %d at %d\n", c, k)
		}
		content := strings.Join(lines, "")
		fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter A <a@example.org> %d +0000\ndata 2\nc\nM 644 "+
			"inline file%d\ndata %d\n%s\n",
			1e9+c, c%3, len(content), content)
	}
	cmd := exec.Command("git", "fast-import", "--quiet")
	cmd.Dir, cmd.Stdin = dir, &stream
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git fast-import: %v\n%s", err, out)
	}
	return dir
}

var wholePrograms = []aProgram{
	{"python3", "11", func(t *testing.T, long bool) []string {
		work := choose(long, pythonWork, "end = time.monotonic() + 1.5\n"+
			"while time.monotonic() < end or time.process_time() < 0.5:", "for i in range(2):")
		if _, err := os.Stat("/usr/bin/python3"); err == nil {
			return []string{"/usr/bin/python3", "-c", work} // not a launcher for it
		}
		need(t, "python3")
		return []string{"python3", "-c", work}
	}},
	{"perl", "7", func(t *testing.T, long bool) []string {
		need(t, "perl")
		return []string{"perl", "-e", choose(long, perlWork, "Time::HiRes::time() < $end || (times)[0] < 0.5",
			"$rounds++ < 2")}
	}},
	{"git log", "13", func(t *testing.T, long bool) []string {
		need(t, "git")
		commits := 300
		if !long {
			commits = 10
		}
		return []string{"git", "--no-pager", "-C", aRepository(t, commits), "log", "-p", "--stat", "--minimal", "main"}
	}},
	{"code without CFI", "1", func(t *testing.T, long bool) []string {
		if long {
			return []string{programs.Build(t, "nocfi")}
		}
		return []string{programs.Build(t, "nocfi"), programs.Times(counted)}
	}},
	{"sqlite3", "7", func(t *testing.T, long bool) []string {
		need(t, "sqlite3")
		rows := "200000"
		if !long {
			rows = "3000"
		}
		return []string{"sqlite3", ":memory:", strings.ReplaceAll(sqliteWork, "ROWS", rows)}
	}},
	{"cc1", "41", func(t *testing.T, long bool) []string {
		need(t, "gcc")
		cc1 := strings.TrimSpace(output(t, "", "gcc", "-print-prog-name=cc1"))
		need(t, cc1)
		dir := t.TempDir()
		path := filepath.Join(dir, "work.c")
		var b strings.Builder
		functions := 250
		if !long {
			functions = 8
		}
		for i := range functions {
			fmt.Fprintf(&b, "int f%d(int *a, int n) { int s = %d; for (int i = 0; i < n; i++) { "+
				"if (a[i] %% %d) s += a[i] * i; else s ^= f%d(a + i, n - i - 1); "+
				"switch (s & 7) { case 1: s *= 3; break; case 4: s -= a[0]; break; case 6: return s; } } return s; }\n",
				i, i, i+2, max(0, i-1))
		}
		if err := os.WriteFile(path, []byte("int f0(int *, int);\n"+b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return []string{cc1, "-quiet", "-O2", path, "-o", filepath.Join(dir, "work.s")}
	}},
}

// TestWholeProgramsAgreeWithPerf has perf record whole programs with raw stacks, at some of the pages that they touch,
// and unwinds the same samples twice: with perf's libunwind and with unspool. The programs are single processes: perf
// 6.1 loses libc's frames in every process after the first.
//
// Where perf stops earlier it is wrong in known ways. It does not read the
// last word of the copy. It leaves out who called code without CFI, as readelf
// shows it: the first instruction of each library's .fini, which waits for its
// page. And in an epilogue it restores registers from slots
// that are popped, as the CFI has it (binutils' frames-interp shows c-48 for
// RBP after its pop): these are below SP, where the copy has nothing.
func TestWholeProgramsAgreeWithPerf(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	for _, p := range wholePrograms {
		t.Run(p.name, func(t *testing.T) {
			c := agreement(t, p.command(t, false), "-m", "16M", "-e", "page-faults:u", "-c", p.each)
			if c.differ+c.shorter > 0 || c.same+c.longer == 0 {
				t.Errorf("%d stacks differ from perf's, %d are shorter, %d are equal", c.differ, c.shorter, c.same)
			}
			if n := c.leaves["spin_without_cfi"]; p.name == "code without CFI" && n != counted {
				t.Errorf("%d samples of code without CFI, of %d", n, counted)
			}
		})
	}
}

// TestMachineWholeProgramsAgreeWithPerf does so by the clock, wherever that finds them.
func TestMachineWholeProgramsAgreeWithPerf(t *testing.T) {
	lane.Machine(t, 0.95)
	needRoot(t)
	need(t, "perf")
	for _, p := range wholePrograms {
		t.Run(p.name, func(t *testing.T) {
			c := agreement(t, p.command(t, true), "-F", "499")
			total := c.same + c.longer + c.shorter + c.differ
			lane.Figure(t, "%d samples: %d equal, %d where perf stops earlier, %d where it goes on, %d that differ",
				total, c.same, c.longer, c.shorter, c.differ)
			if total < enough {
				t.Fatalf("%d samples", total)
			}
			if (c.differ+c.shorter)*200 > total {
				t.Errorf("%d of %d stacks differ from perf's, %d are shorter", c.differ, total, c.shorter)
			}
		})
	}
}

// agreement has perf record a command, and compares all stacks.
func agreement(t *testing.T, command []string, options ...string) comparison {
	t.Helper()
	path := filepath.Join(t.TempDir(), "perf.data")
	// Its output goes nowhere: a pipe would make it wait for its reader.
	cmd := perfCommand(slices.Concat([]string{"record", "-q", "-B", "-N", "-o", path, "--call-graph",
		"dwarf,32768"}, options, []string{"--"}, command)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("perf record: %v\n%s", err, &stderr)
	}
	own := walkRecording(t, path)
	sameAsConverted(t, path, own)
	c := comparison{ended: make(map[string]int), examples: make(map[string]string),
		count: make(map[string]int), cfi: make(map[located]bool), leaves: make(map[string]int)}
	for _, s := range perfScript(t, path) {
		if len(s.user) == 0 {
			continue
		}
		c.leaves[s.user[0].name]++
		w, ok := own[sampleKey{s.tid, s.time}]
		if !ok || len(w.frames) == 0 {
			c.note("no stack", fmt.Sprint(s))
			c.differ++
			continue
		}
		c.compare(w, s.user)
	}
	t.Logf("%d equal, %d where perf stops earlier, %d where it goes on, %d that differ; ended %v",
		c.same, c.longer, c.shorter, c.differ, c.ended)
	for kind, example := range c.examples {
		t.Logf("%d times: %s\n%s", c.count[kind], kind, example)
	}
	return c
}
