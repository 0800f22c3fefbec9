package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"unspool/capture/profile"
	"unspool/testdata/programs"
)

// A chainBuild is one way to compile a program that knows its chain.
type chainBuild struct {
	compiler, level, pointers, linkage string
}

func (b chainBuild) String() string {
	return strings.Join([]string{b.compiler, b.level, b.pointers, b.linkage}, " ")
}

func (b chainBuild) flags() []string {
	f := []string{"CC=" + b.compiler, "-" + b.level, "-f" + b.pointers}
	if b.linkage != "dynamic" {
		f = append(f, "-"+b.linkage)
	}
	return f
}

// chainBuilds are all ways to compile a program, the two first that every run
// of the tests takes.
func chainBuilds(p programs.Program) []chainBuild {
	usual := []chainBuild{{"gcc", "O2", "omit-frame-pointer", "dynamic"},
		{"gcc", "O2", "omit-frame-pointer", "static"}}
	builds := slices.Clone(usual)
	for _, compiler := range []string{"gcc", "clang"} {
		for _, level := range []string{"O0", "O2", "O3"} {
			for _, pointers := range []string{"omit-frame-pointer", "no-omit-frame-pointer"} {
				for _, linkage := range []string{"dynamic", "static", "static-pie"} {
					if b := (chainBuild{compiler, level, pointers, linkage}); !slices.Contains(usual, b) {
						builds = append(builds, b)
					}
				}
			}
		}
	}
	return slices.DeleteFunc(builds, func(b chainBuild) bool {
		return p.Dynamic && b.linkage != "dynamic"
	})
}

// everyBuild says whether the tests compare every program with every oracle, which takes ten minutes.
func everyBuild() bool { return os.Getenv("UNSPOOL_ORACLE") == "all" }

// TestChainsAreUnwound records programs that print their call chain, and compares every stack with it. The
// recording begins when the program is in its chain and ends before that does, so that every sample has to
// match.
//
// Each program is built in one of the less usual ways, too, a different one for each, so that all compilers,
// levels and linkages are covered.
func TestChainsAreUnwound(t *testing.T) {
	t.Parallel()
	needRoot(t)
	leftOut := 0
	for i, p := range programs.Chains() {
		builds := chainBuilds(p)
		if !everyBuild() {
			usual := 2
			if p.Dynamic {
				usual = 1
			}
			other := builds[usual:]
			leftOut += len(other) - 1
			builds = append(builds[:usual:usual], other[(i*7+3)%len(other)])
		}
		for _, b := range builds {
			t.Run(p.String()+" "+b.String(), func(t *testing.T) {
				t.Parallel()
				proc := programs.StartCounted(t, programs.Build(t, p.Name, b.flags()...), counted, p.Args...)
				matchCounted(t, recordCounted(t, proc), proc.Chain, p)
			})
		}
	}
	if leftOut > 0 {
		t.Run("other builds", func(t *testing.T) {
			t.Skipf("%d builds of the programs left out; UNSPOOL_ORACLE=all runs them", leftOut)
		})
	}
}

// TestChainsOfACommand records from the program's first instruction on: its mappings are known from the
// kernel's records only.
func TestChainsOfACommand(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, p := range []programs.Program{{Name: "qsort"}, {Name: "exception"}, {Name: "thread"}} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			r, chain := recordCountedCommand(t, programs.Build(t, p.Name))
			matchCounted(t, r, chain, p)
			r.whollyComplete(t)
		})
	}
}

// enough is how many samples a chain is judged by.
const enough = 100

