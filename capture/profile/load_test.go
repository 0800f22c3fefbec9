package profile

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/symbols"
	"unspool/perfring"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
	"unspool/vmas"

	"golang.org/x/sys/unix"

	"unspool/testdata/programs"
)

// run runs a tool and returns its output; it skips the test when the tool is missing.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is missing", name)
	}
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if name == "perf" && (strings.Contains(stderr.String(), "perf_event_paranoid") ||
			strings.Contains(stderr.String(), "not supported")) {
			t.Skipf("perf may not record here: %s", stderr.String())
		}
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	return string(out)
}

// rounds is how often the program in testdata goes round.
const rounds = 60

// record records the page faults of the program with perf.
func record(t testing.TB, args ...string) string {
	t.Helper()
	return recordFaults(t, args, nil)
}

func recordFaults(t testing.TB, args, of []string) string {
	t.Helper()
	bin, data := programs.BuildFile(t, "testdata/fp.c", "-O0", "-fno-omit-frame-pointer"),
		filepath.Join(t.TempDir(), "perf.data")
	if !slices.Contains(args, "-e") {
		args = append([]string{"-e", "page-faults"}, args...)
	}
	run(t, "perf", slices.Concat([]string{"record", "-q", "-B", "-N", "-c", "1", "-o", data}, args, []string{"--", bin},
		of)...)
	return data
}

func load(t testing.TB, path string) *Profile {
	t.Helper()
	return loadWith(t, path, Options{})
}

// TestLoadFunctions loads a recording by function at once: its stacks are those of all addresses, by
// function.
func TestLoadFunctions(t *testing.T) {
	data := record(t, "-g")
	got, all := loadWith(t, data, Options{Functions: true, Processes: true}),
		loadWith(t, data, Options{Processes: true})
	if len(got.Nodes) >= len(all.Nodes) {
		t.Errorf("%d nodes by function, %d by address", len(got.Nodes), len(all.Nodes))
	}
	for _, f := range got.Frames {
		if f.PC != 0 {
			t.Errorf("%s has the PC %#x", f.Name, f.PC)
		}
	}
	if g, w := weights(got.ByFunction()), weights(all.ByFunction()); !maps.Equal(g, w) || len(g) == 0 {
		t.Errorf("by function\n%v\nof all addresses\n%v", g, w)
	}
}

func loadWith(t testing.TB, path string, o Options) *Profile {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := Load(r, symbols.New(symbols.Options{}), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return p
}

// leaves counts samples by the canonical name of their innermost frame.
func leaves(p *Profile) map[string]uint64 {
	n := map[string]uint64{}
	for _, s := range p.Samples {
		n[canonical(p.Frames[p.Nodes[s.Node].Frame].Name)] += s.Count
	}
	return n
}

// canonical returns the same name for all names of an address, and for the procedure linkage table that of
// the function before it, as perf does.
func canonical(name string) string {
	if name == "_init" || strings.HasSuffix(name, "@plt") {
		return "@plt"
	}
	return strings.TrimLeft(strings.TrimPrefix(name, "__GI_"), "_")
}

func stackOf(p *Profile, node int32) (names []string) {
	for ; node > 0; node = p.Nodes[node].Parent {
		names = append(names, p.Frames[p.Nodes[node].Frame].Name)
	}
	return names
}

// scriptLeaves counts samples by their innermost symbol, as perf script prints them; those without a symbol
// are "[unknown]".
func scriptLeaves(t *testing.T, path string) (counts map[string]uint64, total uint64) {
	counts = map[string]uint64{}
	first := true
	for line := range strings.Lines(run(t, "perf", "script", "-i", path, "-F", "ip,sym")) {
		name := scriptName(line)
		if first && name != "" {
			counts[name]++
			total++
		}
		first = name == ""
	}
	return counts, total
}

// scriptName is the symbol in a line of perf script, "" in one that ends a callchain.
func scriptName(line string) string {
	switch f := strings.Fields(line); len(f) {
	case 0:
		return ""
	case 1:
		return "[unknown]"
	default:
		return canonical(strings.Join(f[1:], " "))
	}
}

func TestLeavesAgreeWithPerfScript(t *testing.T) {
	for _, args := range [][]string{{"-g", "-e", "page-faults"}, {"-g", "-e", "page-faults", "--buildid-mmap"},
		{"-g", "-e", "page-faults:u"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			path := record(t, args...)
			p := load(t, path)
			want, total := scriptLeaves(t, path)
			if p.Count() != total || total < 50 {
				t.Fatalf("%d samples, perf script shows %d", p.Count(), total)
			}
			have := leaves(p)
			var known, differ uint64
			for name, n := range want {
				if name == "[unknown]" {
					continue
				}
				known += n
				if have[name] != n {
					differ += max(n, have[name]) - min(n, have[name])
					t.Logf("%s: %d samples, perf says %d", name, have[name], n)
				}
			}
			if have["spin"] != want["spin"] || want["spin"] != 4*rounds {
				t.Errorf("spin: %d samples, perf says %d", have["spin"], want["spin"])
			}
			if differ*50 > known {
				t.Errorf("%d of %d samples have another name than perf's\n%v\n%v", differ, known, have, want)
			}
			if p.Hostname == "" || len(p.Command) == 0 || p.Duration <= 0 || p.Lost() != 0 {
				t.Errorf("host %q, command %q, duration %v, lost %d", p.Hostname, p.Command, p.Duration, p.Lost())
			}
			for _, th := range p.Threads {
				if th.Comm != "fp" && th.Comm != "perf-exec" && th.Comm != "perf" {
					t.Errorf("thread %+v", th)
				}
			}
		})
	}
}

