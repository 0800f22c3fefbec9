package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unspool/capture/profile"
)

// startReady starts a program that prints "ready" when its code is as it will
// stay, and returns its PID.
func startReady(t *testing.T, dir string, command ...string) string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		// CPython writes there wherever it runs.
		os.Remove(fmt.Sprintf("/tmp/perf-%d.map", cmd.Process.Pid))
		os.Remove(fmt.Sprintf("/tmp/jit-%d.dump", cmd.Process.Pid))
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%s said %q, %v", cmd, line, err)
	}
	return strconv.Itoa(cmd.Process.Pid)
}

// source is the path of a program below testdata.
func source(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A generatedStack is what a stack with generated code in it has.
type generatedStack struct {
	names  []string // of functions, leaf first
	files  []string // that they are in
	frames int      // of generated code
	leaf   bool     // the leaf is one of them
	last   int      // the outermost of them, counted from the leaf
	count  int
}

// generatedStacks are those of a recording's stacks that have generated code.
func generatedStacks(t *testing.T, r recording) (stacks []generatedStack, samples int) {
	t.Helper()
	p := ownProfile(t, r.path)
	for _, s := range p.Samples {
		g := generatedStack{names: userStack(p, s.Node), count: int(s.Count)}
		for n, node := 0, s.Node; node > 0; node = p.Nodes[node].Parent {
			f := p.Frames[p.Nodes[node].Frame]
			if f.Kind == profile.Kernel {
				continue
			}
			image := p.Images[f.Image].Name
			g.files = append(g.files, filepath.Base(image))
			if isGenerated(image) {
				g.frames++
				g.leaf = g.leaf || n == 0
				g.last = n
			}
			n++
		}
		if g.frames > 0 {
			stacks = append(stacks, g)
			samples += g.count
		}
	}
	return stacks, samples
}

func isGenerated(image string) bool { return image == "//anon" || image == "[anon]" }

// leadThrough expects 99 % of the stacks with generated code to have a
// function of the runtime, too, or of a file of it.
func (r *recording) leadThrough(t *testing.T, runtime string) {
	t.Helper()
	stacks, samples := generatedStacks(t, *r)
	whole, deepest := 0, 0
	for _, s := range stacks {
		deepest = max(deepest, s.frames)
		if slices.Contains(s.names, runtime) || slices.Contains(s.files, runtime) {
			whole += s.count
		}
	}
	t.Logf("%d samples with generated code, %d of them in %s, up to %d frames of it", samples, whole, runtime,
		deepest)
	if samples < enough/2 || whole*100 < samples*99 {
		t.Errorf("%d of %d stacks with generated code have %s", whole, samples, runtime)
	}
}

// named expects 95 % of the stacks with generated code to name a function of it
// that begins like this.
func (r *recording) named(t *testing.T, prefix string) {
	t.Helper()
	stacks, samples := generatedStacks(t, *r)
	named := 0
	for _, s := range stacks {
		if slices.ContainsFunc(s.names, func(name string) bool { return strings.HasPrefix(name, prefix) }) {
			named += s.count
		}
	}
	if named*100 < samples*95 {
		t.Errorf("%d of %d stacks with generated code name %s…", named, samples, prefix)
	}
}

// TestGeneratedCode records programs whose code is generated at run time.
func TestGeneratedCode(t *testing.T) {
	t.Parallel()
	needRoot(t)
	t.Run("node", func(t *testing.T) {
		need(t, "node")
		r := recordEnough(t, "-p", startReady(t, t.TempDir(), "node", source(t, "hot.js")))
		r.whole(t)
		r.leadThrough(t, "uv_run")
	})
	t.Run("java", func(t *testing.T) {
		need(t, "java", "javac")
		dir := t.TempDir()
		output(t, dir, "javac", "-d", dir, source(t, "Hot.java"))
		r := recordEnough(t, "-p", startReady(t, dir, "java", "-XX:+PreserveFramePointer", "-Xmx64m", "Hot"))
		r.whole(t)
		r.leadThrough(t, "libjli.so")
	})
	for _, c := range []struct {
		name string
		args []string
	}{
		{"luajit", nil},
		{"luajit without the compiler", []string{"-joff"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			need(t, "luajit")
			r := recordEnough(t, "-p", startReady(t, t.TempDir(),
				slices.Concat([]string{"luajit"}, c.args, []string{source(t, "hot.lua")})...))
			r.whole(t)
			if c.args == nil {
				r.leadThrough(t, "lua_pcall")
			}
		})
	}
	t.Run("CPython's trampolines", func(t *testing.T) {
		for _, python := range pythons(t, 12) {
			t.Run(python, func(t *testing.T) {
				r := recordEnough(t, "-p", startReady(t, t.TempDir(), python, "-X", "perf", source(t, "hot.py")))
				r.whole(t)
				r.leadThrough(t, "Py_RunMain")
				r.named(t, "py::")
			})
		}
	})
}

// TestJitdump records programs that write the CFI of the code that they
// generate, and unwinds them by CFI only.
func TestJitdump(t *testing.T) {
	t.Parallel()
	needRoot(t)
	t.Run("node", func(t *testing.T) {
		need(t, "node")
		pid := startReady(t, t.TempDir(), "node", "--perf-prof", "--perf-prof-unwinding-info", source(t, "hot.js"),
			"12000")
		r := recordEnough(t, "-p", pid)
		r.whole(t)
		r.leadThrough(t, "uv_run")
		r.named(t, "JS:")

		// Optimized code has CFI, builtins have none.
		strict := recordEnough(t, "--strict", "-p", pid)
		stacks, _ := generatedStacks(t, strict)
		leaves, beyond := 0, 0
		for _, s := range stacks {
			if s.leaf {
				leaves += s.count
				if len(s.names) > 1 {
					beyond += s.count
				}
			}
		}
		t.Logf("strictly %d of %d stacks go on from their leaf", beyond, leaves)
		if leaves < enough/2 || beyond*100 < leaves*90 {
			t.Errorf("strictly %d of %d stacks go on from their leaf in generated code", beyond, leaves)
		}
	})
	t.Run("CPython", func(t *testing.T) {
		for _, python := range pythons(t, 13) {
			t.Run(python, func(t *testing.T) {
				r := recordEnough(t, "--strict", "-p",
					startReady(t, t.TempDir(), python, "-X", "perf_jit", source(t, "hot.py"), "200"))
				r.whole(t)
				r.leadThrough(t, "Py_RunMain")
			})
		}
	})
}

// pythons are the interpreters of CPython 3.minor or later that there are:
// -X perf came with 3.12, -X perf_jit with 3.13.
func pythons(t *testing.T, minor int) (found []string) {
	t.Helper()
	names := []string{"python3", "python3.12", "python3.13", "python3.14"}
	if home, err := os.UserHomeDir(); err == nil {
		more, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions/*/bin/python3"))
		names = append(names, more...)
	}
	program := fmt.Sprintf("import os, sys; sys.version_info < (3, %d) and sys.exit(1); "+
		"print(os.path.realpath(sys.executable))", minor)
	for _, name := range names {
		out, err := exec.Command(name, "-c", program).Output()
		if path := strings.TrimSpace(string(out)); err == nil && !slices.Contains(found, path) {
			found = append(found, path)
		}
	}
	if found == nil {
		t.Skipf("python3.%d is not installed", minor)
	}
	return found
}
