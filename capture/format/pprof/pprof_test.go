package pprof

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	proto "github.com/google/pprof/profile"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
	"unspool/testdata/recordings"
)

// run runs a tool and returns its output; it skips the test when the tool is missing.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is missing", name)
	}
	cmd := exec.Command(name, args...)
	if name == "perf" {
		cmd = lane.UserPerf(args...)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if name == "perf" && (strings.Contains(stderr.String(), "perf_event_paranoid") ||
			strings.Contains(stderr.String(), "not supported")) {
			t.Skipf("perf may not record here: %s", &stderr)
		}
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	return string(out)
}

// tool runs go tool pprof on a profile.
func tool(t *testing.T, file string, args ...string) string {
	t.Helper()
	return run(t, "go", append(append([]string{"tool", "pprof"}, args...), file)...)
}

// pages is how many pages the program of testdata touches in each of two functions.
const pages = 60

// recordPages records each page that the program of testdata touches.
func recordPages(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	library, program, data := filepath.Join(dir, "libspin.so"), filepath.Join(dir, "program"),
		filepath.Join(dir, "perf.data")
	flags := []string{"-g", "-O2", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"}
	run(t, "gcc", append(flags, "-shared", "-fPIC", "-o", library, "testdata/library.c")...)
	run(t, "g++", append(flags, "-o", program, "testdata/main.cc", library)...)
	run(t, "perf", slices.Concat([]string{"record", "-q", "-g", "-N", "-o", data}, programs.Faults(),
		[]string{"--", program, "2", strconv.Itoa(pages)})...)
	return data
}

func load(t *testing.T, data string) *profile.Profile {
	t.Helper()
	r, err := perfdata.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := profile.Load(r, symbols.New(symbols.Options{}), profile.Options{Lines: true, CPUs: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// write writes p to a file and returns that, and what pprof's package reads from it.
func write(t *testing.T, p *profile.Profile) (string, *proto.Profile) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "profile.pb.gz")
	var b bytes.Buffer
	if err := Write(&b, p); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	back, err := proto.ParseData(b.Bytes()) // checks it, too
	if err != nil {
		t.Fatal(err)
	}
	return file, back
}

// stacksOf counts samples by their stack, leaf first, a frame a line.
func stacksOf(p *profile.Profile) map[string]uint64 {
	n := make(map[string]uint64)
	for _, s := range p.Samples {
		var b strings.Builder
		for node := s.Node; node > 0; node = p.Nodes[node].Parent {
			f := &p.Frames[p.Nodes[node].Frame]
			b.WriteString(shown(f))
			if f.Inlined {
				b.WriteString(" (inline)")
			}
			b.WriteByte('\n')
		}
		n[b.String()] += s.Count
	}
	return n
}

// tracesOf does the same with the output of go tool pprof.
func tracesOf(t *testing.T, file string) map[string]uint64 {
	t.Helper()
	n := make(map[string]uint64)
	label := regexp.MustCompile(`^ *(comm|unwind|cpu|pid|tid):  `)
	var stack string
	var count uint64
	begun := false
	for line := range strings.Lines(tool(t, file, "-traces", "-sample_index=samples")) {
		if strings.HasPrefix(line, "-----") {
			if stack != "" {
				n[stack] += count
			}
			stack, begun = "", true
			continue
		}
		if !begun || label.MatchString(line) || strings.TrimSpace(line) == "" {
			continue
		}
		if stack == "" {
			value, err := strconv.ParseUint(strings.TrimSpace(line[:10]), 10, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			count = value
		}
		stack += line[13:]
	}
	if stack != "" {
		n[stack] += count
	}
	return n
}

// TestReadByPprof compares the output of go tool pprof with the profile.
func TestReadByPprof(t *testing.T) {
	p := load(t, recordPages(t))
	file, back := write(t, p)
	sameByPprof(t, p, file)
	if top := tool(t, file, "-top", "-sample_index=samples", "-nodecount=0"); !strings.Contains(top,
		fmt.Sprintf("of %d total", p.Count())) || !strings.Contains(top, "File: program\n") {
		t.Errorf("%d samples of program, pprof says\n%s", p.Count(), top)
	}
	for _, s := range back.Sample {
		if s.NumLabel["pid"] == nil || s.NumLabel["tid"] == nil || s.NumLabel["cpu"] == nil ||
			s.Label["comm"] == nil {
			t.Fatalf("labels %v %v", s.Label, s.NumLabel)
		}
	}
	for _, m := range back.Mapping {
		if name := filepath.Base(m.File); (name == "program" || name == "libspin.so") &&
			(len(m.BuildID) != 40 || !m.HasFunctions || !m.HasFilenames || !m.HasLineNumbers || !m.HasInlineFrames) {
			t.Errorf("mapping %+v", m)
		}
	}
}

// TestClockReadByPprof has a recording by the clock, at 999 Hz.
func TestClockReadByPprof(t *testing.T) {
	p := load(t, filepath.Join(recordings.Place(t, "halves"), "halves.data"))
	file, back := write(t, p)
	sameByPprof(t, p, file)
	var time int64
	for _, s := range back.Sample {
		time += s.Value[1]
	}
	const period = int64(1e9) / 999
	if back.DefaultSampleType != "cpu" || back.SampleType[1].Unit != "nanoseconds" || back.Period != period ||
		time != int64(p.Count())*back.Period {
		t.Errorf("default %s, %d ns of %d samples, period %d", back.DefaultSampleType, time, p.Count(), back.Period)
	}
}

// sameByPprof compares the stacks that go tool pprof finds in a file with those of the profile.
func sameByPprof(t *testing.T, p *profile.Profile, file string) {
	t.Helper()
	want, have := stacksOf(p), tracesOf(t, file)
	if maps.Equal(want, have) && len(want) > 0 {
		return
	}
	for s, n := range want {
		if have[s] != n {
			t.Errorf("%d samples, pprof says %d:\n%s", n, have[s], s)
		}
	}
	t.Fatalf("%d stacks, pprof has %d", len(want), len(have))
}

// TestSourceAndAssembly lets pprof find source and machine code of two images that have the same virtual
// addresses.
func TestSourceAndAssembly(t *testing.T) {
	p := load(t, recordPages(t))
	file, _ := write(t, p)
	for _, c := range []struct{ function, inlined, source, line string }{
		{"hash", "mix<long unsigned int>", "main.cc", "x ^= x << 13;"},
		{"library_spin", "library_spin", "library.c", "sink[i % 60][0] = i;"},
	} {
		var self, all uint64 // samples in the inlined function, and in the function with all that is inlined there
		for _, s := range p.Samples {
			if p.Frames[p.Nodes[s.Node].Frame].Name == c.inlined {
				self += s.Count
			}
			node := s.Node
			for p.Frames[p.Nodes[node].Frame].Inlined {
				node = p.Nodes[node].Parent
			}
			if p.Frames[p.Nodes[node].Frame].Name == c.function {
				all += s.Count
			}
		}
		list := tool(t, file, "-sample_index=samples", "-list", "^"+regexp.QuoteMeta(c.inlined)+"$")
		if self != pages || !strings.Contains(list, c.line) ||
			!regexp.MustCompile(fmt.Sprintf(`(?m)^ +%d +\d+ \(flat, cum\)`, self)).MatchString(list) {
			t.Errorf("%d samples of %s:\n%s", self, c.inlined, list)
		}

		html := filepath.Join(t.TempDir(), "list.html")
		tool(t, file, "-sample_index=samples", "-output", html, "-weblist", "^"+c.function+"$")
		page, err := os.ReadFile(html)
		if err != nil {
			t.Fatal(err)
		}
		instructions := make(map[string]uint64)
		var sum uint64
		for _, m := range regexp.MustCompile(
			` (\d+) +\d+ +([0-9a-f]+): +[A-Z]+ .*<span class=unimportant>`+c.source).FindAllSubmatch(page, -1) {
			n, _ := strconv.ParseUint(string(m[1]), 10, 64)
			sum += n
			instructions[string(m[2])] = n
		}
		if sum != all {
			t.Errorf("%s: %d of %d samples are at instructions %v:\n%s", c.function, sum, all, instructions,
				page[max(0, len(page)-4000):])
		}
		if asm := tool(t, file, "-sample_index=samples", "-disasm", c.function); !strings.Contains(asm,
			"ROUTINE ======================== "+c.function+"\n") {
			t.Errorf("disassembly:\n%s", asm)
		}
	}
}
