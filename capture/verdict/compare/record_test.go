package compare_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unspool/capture/live"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/capture/verdict/compare"
	"unspool/dwarfcfi"
	"unspool/perfring"
	"unspool/testdata/programs"

	"golang.org/x/sys/unix"
)

// compared is a recording with pairs, and its comparison.
type compared struct {
	*compare.Comparison
	sym     *symbols.Symbolizer
	path    string
	outcome live.Outcome
}

func buildProgram(t *testing.T, name string, flags ...string) string {
	t.Helper()
	return programs.BuildFile(t, filepath.Join("testdata", name+".c"), slices.Concat([]string{
		"-nostdlib", "-static", "-fno-stack-protector",
		"-fcf-protection=none", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-Wl,--build-id=sha1",
	}, flags)...)
}

// touches is how often each program is where it is looked at: TIMES in testdata/start.h.
const touches = 40

// withFP are the flags with which distributions build for frame pointers. GCC still omits the frame in some
// leaf functions and paths; everywhere are flags with which these have one, too.
var (
	withFP     = []string{"-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"}
	everywhere = append(withFP[:2:2], "-fno-shrink-wrap", "-DEVERYWHERE")
)

func need(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

// enough is how many samples a recording by the clock must have at least.
const enough = 100

// record records page faults in user mode, with pairs, and compares.
func record(t *testing.T, o live.Options) *compared {
	t.Helper()
	o.Events = []perfring.Event{{Name: "page-faults", Type: unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_PAGE_FAULTS, ExcludeKernel: true, ExcludeHV: true}}
	o.Period = 1
	if o.StackSize == 0 {
		o.StackSize = 8192
	}
	c := recordOnce(t, o)
	if lost := c.outcome.Stats.Lost; lost > 0 {
		t.Errorf("%d records lost", lost)
	}
	return c
}

// recordTimed records by the clock.
func recordTimed(t *testing.T, o live.Options) *compared {
	t.Helper()
	o.Freq = 999
	if o.Duration == 0 {
		o.Duration = 700 * time.Millisecond
	}
	return recordOnce(t, o)
}

func recordOnce(t *testing.T, o live.Options) *compared {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	if o.StackSize == 0 {
		o.StackSize = 65528
	}
	o.MaxStack, o.Pairs = 2048, true
	o.Output = filepath.Join(t.TempDir(), "pairs.data")
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	o.CommandStdout = null
	out, err := live.Record(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := load(t, o.Output)
	c.outcome = out
	if out.Stats.Lost > 0 {
		t.Logf("%d records lost", out.Stats.Lost)
	}
	return c
}

// load compares a recording with pairs, and checks its content.
func load(t *testing.T, path string) *compared {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := &compared{sym: symbols.New(symbols.Options{}), path: path}
	times, err := profile.NewTimeline()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { times.Close() })
	if c.Comparison, err = compare.Load(r, c.sym, profile.Options{Timeline: times}); err != nil {
		t.Fatal(err)
	}
	c.check(t)
	onlyCode(t, path)
	return c
}

// check checks what is true for every comparison, and logs it.
func (c *compared) check(t *testing.T) {
	t.Helper()
	for _, p := range []*profile.Profile{c.DWARF, c.FP} {
		if err := p.CheckValid(); err != nil {
			t.Error(err)
		}
		if p.Count() != c.Samples {
			t.Errorf("a profile of %d samples, of %d", p.Count(), c.Samples)
		}
	}
	timed := uint64(0)
	for task := range c.Tasks {
		if err := c.Times.Each(int32(task), func(p profile.Point) error {
			if at := p.Time - c.DWARF.First; at > uint64(c.DWARF.Duration) {
				t.Errorf("a sample at %d of %d ns", at, c.DWARF.Duration)
			}
			timed++
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	if timed != c.Samples {
		t.Errorf("%d samples with a time, of %d", timed, c.Samples)
	}
	for _, problem := range c.DWARF.Problems {
		t.Log(problem)
	}
	var sum uint64
	for i := range c.Groups {
		g := &c.Groups[i]
		sum += g.Count
		dwarf, fp := c.stack(c.DWARF, g, g.DWARF), c.stack(c.FP, g, g.FP)
		switch {
		case len(dwarf) == 0 || len(fp) == 0:
			t.Errorf("a stack without frames: %+v", *g)
		case g.Class == compare.Same && (g.Parted != -1 || g.Missed != 0 || !slices.Equal(dwarf, fp)):
			t.Errorf("the same, and not: %+v\n%s\n%s", *g, c.names(dwarf), c.names(fp))
		case g.Parted == 0 && g.Class != compare.BothStop || g.Parted > len(dwarf) || g.Missed >= len(dwarf):
			t.Errorf("%d frames: %+v", len(dwarf), *g)
		}
	}
	if sum != c.Samples {
		t.Errorf("the classes come to %d samples of %d", sum, c.Samples)
	}
	count := c.byClass()
	var all []string
	for class, n := range count {
		if n > 0 {
			all = append(all, compare.Class(class).Key()+" "+percent(n, c.Samples))
		}
	}
	t.Logf("%d samples: %s; the kernel's chain agrees in %d of %d; %d others", c.Samples,
		strings.Join(all, ", "), c.Agreed, c.Checked, c.Others)
}

func percent(n, of uint64) string { return fmt.Sprintf("%.2f %%", float64(n)*100/float64(max(of, 1))) }

func (c *compared) byClass() (count [compare.NumClasses]uint64) {
	for i := range c.Groups {
		count[c.Groups[i].Class] += c.Groups[i].Count
	}
	return count
}

// stack is the user part of a stack of a group: frames, leaf first.
func (c *compared) stack(p *profile.Profile, g *compare.PairGroup, leaf int32) (frames []int32) {
	for n := leaf; n > 0; n = p.Nodes[n].Parent {
		frames = append(frames, p.Nodes[n].Frame)
	}
	return frames[min(g.Kernel, len(frames)):]
}

func (c *compared) names(frames []int32) string {
	var b strings.Builder
	for _, f := range frames {
		b.WriteString(" " + c.DWARF.Frames[f].Name)
	}
	return b.String()
}

// wants checks that the share of a class is not less than percent.
func (c *compared) wants(t *testing.T, class compare.Class, percent float64) {
	t.Helper()
	n := c.byClass()[class]
	if c.Samples < 2*touches || float64(n) < percent/100*float64(c.Samples) {
		t.Errorf("%d of %d samples are %q, want %v %%", n, c.Samples, class, percent)
		c.examples(t, 3)
	}
}

// examples logs the most frequent groups.
func (c *compared) examples(t *testing.T, most int) {
	t.Helper()
	for i := range min(most, len(c.Groups)) {
		g := &c.Groups[i]
		t.Logf("%d samples: %s, parted %d, missed %d, end %v\nDWARF%s\nFP   %s", g.Count, g.Class, g.Parted, g.Missed,
			g.End, c.names(c.stack(c.DWARF, g, g.DWARF)), c.names(c.stack(c.FP, g, g.FP)))
	}
}

// row is the row of the CFI at a frame.
func (c *compared) row(frame int32) (row dwarfcfi.Row, ok bool) {
	f := &c.DWARF.Frames[frame]
	im := &c.DWARF.Images[f.Image]
	cfi := c.sym.Image(im.Path, im.BuildID, im.File).CFI()
	return row, cfi != nil && f.PC != 0 && cfi.Row(f.PC, &row) == nil
}

// blamedAt is the frame whose caller frame pointers miss.
func (c *compared) blamedAt(g *compare.PairGroup) int32 {
	frames := c.stack(c.DWARF, g, g.DWARF)
	if g.Parted < 1 {
		return -1
	}
	return frames[g.Parted-1]
}

func run(t *testing.T, command ...string) *compared {
	t.Helper()
	return record(t, live.Options{Command: command})
}

// onlyCode checks that every word of the recorded user stacks is an address in executable memory: other words
// that frame pointers lead to are data of the program.
func onlyCode(t *testing.T, path string) {
	t.Helper()
	r, err := perfdata.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	type extent struct{ start, end uint64 }
	code := make(map[extent]bool)
	isCode := func(ip uint64) bool {
		for e := range code {
			if ip >= e.start && ip <= e.end { // the end is included, as code may end with a call
				return true
			}
		}
		return false
	}
	known := make(map[uint64]bool)
	bad := 0
	err = r.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
		switch rec.Type() {
		case perfring.RecordMmap2:
			var m perfring.Mmap2
			if err := perfring.DecodeMmap2(f.Correct(rec, new([]byte)), &m); err != nil {
				return err
			}
			if m.Prot&unix.PROT_EXEC != 0 {
				code[extent{m.Addr, m.Addr + m.Len}] = true
			}
		case perfring.RecordSample:
			var s perfring.Sample
			if err := f.Sample(rec, &s); err != nil {
				return err
			}
			_, walked := perfdata.End(s.Misc)
			user := userPart(s.Callchain)
			if !walked && len(user) > 0 {
				user = user[:len(user)-1] // the last entry of a pair is not an address
			}
			for i, ip := range user {
				if known[ip] || !walked && (ip == 0 || ip == perfdata.NotCode) || walked && i == 0 {
					continue
				}
				if known[ip] = isCode(ip); !known[ip] {
					bad++
					if bad < 10 {
						t.Errorf("%s: %#x is recorded as frame %d and is no address of code", path, ip, i)
					}
				}
			}
			if len(s.Stack) > 0 {
				bad++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if bad > 0 {
		t.Errorf("%d words or stacks are recorded that are no addresses of code", bad)
	}
}

// userPart is the part of a callchain behind PERF_CONTEXT_USER.
func userPart(chain perfring.Words) (user []uint64) {
	for i := range chain.Len() {
		if user != nil {
			user = append(user, chain.At(i))
		} else if chain.At(i) == perfring.ContextUser {
			user = []uint64{}
		}
	}
	return user
}
