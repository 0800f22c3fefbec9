package compare_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unspool/capture/live"
	"unspool/capture/profile"
	"unspool/capture/recorded"
	"unspool/capture/verdict/compare"
	"unspool/dwarfcfi"
	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// regSP is the DWARF number of RSP.
const regSP = 7

// TestWithFramePointers records a program in which all code has frame pointers, and one that is built as in
// distributions. The only frames missed are callers of functions that have not set up their frame pointer
// yet, have restored the caller's, or have none as they call nothing.
func TestWithFramePointers(t *testing.T) {
	for _, b := range []struct {
		name  string
		flags []string
		same  float64 // percent
	}{
		{"everywhere", everywhere, 99},
		{"as distributions build", withFP, 1},
	} {
		t.Run(b.name, func(t *testing.T) {
			c := run(t, buildProgram(t, "workload", b.flags...))
			c.wants(t, compare.Same, b.same)
			c.agrees(t)
			for i := range c.Groups {
				g := &c.Groups[i]
				if g.Class == compare.Same {
					continue
				}
				leaf := c.stack(c.DWARF, g, g.DWARF)[0]
				f := &c.DWARF.Frames[leaf]
				row, ok := c.row(leaf)
				if !ok || g.Class != compare.LeafCaller || row.CFA.Kind != dwarfcfi.CFARegister || row.CFA.Reg != regSP {
					t.Errorf("%d samples, %s: in %s at %#x the CFA is computed from %d", g.Count, g.Class, f.Name, f.PC,
						row.CFA.Reg)
				}
			}
		})
	}
}

// TestAStackCountsOnceForAnImageWithoutCFI records a program of which no code has CFI, and that has several frames on
// each stack: that is so in all samples, and not in more.
func TestAStackCountsOnceForAnImageWithoutCFI(t *testing.T) {
	need(t, "objcopy")
	program := filepath.Join(t.TempDir(), "workload")
	strip := exec.Command("objcopy", "-R", ".eh_frame", "-R", ".debug_frame", buildProgram(t, "workload",
		append(everywhere[:len(everywhere):len(everywhere)], "-fno-asynchronous-unwind-tables")...), program)
	if out, err := strip.CombinedOutput(); err != nil {
		t.Fatalf("objcopy: %v\n%s", err, out)
	}
	c := run(t, program)
	found := c.Lint(c.sym)
	if len(found) != 1 || found[0].Flaw != compare.NoTable || found[0].Samples != c.Samples {
		t.Errorf("%+v, of %d samples", found, c.Samples)
	}
}

// TestWithoutFramePointers records the same program without frame pointers: it is to blame.
func TestWithoutFramePointers(t *testing.T) {
	program := buildProgram(t, "workload", "-fomit-frame-pointer")
	c := run(t, program)
	count := c.byClass()
	if lost := c.Samples - count[compare.Same]; lost*10 < c.Samples*9 {
		t.Errorf("%d of %d samples are the same", count[compare.Same], c.Samples)
	}
	if n := count[compare.LeafCaller] + count[compare.Middle] + count[compare.Early] + count[compare.Astray] +
		count[compare.Same]; n != c.Samples {
		t.Errorf("%d of %d samples are in classes of complete stacks", n, c.Samples)
	}
	for i := range c.Groups {
		g := &c.Groups[i]
		if g.Class == compare.Same {
			continue
		}
		if b := c.blamedAt(g); b < 0 || c.DWARF.Images[c.DWARF.Frames[b].Image].Path != program {
			t.Errorf("%d samples, %s: frame %d is blamed", g.Count, g.Class, b)
		}
	}
	_, images := c.Blames(c.sym)
	if len(images) != 1 || images[0].Image.Path != program ||
		images[0].Samples != c.Samples-count[compare.Same] {
		t.Errorf("%+v are to blame", images)
	}
}

// agrees compares the kernel's own chains with the walk that was repeated on the copies.
func (c *compared) agrees(t *testing.T) {
	t.Helper()
	if c.Checked*100 < c.Samples*99 || c.Agreed*1000 < c.Checked*999 {
		t.Errorf("the kernel's chain agrees in %d of %d, of %d samples", c.Agreed, c.Checked, c.Samples)
	}
}

// Test32Bit records the program with frame pointers as one of 32 bits, whose frames the kernel follows in
// words of four bytes.
func Test32Bit(t *testing.T) {
	programs.NeedMode(t, "-m32", "gcc")
	c := run(t, buildProgram(t, "workload", append([]string{"-m32", "-fno-pie"}, everywhere...)...))
	c.wants(t, compare.Same, 98)
	c.agrees(t)
}

