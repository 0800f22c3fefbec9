package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// Of a small module, of which a test fails without any fault, which does not count.
func TestRun(t *testing.T) {
	tree := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module unspool\n\ngo 1.26.0\n",
		"p/p.go": `package p

func Less(a, b int) bool {
	return a < b
}

func More(a, b int) bool {
	return a > b
}

func Equal(a, b int) bool {
	return a == b
}
`,
		"p/p_test.go": `package p

import "testing"

func TestMore(t *testing.T) {
	if !More(2, 1) {
		t.Error()
	}
}

func TestMachineMore(t *testing.T) {
	if More(1, 1) {
		t.Error()
	}
}

func TestEqual(t *testing.T) {
	Equal(1, 1)
	t.Error()
}
`,
		"q/q_test.go": `package q

import (
	"testing"

	"unspool/p"
)

func TestLess(t *testing.T) {
	if p.Less(1, 1) {
		t.Error()
	}
}
`,
	} {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("git", "init", "-q", tree).CombinedOutput(); err != nil {
		t.Skipf("git init: %v\n%s", err, out)
	}
	faults := []*fault{
		{1, "p/p.go", "Less", 4, 1, "compare", "return a < b", "return a <= b"},
		{2, "p/p.go", "More", 8, 1, "compare", "return a > b", "return a >= b"},
		{3, "p/p.go", "Equal", 12, 1, "compare", "return a == b", "return a != b"},
		{4, "p/p.go", "Equal", 12, 1, "drop", "return a == b", "{}"},
		{5, "p/p.go", "Less", 4, 1, "return", "return a != b", "return false"},
	}
	want := []verdict{
		{outcome: noticed, pkg: "q", test: "TestLess"}, {outcome: unnoticed}, {outcome: unnoticed},
		{outcome: broken}, {outcome: gone},
	}
	work := t.TempDir()
	if err := os.Chmod(work, 0o755); err != nil {
		t.Fatal(err)
	}
	r := runner{
		lane: &lane{tree: tree, work: work, jobs: 2,
			run: regexp.MustCompile(""), skip: regexp.MustCompile("^TestMachine")},
		live: regexp.MustCompile("^q$"), budget: time.Hour,
	}
	file := filepath.Join(t.TempDir(), "verdicts")
	for range 2 { // the second run has nothing left to do
		if err := r.run(t.Context(), faults, file); err != nil {
			t.Fatal(err)
		}
	}
	verdicts, err := readVerdicts(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range faults {
		v := verdicts[f.key()]
		if v == nil || v.outcome != want[i].outcome || v.pkg != want[i].pkg || v.test != want[i].test {
			t.Errorf("fault %d: %+v, want %+v", f.id, v, want[i])
		}
	}
}
