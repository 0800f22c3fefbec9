package counts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"unspool/capture/output/human"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/vmas"
)

func TestSummarySaysWhatToDo(t *testing.T) {
	s := Stats{Samples: 2000, User: 1000, Frames: 9000, Duration: time.Second, Lost: 3, Written: 5000,
		StackCopied: 1 << 20}
	s.Ended[unwind.Root], s.Guessed = 990, 40
	s.Ended[unwind.DumpTooShort], s.Cut[TooDeep], s.Cut[Gap], s.Cut[NoCopy] = 12, 7, 3, 2
	s.Ended[unwind.NoCFI] = 3
	tr := NewTrouble()
	for range 3 {
		tr.NoteEnd(unwind.NoCFI, "/usr/lib/libjit.so")
	}
	var b strings.Builder
	WriteSummary(&b, &s, tr, Settings{StackSize: 32768, MaxStack: 2048}, "perf.data")
	for _, want := range []string{
		"2,000 samples",
		"99.0 % of the user stacks are complete (990 of 1,000): 95.0 % by CFI alone, 4.0 % with guessed",
		"--stack-size 65528",
		"0.5 %  gap in the copy", "libjit.so (3)", "3 records were lost", "(-m)", "perf.data",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the summary does not say %q:\n%s", want, &b)
		}
	}
}

// Each reason but Root says what can be done, in its own words.
func TestEveryReasonHasARemedy(t *testing.T) {
	said := map[string]unwind.Reason{}
	for r, text := range remedies {
		if other, twice := said[text]; twice || (text == "") != (unwind.Reason(r) == unwind.Root) {
			t.Errorf("%s: %q, as %s has", unwind.Reason(r), text, other)
		}
		said[text] = unwind.Reason(r)
	}
}

// TestAdviceOnDeepStacks has what the summary says of stacks that are deeper than the copy: where the rest is not read
// when they are sampled, more may be copied, and where it is, real-time priority may help.
func TestAdviceOnDeepStacks(t *testing.T) {
	const read = "the rest could not be read when they were sampled"
	for _, c := range []struct {
		limits Settings
		want   string
	}{
		{Settings{StackSize: 16 << 10}, "copy more of the stack: --stack-size 32768\n"},
		{Settings{StackSize: 32 << 10}, "copy more of the stack: --stack-size 65528\n"},
		{Settings{StackSize: perfring.MaxStackSize}, "deeper than the kernel can copy\n"},
		{Settings{StackSize: 16 << 10, ReadsRest: true, RealTime: true}, read + "\n"},
		{Settings{StackSize: perfring.MaxStackSize, ReadsRest: true, RealTime: true}, read + "\n"},
		{Settings{StackSize: perfring.MaxStackSize, ReadsRest: true}, read + ": real-time priority reads more of " +
			"them (as root, with CAP_SYS_NICE, or `ulimit -r 1`)\n"},
	} {
		s := Stats{Samples: 10, User: 10}
		s.Ended[unwind.DumpTooShort], s.Cut[TooDeep] = 10, 10
		var b strings.Builder
		c.limits.MaxStack = 9
		WriteSummary(&b, &s, NewTrouble(), c.limits, "")
		if !strings.Contains(b.String(), c.want) {
			t.Errorf("%+v: no %q in\n%s", c.limits, c.want, &b)
		}
	}
}

// TestSummaryOfNamesThatAreMadeToMislead has a path of 4 KB with marks that terminals obey, and a CPU
// that was offline.
func TestSummaryOfNamesThatAreMadeToMislead(t *testing.T) {
	path := "/tmp/\u009b31m\u202e\x1b]0;" + strings.Repeat("long/", 800) + "end"
	s := Stats{Samples: 10, User: 10, OfflineCPUs: []int{1, 3}}
	s.Ended[unwind.NoImage], s.Ended[unwind.NoCFI] = 5, 5
	tr := NewTrouble()
	tr.NoteEnd(unwind.NoImage, path)
	tr.NoteEnd(unwind.NoCFI, "[\u202e"+strings.Repeat("x", 4000))
	tr.NoteFile(path, fmt.Errorf("%s: not found", path))
	var b strings.Builder
	WriteSummary(&b, &s, tr, Settings{StackSize: 32768, MaxStack: 2048}, path)
	WriteFiles(&b, tr)
	for line := range strings.Lines(b.String()) {
		if n := human.Columns(line); n > 400 {
			t.Errorf("a line of %d columns", n)
		}
		if text := strings.TrimSuffix(line, "\n"); human.Clean(text) != text {
			t.Errorf("%q is obeyed by terminals", line)
		}
	}
	for _, want := range []string{"end: not found", "CPU 1 3\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not said:\n%s", want, &b)
		}
	}
}

func TestShareIsNeverRoundedToAll(t *testing.T) {
	for _, c := range []struct {
		n, total uint64
		want     string
	}{
		{1000, 1000, "100 %"}, {99999, 100000, "> 99.9 %"}, {1, 100000, "< 0.1 %"}, {0, 10, "0.0 %"},
		{1, 3, "33.3 %"},
	} {
		if got := human.Percent(c.n, c.total); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.n, c.total, got, c.want)
		}
	}
}

// TestSummaryOfWhatWasNotRead expects in the summary the processes that were not read, and what was forgotten for
// want of room.
func TestSummaryOfWhatWasNotRead(t *testing.T) {
	stats := Stats{Samples: 3, User: 3, LeftOut: 1015, Early: 2,
		Forgotten: vmas.Forgotten{Processes: 1234, Threads: 5678, Mappings: 9012}}
	var b strings.Builder
	WriteSummary(&b, &stats, NewTrouble(), Settings{StackSize: 32768, MaxStack: 2048}, "")
	for _, want := range []string{"idle processes that were not read", ": 1,015\n", "2 samples were taken while",
		"forgotten: 1,234,", "the names of 5,678 were not kept", "forgotten: 9,012,"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the summary does not say %q:\n%s", want, &b)
		}
	}
	b.Reset()
	if err := stats.WriteJSON(&b); err != nil || !strings.Contains(b.String(),
		`"unread":{"processes":1015,"samples":2},"forgotten":{"processes":1234,"threads":5678,"mappings":9012}`) {
		t.Errorf("%s, %v", &b, err)
	}
}