// TestSignalHandler records a running signal handler. From the code that the handler returns to, frame
// pointers lead to the caller of the function that the signal has interrupted.
func TestSignalHandler(t *testing.T) {
	c := run(t, programs.Build(t, "signal", withFP...), programs.Times(touches))
	c.agrees(t)
	samples, missed := 0, 0
	for i := range c.Groups {
		g := &c.Groups[i]
		dwarf, fp := c.stack(c.DWARF, g, g.DWARF), c.stack(c.FP, g, g.FP)
		if c.DWARF.Frames[dwarf[0]].Name != "signal_leaf" {
			continue
		}
		samples += int(g.Count)
		if strings.Contains(c.names(dwarf), " __restore_rt signal_interrupted signal_outer") &&
			strings.Contains(c.names(fp), " __restore_rt signal_outer") {
			missed += int(g.Count)
		}
	}
	t.Logf("in %d of %d samples the interrupted function is missed", missed, samples)
	if samples != touches || missed != samples {
		t.Errorf("in %d of %d samples the interrupted function is missed", missed, samples)
		c.examples(t, 3)
	}
}

// TestPython records the page faults of a Python, which are all over it and the C library: neither has frame
// pointers.
func TestPython(t *testing.T) {
	const python = "/usr/bin/python3"
	need(t, python)
	c := record(t, live.Options{RingPages: 64 << 20 / os.Getpagesize(), Command: []string{python, "-ISc",
		"sorted(str(i) for i in range(1000))"}})
	c.agrees(t)
	c.blames(t, "python3.", 50)
}

// TestMachinePythonWithoutFramePointers records Debian's python3, which has no frame pointers, and whose C
// library has none either.
func TestMachinePythonWithoutFramePointers(t *testing.T) {
	lane.Machine(t, 0.95)
	const python = "/usr/bin/python3"
	need(t, python)
	c := recordTimed(t, live.Options{Command: []string{python, "-c", `
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
while True:
    fib(18)
    sorted(str(i) for i in range(1000))
`}})
	c.agrees(t)
	count := c.byClass()
	if same := count[compare.Same]; same*10 > c.Samples {
		t.Errorf("%d of %d samples are the same", same, c.Samples)
	}
	c.blames(t, "python3.", 80)
	c.examples(t, 2)
}

// blames checks that an image's share of the stacks that frame pointers lose is not less than percent.
func (c *compared) blames(t *testing.T, image string, percent uint64) {
	t.Helper()
	var of, all uint64
	_, images := c.Blames(c.sym)
	for _, b := range images {
		t.Logf("blame: %d samples, %s: %s", b.Samples, b.Image.Path, b.Cause)
		all += b.Samples
		if strings.Contains(filepath.Base(b.Image.Path), image) {
			of += b.Samples
		}
	}
	if of*100 < all*percent {
		t.Errorf("%s is to blame for %d of %d", image, of, all)
	}
}

// goProgram spends its time below a chain of calls, in assembly, the garbage collector and system calls. The
// array is in each frame of work, but only used in the innermost: so there are pages on the stack that were
// never touched, at which copies end and the kernel's walk does not.
const goProgram = `package main

import (
	"crypto/sha256"
	"sort"
	"strings"
	"syscall"
)

var sink any

//go:noinline
func work(depth int) int {
	if depth > 0 {
		return work(depth-1) + 1
	}
	s := make([]string, 300)
	for i := range s {
		s[i] = strings.Repeat("x", 300-i)
	}
	sort.Strings(s)
	sum := sha256.Sum256(make([]byte, 1<<14))
	sink = s
	return int(sum[0]) + syscall.Getppid()
}

func main() {
	for {
		work(20)
	}
}
`

// TestMachineGoWithFramePointers records a Go program. Its functions have frame pointers, except leaf
// functions and assembly without a frame, in which it spends much of its time.
func TestMachineGoWithFramePointers(t *testing.T) {
	lane.Machine(t, 0.95)
	need(t, "go")
	dir := t.TempDir()
	for name, text := range map[string]string{"main.go": goProgram, "go.mod": "module program\n\ngo 1.22\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", "program")
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	c := recordTimed(t, live.Options{Command: []string{filepath.Join(dir, "program")}})
	c.agrees(t)
	c.wants(t, compare.Same, 30)
	c.blames(t, "program", 90)
	count := c.byClass()
	if n := count[compare.Same] + count[compare.LeafCaller] + count[compare.Cut]; n*100 < c.Samples*98 {
		t.Errorf("%d of %d samples are the same, miss the leaf's caller or are cut", n, c.Samples)
	}
	leaves := make(map[string]uint64)
	for i := range c.Groups {
		if g := &c.Groups[i]; g.Class == compare.LeafCaller {
			leaves[c.DWARF.Frames[c.stack(c.DWARF, g, g.DWARF)[0]].Name] += g.Count
		}
	}
	t.Logf("leaves whose caller is missed: %v", leaves)
}