func TestStacksRunFromMainToTheLeaf(t *testing.T) {
	t.Parallel()
	p := load(t, record(t, "-g", "-e", "page-faults:u"))
	var heavy, all uint64
	for _, s := range p.Samples {
		all += s.Count
		got := strings.Join(stackOf(p, s.Node), " ")
		if strings.HasPrefix(got, "spin heavy recurse recurse recurse recurse recurse recurse main ") {
			heavy += s.Count
		}
	}
	if heavy != 3*rounds {
		t.Errorf("%d of %d samples are in spin, heavy, recurse (6 times), main", heavy, all)
		for _, s := range p.Samples {
			t.Logf("%d %s", s.Count, strings.Join(stackOf(p, s.Node), " "))
		}
	}
	if len(p.Nodes) > int(all)*4+100 {
		t.Errorf("%d nodes for %d samples", len(p.Nodes), all)
	}
}

func TestASampleWithoutCallchainCountsWithItsIP(t *testing.T) {
	t.Parallel()
	path := record(t, "-e", "page-faults:u")
	p := load(t, path)
	want, total := map[string]uint64{}, uint64(0)
	// one for each sample
	for line := range strings.Lines(run(t, "perf", "script", "-i", path, "-F", "ip,sym")) {
		want[scriptName(line)]++
		total++
	}
	if have := leaves(p); p.Count() != total || have["spin"] != want["spin"] {
		t.Errorf("%d samples: %v\nperf script shows %d: %v", p.Count(), have, total, want)
	}
	if have := leaves(p); have["spin"] != 4*rounds {
		t.Errorf("%d of %d samples in spin", have["spin"], p.Count())
	}
}

func TestRawStacksAreNamed(t *testing.T) {
	t.Parallel()
	p := load(t, record(t, "--call-graph", "dwarf,1024", "-e", "page-faults:u"))
	named := false
	for _, problem := range p.Problems {
		named = named || strings.Contains(problem, "raw copy of the user stack")
	}
	if !named {
		t.Errorf("problems: %q", p.Problems)
	}
	if have := leaves(p); have["spin"] != 4*rounds {
		t.Errorf("%d of %d samples in spin", have["spin"], p.Count())
	}
}