// recordEnough records until there are enough samples: on a busy machine a
// fifth of a second need not bring them. A process that runs already is stopped then, so that it takes no
// processor time from those that are recorded after it.
func recordEnough(t *testing.T, what ...string) (r recording) {
	t.Helper()
	if at := slices.Index(what, "-p"); at >= 0 {
		pid, err := strconv.Atoi(what[at+1])
		if err != nil {
			t.Fatal(err)
		}
		syscall.Kill(pid, syscall.SIGCONT) // it may have been recorded before
		defer syscall.Kill(pid, syscall.SIGSTOP)
		programs.Warm(t, pid)
	}
	rate, first := "2999", "0.2"
	if testing.Short() {
		// With the race detector, a survey of a large file's code takes longer than there is room in the rings.
		rate, first = "999", "0.5"
	}
	for _, seconds := range []string{first, "1", "4"} {
		// With half of a CPU, which a program has beside other tests, the first recording is long enough.
		r = record(t, slices.Concat([]string{"-F", rate, "-d", seconds}, what)...)
		if r.stats.Samples.User >= 2*enough {
			break
		}
	}
	return r
}

// recordRuns records a program that runs for as many seconds as its first argument says, and again for longer
// if a busy machine has not brought enough samples.
func recordRuns(t *testing.T, program string, args ...string) (r recording) {
	t.Helper()
	for _, seconds := range []string{"1", "4", "10"} {
		r = record(t, slices.Concat([]string{"-F", "1999", "--", program, seconds}, args)...)
		if r.stats.Samples.User >= 3*enough {
			break
		}
	}
	return r
}

// matchChain compares the stacks of a recording with a chain.
func matchChain(t *testing.T, r recording, chain programs.Chain, p programs.Program) {
	t.Helper()
	own := ownProfile(t, r.path)
	var samples, matched, truncated, invented int
	shown := make(map[string]int)
	for _, s := range own.Samples {
		stack := userStack(own, s.Node)
		if len(stack) == 0 {
			continue // inside execve, or exiting
		}
		n := int(s.Count)
		samples += n
		err := chain.Match(stack)
		if err == nil {
			matched += n
			continue
		}
		kind := "invented"
		if isTruncated(chain, stack) {
			kind = "truncated"
			truncated += n
		} else {
			invented += n
		}
		if shown[kind]++; shown[kind] <= 3 {
			t.Logf("%s, %d samples: %.600s\n  all frames, leaf first: %.600s", kind, n, err, describe(own, s.Node))
		}
	}
	complete := int(r.stats.Unwind.Complete)
	says := fmt.Sprintf("%d samples: %d match, %d truncated, %d with frames that the chain has not, %d said "+
		"to be complete; %v by %v",
		samples, matched, truncated, invented, complete, r.stats.Unwind.Ended, r.stats.Unwind.FramesBy)
	t.Log(says)
	if samples < enough {
		t.Fatalf("too few samples: %s", says)
	}
	if invented > 0 {
		t.Errorf("frames were invented: %s", says)
	}
	if p.String() == "signal-other" {
		// The interrupted frames are on another stack than the one that was copied: the frames found must be
		// right, and the stack must not count as complete.
		if matched+truncated < samples || complete > matched {
			t.Errorf("on an alternate stack: %s", says)
		}
		return
	}
	if matched*100 < samples*99 {
		t.Errorf("less than 99 %% match: %s", says)
	}
	if complete > matched {
		t.Errorf("stacks that are not complete are counted so: %s", says)
	}
}

// isTruncated reports whether a stack would match with more frames at its root.
func isTruncated(chain programs.Chain, stack []string) bool {
	var missing []string // root first
	for _, f := range chain.Frames {
		if f == "*" || f == "?" {
			f = "other code"
		}
		missing = append(missing, f)
		above := slices.Clone(missing)
		slices.Reverse(above)
		if chain.Match(slices.Concat(stack, above, []string{"start"})) == nil {
			return true
		}
	}
	// Nothing but the start above the root, or libc's part of it.
	return chain.Match(slices.Concat(stack, []string{"start"})) == nil
}

// describe names the frames of a stack with their files.
func describe(p *profile.Profile, node int32) string {
	var b strings.Builder
	for ; node > 0; node = p.Nodes[node].Parent {
		f := p.Frames[p.Nodes[node].Frame]
		fmt.Fprintf(&b, "%s (%s) ", f.Name, filepath.Base(p.Images[f.Image].Name))
	}
	return b.String()
}