// TestMachineNodeWithFramePointers records generated code, which has frame pointers, in a program that has none.
func TestMachineNodeWithFramePointers(t *testing.T) {
	lane.Machine(t, 0.95)
	need(t, "node")
	c := recordTimed(t, live.Options{Duration: 2 * time.Second, Command: []string{"node", "-e", `
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) }
for (;;) { fib(20); [...Array(300).keys()].map(String).sort() }
`}})
	c.agrees(t)
	generated, kept := 0, 0
	for i := range c.Groups {
		g := &c.Groups[i]
		dwarf, fp := c.stack(c.DWARF, g, g.DWARF), c.stack(c.FP, g, g.FP)
		if c.DWARF.Frames[dwarf[0]].Kind != profile.JIT || len(dwarf) < 3 {
			continue
		}
		generated += int(g.Count)
		if len(fp) > 1 && fp[1] == dwarf[1] {
			kept += int(g.Count)
		}
	}
	t.Logf("in %d of %d samples of generated code its caller follows by BP", kept, generated)
	if generated < 20 || kept*100 < generated*90 {
		t.Errorf("in %d of %d samples of generated code its caller follows by BP", kept, generated)
	}
	c.examples(t, 5)
}

// TestConvertedPairs compares a recording by perf, which has no user callchains: with one job, with two, and
// after the program, and with it its CFI, is gone.
func TestConvertedPairs(t *testing.T) {
	need(t, "perf")
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	for _, c := range []struct {
		name    string
		flags   []string
		class   compare.Class
		share   float64
		without compare.Class // when the program is gone
	}{
		{"with frame pointers", everywhere, compare.Same, 98, compare.DWARFStops},
		{"without", []string{"-fomit-frame-pointer"}, compare.Early, 80, compare.BothStop},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := buildProgram(t, "workload", c.flags...)
			data := filepath.Join(t.TempDir(), "perf.data")
			var one *compared
			perf := lane.UserPerf(append([]string{"record", "-q", "-m", "16M", "-B", "-N", "--call-graph", "dwarf,8192",
				"-o", data}, append(programs.Faults(), "--", program)...)...)
			if out, err := perf.CombinedOutput(); err != nil {
				t.Skipf("perf record: %v\n%s", err, out)
			}
			one = convert(t, data, 1)
			one.wants(t, c.class, c.share)
			if two := convert(t, data, 2); two.byClass() != one.byClass() {
				t.Errorf("%v in two lanes, %v in one", two.byClass(), one.byClass())
			}
			if err := os.Remove(program); err != nil {
				t.Fatal(err)
			}
			convert(t, data, 1).wants(t, c.without, 90)
		})
	}
}

// convert converts a recording into one with pairs, without a cache of files, and compares.
func convert(t *testing.T, data string, jobs int) *compared {
	t.Helper()
	dir := t.TempDir()
	o := recorded.Options{Input: data, Output: filepath.Join(dir, "pairs.data"), Cache: dir,
		MaxStack: 2048, Pairs: true, Jobs: jobs}
	if _, err := recorded.Convert(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	c := load(t, o.Output)
	if c.Checked != 0 {
		t.Errorf("%d chains of the kernel's", c.Checked)
	}
	return c
}

// TestMachineAllCPUsLoseNothing records two busy CPUs, with rings that hold one second of the largest copies.
func TestMachineAllCPUsLoseNothing(t *testing.T) {
	lane.Machine(t, 0.9)
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	program := programs.Build(t, "plain", withFP...)
	for range 2 {
		programs.Start(t, program, 60)
	}
	c := recordTimed(t, live.Options{AllCPUs: true, RaisePriority: true, RingPages: 64 << 20 / os.Getpagesize(),
		Duration: 2 * time.Second})
	lost := c.outcome.Stats.Lost
	lane.Figure(t, "%d lost of %d", lost, c.Samples)
	if lost > 0 || c.Samples < enough {
		t.Errorf("%d records lost", lost)
	}
	c.agrees(t)
}
