package compare

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"unspool/capture/profile"
)

// Groups of counted by what frame pointers make of them.
const (
	sameGroup, falseGroup, earlyGroup = 0, 1, 2
)

// sampled has samples of counted one after another, each of a group and a task, a millisecond apart.
func sampled(t *testing.T, groups []int32, task func(i int) int32) *Comparison {
	t.Helper()
	c := counted()
	times, err := profile.NewTimeline()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { times.Close() })
	const start = 5e9
	c.Tasks, c.Times, c.Samples = nil, times, uint64(len(groups))
	for i := range c.Groups {
		c.Groups[i].Count = 0
	}
	c.DWARF.First, c.DWARF.Duration = start, time.Duration(len(groups)-1)*time.Millisecond
	tasks := []TaskName{{"server", "worker"}, {"server", "writer"}, {"tool", "tool"}}
	for i, g := range groups {
		c.Groups[g].Count++
		one := profile.Sample{Thread: task(i), Node: g, CPU: -1, Period: 1}
		c.Tasks = tasks[:max(len(c.Tasks), int(one.Thread)+1)]
		if err := times.Add(start+uint64(i)*uint64(time.Millisecond), &one); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func samplesOf(t *testing.T, c *Comparison) []taskGroup {
	t.Helper()
	samples, err := c.byBlock()
	if err != nil {
		t.Fatal(err)
	}
	return samples
}

func verdictOf(t *testing.T, c *Comparison) *VerdictResult {
	t.Helper()
	_, images := c.blames(func(int32) Cause { return Unexplained })
	return c.verdict(samplesOf(t, c), images, make([]string, len(c.DWARF.Images)))
}

func first(int) int32 { return 0 }

// TestHalfOfTheSamples says the same of every half of many recordings as of the whole, or that it is not enough: all
// intervals that are said overlap. Stacks of a kind come one by one, or in bursts.
func TestHalfOfTheSamples(t *testing.T) {
	said, silent := 0, 0
	for seed := range uint64(40) {
		draw := rand.New(rand.NewPCG(seed, 46))
		n := []int{30, 300, 3000, 12000}[seed%4]
		usable, wrong, burst := draw.Float64(), draw.Float64(), 1+draw.IntN(1+n/1000)
		var groups []int32
		for len(groups) < n {
			g := int32(earlyGroup)
			if draw.Float64() < usable {
				g = sameGroup
			} else if draw.Float64() < wrong {
				g = falseGroup
			}
			for range burst {
				groups = append(groups, g)
			}
		}
		whole := verdictOf(t, sampled(t, groups, first))
		half := func(begin, step, end int) (list []int32) {
			for i := begin; i < end; i += step {
				list = append(list, groups[i])
			}
			return list
		}
		for name, list := range map[string][]int32{
			"the first half": half(0, 1, n/2), "the second half": half(n/2, 1, n), "every second sample": half(0, 2, n),
		} {
			v := verdictOf(t, sampled(t, list, first))
			if !v.Enough {
				silent++
				if !strings.HasPrefix(v.Sentence, "Not enough to say ") || v.Needed <= uint64(len(list)) {
					t.Errorf("seed %d, %s of %d: %d are needed: %s", seed, name, n, v.Needed, v.Sentence)
				}
				continue
			}
			said++
			for _, p := range [][2]PortionResult{{v.Usable, whole.Usable}, {v.False, whole.False}, {v.Reaches, whole.Reaches}} {
				if p[0].Low > p[1].High || p[0].High < p[1].Low {
					t.Errorf("seed %d, %s of %d in bursts of %d:\n%s\n%s", seed, name, n, burst, v.Sentence, whole.Sentence)
				}
			}
		}
	}
	if said < 20 || silent < 20 {
		t.Errorf("%d halves are enough, %d are not", said, silent)
	}
}

// TestSentences has what there is to say of stacks that are all alike, of too few, and of several programs.
func TestSentences(t *testing.T) {
	repeat := func(n int, groups ...int32) (list []int32) {
		for range n {
			list = append(list, groups...)
		}
		return list
	}
	tasks := func(i int) int32 { return int32(i % 3) }
	for _, c := range []struct {
		groups []int32
		task   func(int) int32
		want   string
	}{
		// Wilson's interval of 0 of n goes up to z² / (n + z²), with z² = 6.635.
		{repeat(1000, sameGroup), first, "With frame pointers 100 % (99.3–100) of server's 1,000 stacks are usable, 0 % " +
			"(0–0.7) show a call that never was; with DWARF 100 % (99.3–100) are."},
		{repeat(1000, earlyGroup), first, "With frame pointers 0 % (0–0.7) of server's 1,000 stacks are usable, 0 % " +
			"(0–0.7) show a call that never was; with DWARF 100 % (99.3–100) are."},
		{repeat(2000, sameGroup, falseGroup), tasks, "With frame pointers 50 % (47–53) of 4,000 stacks are usable, 50 % " +
			"(47–53) show a call that never was (most in libz.so.1: unexplained); with DWARF 100 % (99.8–100) " +
			"are."},
		{repeat(3, sameGroup), first, "Not enough to say how many of server's 3 stacks are usable with frame " +
			"pointers: it takes about 670 samples."},
		{repeat(1, sameGroup), first, "Not enough to say how many of server's 1 stack are usable with frame pointers: it " +
			"takes about 670 samples."},
	} {
		v := verdictOf(t, sampled(t, c.groups, c.task))
		if v.Sentence != c.want {
			t.Errorf("%s\nwant %s", v.Sentence, c.want)
		}
	}
}

// TestCauseOfFalse has libz lose most stacks in a prologue, and those that are false in an epilogue.
func TestCauseOfFalse(t *testing.T) {
	var groups []int32
	for range 1000 {
		groups = append(groups, falseGroup, earlyGroup, earlyGroup)
	}
	c := sampled(t, groups, first)
	c.DWARF.Frames[workFrame].Image = c.DWARF.Frames[hashFrame].Image
	_, images := c.blames(func(frame int32) Cause {
		return map[int32]Cause{workFrame: Prologue, hashFrame: Epilogue}[frame]
	})
	if len(images) != 1 || images[0].Samples != 3000 || images[0].Cause != Prologue {
		t.Fatalf("%+v", images)
	}
	v := c.verdict(samplesOf(t, c), images, make([]string, len(c.DWARF.Images)))
	if !strings.Contains(v.Sentence, "(most in libz.so.1: epilogue)") {
		t.Error(v.Sentence)
	}
}

// TestByBlock counts the samples of groups in tasks by time: with 256 samples, two are in each block.
func TestByBlock(t *testing.T) {
	var groups []int32
	for i := range 256 {
		groups = append(groups, []int32{falseGroup, sameGroup}[i/2%2])
	}
	c := sampled(t, groups, func(i int) int32 { return int32(i / 128) })
	var want []taskGroup
	for task := range int32(2) {
		for _, group := range []int32{sameGroup, falseGroup} {
			of := taskGroup{task: task, group: group, samples: 64}
			for block := range 32 {
				at := 64*int(task) + 2*block
				if group == sameGroup {
					at++
				}
				of.blocks = append(of.blocks, blockSamples{uint8(at), 2})
			}
			want = append(want, of)
		}
	}
	if have := samplesOf(t, c); !reflect.DeepEqual(have, want) {
		t.Errorf("%+v, want\n%+v", have, want)
	}
	c.Times = nil
	have := samplesOf(t, c)
	if one := (taskGroup{0, 1, 128, []blockSamples{{0, 128}}}); len(have) != len(c.Groups) ||
		!reflect.DeepEqual(have[1], one) {
		t.Errorf("without times: %+v", have)
	}
}

// TestRowsOfTasks counts samples by program and by thread's name, in three orders.
func TestRowsOfTasks(t *testing.T) {
	// worker: 30 the same. writer: 10 false, each with a frame lost. tool: 5 early, with one.
	var groups, tasks []int32
	for range 5 {
		for i, n := range []int{6, 2, 1} {
			for range n {
				groups = append(groups, []int32{sameGroup, falseGroup, earlyGroup}[i])
				tasks = append(tasks, int32(i))
			}
		}
	}
	c := sampled(t, groups, func(i int) int32 { return tasks[i] })
	type row struct {
		name                   string
		samples, usable, wrong uint64
		lost                   float64
		blame                  string
	}
	worker, writer := row{"worker", 30, 30, 0, 0, ""}, row{"writer", 10, 0, 10, 1, "libz.so.1"}
	tool := row{"tool", 5, 0, 0, 1, "program"}
	server := row{"server", 40, 30, 10, 0.25, "libz.so.1"}
	for order, want := range map[Order][2][]row{
		BySamples:  {{server, tool}, {worker, writer, tool}},
		ByLost:     {{server, tool}, {writer, tool, worker}},
		ByFalse:    {{server, tool}, {writer, worker, tool}},
		ByUnusable: {{server, tool}, {writer, tool, worker}},
	} {
		rows := c.rowsBy(samplesOf(t, c), make([]string, len(c.DWARF.Images)), order)
		for by, want := range want {
			var have []row
			for _, r := range rows[by] {
				have = append(have, row{r.Name, r.Samples, r.Usable.Samples, r.False.Samples, r.Lost, r.Blame})
			}
			if len(have) != len(want) {
				t.Errorf("order %d: %+v, want %+v", order, have, want)
				continue
			}
			for i := range want {
				if have[i] != want[i] {
					t.Errorf("order %d: %+v, want %+v", order, have[i], want[i])
				}
			}
		}
	}
}

// TestBlameShareIsOfAllUnusable has stacks that are not usable and of which nobody is to blame, as they were cut.
func TestBlameShareIsOfAllUnusable(t *testing.T) {
	const cutGroup = 6
	var groups []int32
	for range 10 {
		groups = append(groups, sameGroup, falseGroup, cutGroup, cutGroup, cutGroup)
	}
	c := sampled(t, groups, first)
	c.Groups[cutGroup].Open = false
	if c.Judge(); c.Groups[cutGroup].Class != Cut || c.Groups[cutGroup].Usable != No {
		t.Fatalf("%+v", c.Groups[cutGroup])
	}
	rows := c.rowsBy(samplesOf(t, c), make([]string, len(c.DWARF.Images)), BySamples)
	if r := rows[ByProgram][0]; r.Blame != "libz.so.1" || r.BlameShare != 0.25 {
		t.Errorf("%s: %v", r.Blame, r.BlameShare)
	}
}

func TestRounded(t *testing.T) {
	for _, c := range []struct {
		share     float64
		digits    int
		direction direction
		want      string
	}{
		{0.434, 0, nearest, "43"}, {0.435, 0, down, "43"}, {0.431, 0, up, "44"}, {0.43, 0, down, "43"}, {0.43, 0, up, "43"},
		{0.9994, 1, nearest, "99.9"}, {0.9999, 1, nearest, ">99.9"}, {1, 1, nearest, "100"}, {0.9999, 0, up, "100"},
		{0.0004, 1, nearest, "<0.1"}, {0, 1, nearest, "0"}, {0.0004, 1, down, "0"}, {0.12345, 2, nearest, "12.35"},
	} {
		if got := rounded(c.share, c.digits, c.direction); got != c.want {
			t.Errorf("%v with %d digits: %s, want %s", c.share, c.digits, got, c.want)
		}
	}
}
