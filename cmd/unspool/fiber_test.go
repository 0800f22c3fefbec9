package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unspool/capture/profile"
	"unspool/testdata/programs"
)

// TestFibersOfOCaml records OCaml 5, whose code runs on stacks of its own: the stack of C, to which CFI leads from
// them, is read when they are sampled again.
func TestFibersOfOCaml(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "ocamlopt")
	version := strings.TrimSpace(output(t, "", "ocamlopt", "-version"))
	if major, _, _ := strings.Cut(version, "."); len(major) == 1 && major < "5" {
		t.Skipf("skipped for want of OCaml 5: %s is installed", version)
	}
	dir := t.TempDir()
	source, err := os.ReadFile("testdata/fiber.ml")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "fiber.ml"), source, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	output(t, dir, "ocamlopt", "-g", "-I", "+unix", "unix.cmxa", "fiber.ml", "-o", "fiber")
	proc := exec.Command(filepath.Join(dir, "fiber"))
	if err := programs.StartTied(t, proc); err != nil {
		t.Fatal(err)
	}
	s := startUnsampled(t, slices.Concat(programs.Faults(), []string{"-p", strconv.Itoa(proc.Process.Pid)})...)
	s.control("enable")
	s.until(t, "whole stacks of a fiber", func(p *profile.Profile) bool {
		complete := 0
		for _, sample := range p.Samples {
			stack := userStack(p, sample.Node)
			whole := sample.End == profile.Complete || sample.End == profile.Joined
			if whole && strings.Contains(stack[0], "fiber_leaf") && slices.Contains(stack, "main") &&
				strings.Count(strings.Join(stack, " "), "fiber_caller") == 11 {
				complete += int(sample.Count)
			}
		}
		return complete >= counted
	})
	proc.Process.Kill()
	s.end(t)
}
