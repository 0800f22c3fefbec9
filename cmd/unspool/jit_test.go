package main

import (
	"fmt"
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

// source is the path of a program below testdata.
func source(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// classes is a folder with what a Java program below testdata is compiled to, once in all runs of the tests by a JDK.
func classes(t *testing.T, name string) string {
	t.Helper()
	need(t, "java", "javac")
	javac, err := exec.LookPath("javac")
	if err == nil {
		javac, err = filepath.EvalSymlinks(javac) // names the version
	}
	if err != nil {
		t.Fatal(err)
	}
	text := mustRead(t, source(t, name))
	return programs.Keep(t, fmt.Sprintf("%q %q %q", javac, name, text), func(dir string) {
		output(t, dir, javac, "-d", dir, source(t, name))
	})
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

// A generatedLeaf is what is expected of the stacks of a program whose generated code touches fresh pages.
type generatedLeaf struct {
	runtime string // a function that the stacks have, or a file of one
	names   string // how a function of generated code begins, if they have names
	leaves  bool   // the leaf is generated code
}

// leads expects each stack with generated code to lead through a runtime, and at least n of them.
func (g generatedLeaf) leads(t *testing.T, r recording, n int) {
	t.Helper()
	stacks, samples := generatedStacks(t, r)
	leaves := 0
	for _, s := range stacks {
		if !slices.Contains(s.names, g.runtime) && !slices.Contains(s.files, g.runtime) {
			t.Errorf("%d samples do not lead to %s: %q in %q", s.count, g.runtime, s.names, s.files)
		}
		if g.names != "" && !slices.ContainsFunc(s.names, func(name string) bool {
			return strings.HasPrefix(name, g.names)
		}) {
			t.Errorf("%d samples have no %s…: %q", s.count, g.names, s.names)
		}
		if s.leaf {
			leaves += s.count
		}
	}
	if samples < n || g.leaves && leaves < n {
		t.Errorf("%d samples with generated code, %d of them with its leaf, of %d", samples, leaves, n)
	}
}

// touched is how many pages a program touches in each step, in generated code or called by it.
const touched = 40

// recordAsked records a step of a program.
func recordAsked(t *testing.T, a *asked, options ...string) recording {
	t.Helper()
	r := startRecording(t, slices.Concat(programs.Faults(), []string{"-p", strconv.Itoa(a.Process.Pid)},
		options)...)
	a.next(t)
	r.drained()
	return r.stop(t)
}

// atOnce has Node optimize what is hot before it goes on, so that it has when it says that it is ready.
const atOnce = "--no-concurrent-recompilation"

// TestGeneratedCode records programs whose code is generated at run time.
func TestGeneratedCode(t *testing.T) {
	t.Parallel()
	needRoot(t)
	times := strconv.Itoa(touched)
	t.Run("node", func(t *testing.T) {
		t.Parallel()
		need(t, "node")
		r := recordAsked(t, startAsked(t, t.TempDir(), "node", atOnce, source(t, "touch.js"), times))
		r.whollyComplete(t)
		generatedLeaf{runtime: "uv_run", leaves: true}.leads(t, r, touched)
	})
	t.Run("java", func(t *testing.T) {
		t.Parallel()
		dir := classes(t, "Hot.java")
		// What is hot is compiled when it says that it is ready, however slow the machine is.
		r := recordAsked(t, startAsked(t, dir, "java", "-XX:+PreserveFramePointer", "-Xmx64m", "-Xbatch", "Hot", times,
			"pages"))
		r.whollyComplete(t)
		generatedLeaf{runtime: "libjli.so", leaves: true}.leads(t, r, touched)
	})
	t.Run("java in a loop that has not ended", func(t *testing.T) {
		t.Parallel()
		dir := classes(t, "Loop.java")
		command := []string{"java", "-XX:CompileCommand=quiet"}
		for _, apart := range []string{"step", "next", "leaf"} {
			command = append(command, "-XX:CompileCommand=dontinline,Loop."+apart)
		}
		command = append(command, "-Xmx64m", "-Xbatch", "Loop", times, "pages")
		r := recordAsked(t, startAsked(t, dir, command...))
		r.whollyComplete(t)
		generatedLeaf{runtime: "libjli.so", leaves: true}.leads(t, r, touched)
	})
	t.Run("luajit", func(t *testing.T) {
		t.Parallel()
		need(t, "luajit")
		r := recordAsked(t, startAsked(t, t.TempDir(), "luajit", source(t, "hot.lua"), times))
		r.whollyComplete(t)
		generatedLeaf{runtime: "lua_pcall", leaves: true}.leads(t, r, touched)
	})
	t.Run("luajit without the compiler", func(t *testing.T) {
		t.Parallel()
		need(t, "luajit")
		r := recordAsked(t, startAsked(t, t.TempDir(), "luajit", "-joff", source(t, "hot.lua"), times))
		r.whollyComplete(t)
		if r.stats.Samples.User < touched {
			t.Errorf("%d samples", r.stats.Samples.User)
		}
	})
	t.Run("CPython's trampolines", func(t *testing.T) {
		t.Parallel()
		for _, python := range pythons(t, 12) {
			t.Run(python, func(t *testing.T) {
				r := recordAsked(t, startAsked(t, t.TempDir(), python, "-X", "perf", source(t, "hot.py"), times))
				r.whollyComplete(t)
				generatedLeaf{runtime: "Py_RunMain", names: "py::"}.leads(t, r, touched)
			})
		}
	})
}

// TestJitdump records programs that write the CFI of the code that they
// generate, and unwinds them by CFI only.
func TestJitdump(t *testing.T) {
	t.Parallel()
	needRoot(t)
	times := strconv.Itoa(touched)
	t.Run("node", func(t *testing.T) {
		t.Parallel()
		need(t, "node")
		node := startAsked(t, t.TempDir(), "node", atOnce, "--perf-prof", "--perf-prof-unwinding-info",
			source(t, "touch.js"), times, "12000")
		r := recordAsked(t, node)
		r.whollyComplete(t)
		generatedLeaf{runtime: "uv_run", names: "JS:", leaves: true}.leads(t, r, touched)

		// Optimized code has CFI, builtins have none.
		stacks, _ := generatedStacks(t, recordAsked(t, node, "--strict"))
		leaves := 0
		for _, s := range stacks {
			if !s.leaf || !strings.Contains(s.names[0], "hotLeaf") {
				continue
			}
			leaves += s.count
			if len(s.names) < 2 {
				t.Errorf("strictly %d samples end at %q", s.count, s.names)
			}
		}
		if leaves < touched {
			t.Errorf("strictly, %d samples of the leaf, of %d", leaves, touched)
		}
	})
	t.Run("CPython", func(t *testing.T) {
		t.Parallel()
		for _, python := range pythons(t, 13) {
			t.Run(python, func(t *testing.T) {
				r := recordAsked(t, startAsked(t, t.TempDir(), python, "-X", "perf_jit", source(t, "hot.py"), times,
					"200"), "--strict")
				r.whollyComplete(t)
				generatedLeaf{runtime: "Py_RunMain"}.leads(t, r, touched)
			})
		}
	})
}

// pythons are the interpreters of CPython 3.minor or later that there are:
// -X perf came with 3.12, -X perf_jit with 3.13.
func pythons(t *testing.T, minor int) (found []string) {
	t.Helper()
	var names []string
	home, _ := os.UserHomeDir()
	for _, name := range []string{"python3", "python3.12", "python3.13", "python3.14"} {
		// pyenv's launchers start a dozen shells each, to find one of its versions.
		if path, err := exec.LookPath(name); err == nil && filepath.Dir(path) != filepath.Join(home, ".pyenv/shims") {
			names = append(names, path)
		}
	}
	more, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions/*/bin/python3"))
	names = append(names, more...)
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

// TestInjectedJitdump converts what perf has recorded of generated code before and after perf inject --jit, which maps
// an ELF file for each piece of that code. They are no ordinary images: the same stacks are complete, with the
// names that these files have, and by their CFI where the runtime has written that.
func TestInjectedJitdump(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "node", "perf", "sh")
	const pages, each = 4000, 20
	const least = pages / each / 2
	for _, c := range []struct {
		name    string
		node    string
		options []string
		callers string // above the leaf's caller
	}{
		{"by frame pointers", "--perf-prof", nil, "uv_run"},
		{"by CFI", "--perf-prof --perf-prof-unwinding-info", []string{"--strict"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			raw := perfRecord(t, []string{"-k", "CLOCK_MONOTONIC", "-e", "page-faults:u", "-c", strconv.Itoa(each)},
				"sh", "-c", fmt.Sprintf(`cd "$0" && echo | exec node %s %s "$1" %d`, atOnce, c.node, pages), dir,
				source(t, "touch.js"))
			injected := filepath.Join(dir, "injected.data")
			output(t, dir, "perf", "inject", "--kallsyms", os.DevNull, "--jit", "-i", raw, "-o", injected)
			before, after := convert(t, raw, c.options...), convert(t, injected, c.options...)
			if want, got := before.stats.Unwind.Complete, after.stats.Unwind.Complete; got < want {
				t.Errorf("%d stacks are complete, %d were before: %v", got, want, after.stats.Unwind.Ended)
			}
			p := ownProfile(t, after.path)
			leaves := 0
			for _, s := range p.Samples {
				stack := userStack(p, s.Node)
				if len(stack) == 0 || !strings.Contains(stack[0], "hotLeaf") {
					continue
				}
				leaves += int(s.Count)
				if len(stack) < 2 || !strings.Contains(stack[1], "hotMiddle") ||
					c.callers != "" && !slices.Contains(stack, c.callers) {
					t.Errorf("%d samples: %q", s.Count, stack)
				}
			}
			if leaves < least {
				t.Errorf("%d samples of the leaf, want %d", leaves, least)
			}
		})
	}
}
