package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// everyBuild reports whether the tests compare every program with every oracle, which takes ten minutes.
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
