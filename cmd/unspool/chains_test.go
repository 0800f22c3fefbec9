package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unspool/capture/profile"
	"unspool/testdata/programs"
)

// TestChainsAreUnwound records programs that say what their call chain is, and
// holds every stack against it. The recording begins when the program is in its
// chain and ends before that does, so that every sample is to match.
func TestChainsAreUnwound(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, build := range []struct {
		name  string
		flags []string
	}{
		{"dynamic", nil},
		{"static", []string{"-static"}},
	} {
		for _, p := range programs.Chains() {
			if p.Dynamic && build.name == "static" {
				continue
			}
			t.Run(p.String()+" "+build.name, func(t *testing.T) {
				t.Parallel()
				path := programs.Build(t, p.Name, build.flags...)
				proc := programs.Start(t, path, 20, p.Args...)
				r := recordEnough(t, "-p", strconv.Itoa(proc.Process.Pid))
				matchChain(t, r, proc.Chain, p)
			})
		}
	}
}

// TestChainsOfACommand records from the program's first instruction on: what
// the kernel tells of its mappings is all that is known of them.
func TestChainsOfACommand(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, p := range []programs.Program{{Name: "qsort"}, {Name: "exception"}, {Name: "thread"}} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			r := recordEnough(t, "--", programs.Build(t, p.Name), "20")
			chain, err := programs.ParseChain(strings.TrimSpace(r.stdout))
			if err != nil {
				t.Fatal(err)
			}
			own := ownProfile(t, r.path)
			var samples, whole int
			for _, s := range own.Samples {
				if stack := userStack(own, s.Node); slices.Contains(stack, chain.Leaf()) {
					samples += int(s.Count)
					if err := chain.Match(stack); err == nil {
						whole += int(s.Count)
					} else {
						t.Log(err)
					}
				}
			}
			if samples < enough || whole*100 < samples*99 {
				t.Errorf("%d of %d stacks match the chain", whole, samples)
			}
		})
	}
}

// enough is how many samples a chain is judged by.
const enough = 100

// recordEnough records until there are enough samples: on a busy machine a
// fifth of a second need not bring them.
func recordEnough(t *testing.T, what ...string) (r recording) {
	t.Helper()
	for _, seconds := range []string{"0.2", "1", "4"} {
		r = record(t, slices.Concat([]string{"-F", "1999", "-d", seconds}, what)...)
		if r.stats.Samples.User >= 2*enough {
			break
		}
	}
	return r
}

// matchChain holds the stacks of a recording against a chain.
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
	says := fmt.Sprintf("%d samples: %d match, %d truncated, %d with frames that the chain has not, %d said to be complete; %v by %v",
		samples, matched, truncated, invented, complete, r.stats.Unwind.Ended, r.stats.Unwind.FramesBy)
	t.Log(says)
	if samples < enough {
		t.Fatalf("too few samples: %s", says)
	}
	if invented > 0 {
		t.Errorf("frames were invented: %s", says)
	}
	if p.String() == "signal-other" {
		// The interrupted frames are on another stack than the one that was
		// copied: what is there must be right and must not count as complete.
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
