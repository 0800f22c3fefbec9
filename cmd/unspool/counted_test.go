package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unspool/capture/profile"
	"unspool/testdata/programs"
)

// Counted recordings: a program takes a page fault a known number of times at the end of its chain, and each is a
// sample. So it is known beforehand which stacks there are, and how many, however busy the machine is.

// counted is how often a program is at the end of its chain in a counted recording: few enough for the smallest
// rings, so that none is lost however late they are drained.
const counted = 20

// recordCounted records the program of proc, which is attached to: see [programs.StartCounted].
func recordCounted(t testing.TB, proc *programs.Process, options ...string) recording {
	t.Helper()
	return recordControlled(t, proc.Continue, slices.Concat(programs.Faults(),
		[]string{"-p", strconv.Itoa(proc.Process.Pid)}, options)...)
}

// recordCountedCommand records a program from its first instruction on, and returns its chain, too.
func recordCountedCommand(t testing.TB, path string, args ...string) (recording, programs.Chain) {
	t.Helper()
	r := record(t, slices.Concat(programs.Faults(), []string{"--", path, programs.Times(counted)}, args)...)
	chain, err := programs.ParseChain(firstLine(r.stdout))
	if err != nil {
		t.Fatal(err)
	}
	return r, chain
}

// recordControlled is record for a recording of processes that are there. Once it takes samples, begun is called; it
// ends when they do.
func recordControlled(t testing.TB, begun func(), args ...string) recording {
	t.Helper()
	s := startRecording(t, args...)
	begun()
	return s.end(t)
}

// matchCounted compares the stacks of a counted recording with a chain. Every stack at the chain's end has to match,
// and there are as many as the program was there.
func matchCounted(t testing.TB, r recording, chain programs.Chain, p programs.Program) {
	t.Helper()
	matchNamed(t, r, ownProfile(t, r.path), chain, p)
}

// matchNamed is matchCounted for a profile of the recording whose names come from elsewhere.
func matchNamed(t testing.TB, r recording, own *profile.Profile, chain programs.Chain, p programs.Program) {
	t.Helper()
	end := cmp.Or(p.Counts, chain.Leaf())
	var matched, truncated int
	for _, s := range own.Samples {
		stack := userStack(own, s.Node)
		if len(stack) == 0 || function(stack[0]) != end {
			continue
		}
		err := chain.Match(stack)
		switch {
		case err == nil:
			matched += int(s.Count)
			continue
		case p.String() == "signal-other" && isTruncated(chain, stack):
			// The interrupted frames are on another stack than the one that was copied.
			truncated += int(s.Count)
			continue
		}
		t.Errorf("%d samples: %.600s\n  all frames, leaf first: %.600s", s.Count, err, describe(own, s.Node))
	}
	if matched+truncated != counted {
		t.Errorf("%d stacks match the chain, of %d that there are:\n%s", matched+truncated, counted, r.stderr)
	}
	if st := &r.stats; st.Samples.Lost > 0 || int(st.Unwind.Complete+uint64(truncated)) > int(st.Samples.User) {
		t.Errorf("of %+v stacks ended: %v", st.Samples, st.Unwind.Ended)
	}
}

// function is a symbol without its parameters and the compiler's marks.
func function(symbol string) string {
	name, _, _ := strings.Cut(symbol, "(")
	name, _, _ = strings.Cut(name, ".")
	return strings.TrimSpace(name)
}

// whollyComplete expects every stack to reach its root.
func (r *recording) whollyComplete(t testing.TB) {
	t.Helper()
	if n := r.stats.Samples.User - r.stats.Unwind.Cut["no_copy"]; r.stats.Unwind.Complete != n || n == 0 {
		t.Errorf("of %d stacks ended: %v\n%s", n, r.stats.Unwind.Ended, r.stderr)
	}
}