func TestATruncatedRecordingYieldsWhatIsThere(t *testing.T) {
	t.Parallel()
	path := record(t, "-g", "-e", "page-faults:u")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := load(t, path).Count()
	cut := filepath.Join(t.TempDir(), "cut")
	if err := os.WriteFile(cut, whole[:len(whole)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	p := load(t, cut)
	if n := p.Count(); n == 0 || n >= want {
		t.Errorf("%d of %d samples; %q", n, want, p.Problems)
	}
}

func TestRepeatedStacksDoNotAllocate(t *testing.T) {
	l := newLoader(symbols.New(symbols.Options{}))
	l.event = func(uint64) int { return 0 }
	l.p.Events = []Event{{Name: "cycles"}}
	l.table.Mmap(7, vmas.Map{Addr: 0x1000, Len: 0x2000, Prot: vmas.ProtExec, Name: []byte("//anon")})
	chain := words(perfring.ContextKernel, 0xffffffff81000010, 0xffffffff81000100, perfring.ContextUser, 0x1000,
		0x2000, 0x3000)
	l.sample.PID, l.sample.TID, l.sample.Callchain = 7, 7, chain
	l.addSample()
	if n := testing.AllocsPerRun(1000, l.addSample); n != 0 {
		t.Errorf("%v allocations a sample", n)
	}
	if err := l.p.CheckValid(); err != nil || len(l.p.Samples) != 1 {
		t.Errorf("%v, %+v", err, l.p.Samples)
	}
}

func words(w ...uint64) []byte {
	var b []byte
	for _, v := range w {
		for i := range 8 {
			b = append(b, byte(v>>(8*i)))
		}
	}
	return b
}

func TestMarkersSplitTheCallchain(t *testing.T) {
	for _, c := range []struct {
		name  string
		chain []uint64
		want  string
	}{
		{"kernel and user", []uint64{perfring.ContextKernel, 0xffffffff81000010, perfring.ContextUser, 0x1000},
			"kernel unmapped"},
		{"guest", []uint64{perfring.ContextGuestKernel, 0x10, perfring.ContextUser, 0x1000},
			"guest unmapped"},
		{"deferred user part", []uint64{perfring.ContextKernel, 0xffffffff81000010, perfring.ContextUserDeferred,
			0x1234}, "kernel"},
		{"stack words that look like markers",
			[]uint64{perfring.ContextUser, 0x1000, perfring.ContextKernel, 0xffffffff81000010},
			"unmapped unmapped unmapped"},
		{"zeroes at the end", []uint64{perfring.ContextUser, 0x1000, 0, 0}, "unmapped"},
		{"only a marker", []uint64{perfring.ContextUser}, "unmapped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLoader(symbols.New(symbols.Options{Kallsyms: "/nonexistent"}))
			l.sample.Misc = 2 // PERF_RECORD_MISC_USER
			if c.chain[0] != perfring.ContextUser {
				l.sample.Misc = 1
			}
			l.sample.Callchain = words(c.chain...)
			l.resolve(&l.sample)
			var kinds []string
			for _, f := range l.frames {
				kinds = append(kinds, l.p.Frames[f].Kind.String())
			}
			if got := strings.Join(kinds, " "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestTwoBuildsOfOnePath loads a recording that lists two builds of a path. A mapping that does not say
// which one it had has an unknown one. What was removed is listed by the name that the kernel gives it.
func TestTwoBuildsOfOnePath(t *testing.T) {
	id := func(b byte) []byte { return bytes.Repeat([]byte{b}, 20) }
	var recording bytes.Buffer
	w, err := perfdata.Create(perfdata.Options{Path: "-", Out: &recording, Events: []perfring.Attr{
		{PerfEventAttr: unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Sample_type: unix.PERF_SAMPLE_IP}}}})
	if err != nil {
		t.Fatal(err)
	}
	w.BuildID("/bin/a", id(1), false)
	w.BuildID("/bin/b", id(2), false)
	w.BuildID("/bin/a", id(3), false)
	w.BuildID("/bin/b", id(2), false)
	w.BuildID("/bin/b (deleted)", id(4), false)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "perf.data")
	if err := os.WriteFile(path, recording.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for err == nil {
		_, err = r.Next()
	}
	l := newLoader(symbols.New(symbols.Options{}))
	l.describe(r)
	for path, want := range map[string][]byte{"/bin/a": nil, "/bin/b": id(2), "/bin/c": nil,
		"/bin/a (deleted)": nil, "/bin/b (deleted)": id(4), "/bin/c (deleted)": nil} {
		m := l.table.Mmap(7, vmas.Map{Addr: 0x1000, Len: 0x2000, Prot: vmas.ProtExec, Name: []byte(path)})
		im := l.open(m.File)
		if got := l.p.Images[im.index].BuildID; !bytes.Equal(got, want) {
			t.Errorf("%s has build ID %x, want %x", path, got, want)
		}
	}
}

// TestFilesInMemory: an ELF file in memory has a build ID, and generated code has none.
func TestFilesInMemory(t *testing.T) {
	l := newLoader(symbols.New(symbols.Options{}))
	l.buildIDs = map[string][]byte{"/memfd:elf (deleted)": {1, 2, 3, 4}}
	for path, want := range map[string]Kind{"/memfd:elf": User, "/memfd:code": JIT} {
		l.table.Mmap(7, vmas.Map{Addr: 0x1000, Len: 0x2000, Prot: vmas.ProtExec, Name: []byte(path + " (deleted)")})
		if im := l.open(l.table.Space(7).Find(0x1000).File); im.kind != want {
			t.Errorf("%s: %v, want %v", path, im.kind, want)
		}
	}
}

// TestChildrenThatPerfMadeUp: for processes that ran already, perf writes a FORK from their parent, whose
// mappings they do not have any more.
func TestChildrenThatPerfMadeUp(t *testing.T) {
	format := perfring.NewFormat(&unix.PerfEventAttr{Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID})
	const fork, sample = uint64(perfring.RecordFork),
		uint64(perfring.RecordSample) | unix.PERF_RECORD_MISC_USER<<32
	for misc, want := range map[uint64]Kind{0: JIT, unix.PERF_RECORD_MISC_FORK_EXEC: Unmapped} {
		l := newLoader(symbols.New(symbols.Options{Kallsyms: "/nonexistent"}))
		l.event = func(uint64) int { return 0 }
		l.p.Events = []Event{{Name: "cycles"}}
		l.table.Mmap(7, vmas.Map{Addr: 0x1000, Len: 0x2000, Prot: vmas.ProtExec, Name: []byte("//anon")})
		l.record(words(fork|misc<<32|32<<48, 7<<32|8, 7<<32|8, 5), &format, 0)
		l.record(words(sample|24<<48, 0x1800, 8<<32|8), &format, 0)
		if l.malformed != 0 || len(l.p.Frames) != 1 || l.p.Frames[0].Kind != want {
			t.Errorf("misc %#x: %+v, %d malformed; want %v", misc, l.p.Frames, l.malformed, want)
		}
	}
}

func FuzzRecords(f *testing.F) {
	sample := func(chain ...uint64) []byte { // IP, TID, CALLCHAIN
		b := words(append([]uint64{0, 0x1000, 7<<32 | 7, uint64(len(chain))}, chain...)...)
		b[0], b[4], b[6] = 9, 2, byte(len(b))
		return b
	}
	f.Add(sample(perfring.ContextKernel, 0xffffffff81000010, perfring.ContextUser, 0x1000, 0x2000))
	f.Add(append(words(40<<48|3, 7<<32|7, 0x6f6d6564, 0, 0), sample(perfring.ContextUserDeferred, 1)...))
	format := perfring.NewFormat(&unix.PerfEventAttr{
		Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_CALLCHAIN,
	})
	// A process with mappings, one that begins with a copy of them, and samples of both.
	var b []byte
	for i, path := range []string{"/nonexistent/program", "[vdso]", "//anon", "/tmp/perf-7.map", "[heap]"} {
		var err error
		if b, err = perfring.AppendMmap2(b, &format, &perfring.Mmap2{PID: 7, TID: 7, Addr: 0x1000 * uint64(i+1),
			Len: 0x1000, Inode: uint64(i), Prot: 5, Path: []byte(path)}, &perfring.SampleID{}); err != nil {
			f.Fatal(err)
		}
	}
	fork := append(words(32<<48|7, 7<<32|8, 8<<32|8, 0), sample(perfring.ContextUser, 0x1000, 0x2000, 0x3000)...)
	exit := append(words(32<<48|4, 7<<32|8, 8<<32|8, 0), sample(perfring.ContextUser, 0x1000, 0x4000, 0x5000)...)
	f.Add(slices.Concat(b, sample(perfring.ContextUser, 0x1000, 0x2000, 0x3000, 0x4000), fork, exit))
	f.Fuzz(inputs.Many(f, func(t *testing.T, b []byte) {
		defer costs.For(len(b)).Check(t)()
		// It keeps what it has read, so the next input has its own.
		l := newLoader(symbols.New(symbols.Options{Kallsyms: "/nonexistent", Root: "/nonexistent"}))
		l.event = func(uint64) int { return 0 }
		l.p.Events = []Event{{Name: "cycles"}}
		for len(b) > 0 {
			r, err := perfring.CheckRecord(b)
			if err != nil {
				break
			}
			b = b[r.Size():]
			l.record(r, &format, 0)
		}
		if err := l.finish().CheckValid(); err != nil {
			t.Error(err)
		}
	}))
}

func BenchmarkSample(b *testing.B) {
	l := newLoader(symbols.New(symbols.Options{Kallsyms: "/nonexistent"}))
	l.event = func(uint64) int { return 0 }
	l.p.Events = []Event{{Name: "cycles"}}
	chain := []uint64{perfring.ContextKernel}
	for i := range 10 {
		chain = append(chain, 0xffffffff81000010+uint64(i)*64)
	}
	chain = append(chain, perfring.ContextUser)
	for i := range 30 {
		chain = append(chain, 0x1000+uint64(i)*64)
	}
	l.sample.Callchain = words(chain...)
	b.ReportAllocs()
	for b.Loop() {
		l.addSample()
	}
}
