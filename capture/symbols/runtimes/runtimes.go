// Package runtimes knows programs that generate code: by which of its files a process shows that it is one, and what
// has to be done for the names of that code, and for whole stacks through it.
//
// What is said about each of them is from its own documentation or sources: nodejs.org "Using Linux perf"; jcmd(1) and
// java(1) of OpenJDK 17; OpenJ9's -XX:+PerfTool; "Debugging and profiling config settings" of .NET; erl(1), +JPperf;
// Ruby's yjit/src/options.rs; PHP's ext/opcache/jit/zend_jit.h (ZEND_JIT_DEBUG_PERF); LuaJIT's src/lj_trace.c;
// Wasmtime's "Using perf on Linux"; "Python support for the perf map compatible profilers".
package runtimes

import (
	"iter"
	"path"
	"strconv"
	"strings"
)

// A Runtime generates code.
type Runtime struct {
	Name string
	// Interprets means that without what Names asks for, functions have no code of their own, and are not in stacks.
	Interprets bool

	files   []string // patterns of the names of files that such a process maps, without their folders
	names   string   // what to do for names
	running string   // the same for a process that runs, where PID stands for its PID; "" for nothing
	// frames is what to do for frame pointers, and keeps a word of its command line that means that it was done; ""
	// where the code has them anyway.
	frames, keeps string
}

// all are the runtimes. Of those that a process may be, it is the first: OpenJ9 has a libjvm.so, too, and Python
// starts a JVM rather than the other way round.
var all = []Runtime{
	{Name: "OpenJ9", files: []string{"libj9jit*.so"}, names: "start it with `java -XX:+PerfTool`"},
	{Name: "Java", files: []string{"libjvm.so"},
		names: "run `jcmd PID Compiler.perfmap` before it ends, or start it with `java -XX:+UnlockDiagnosticVMOptions " +
			"-XX:+DumpPerfMapAtExit` (Java 17 or later)",
		running: "run `jcmd PID Compiler.perfmap` while it runs (Java 17 or later)",
		frames:  "start it with `java -XX:+PreserveFramePointer`", keeps: "-XX:+PreserveFramePointer"},
	{Name: ".NET", files: []string{"libcoreclr.so"}, names: "start it with DOTNET_PerfMapEnabled=1 in its environment"},
	{Name: "Erlang", files: []string{"beam.smp", "beam.*.smp"}, names: "start it with `erl +JPperf true`",
		frames: "start it with `erl +JPperf true`", keeps: "-JPperf"},
	{Name: "node", files: []string{"node", "nodejs", "libnode.so*"},
		names: "start it with `node --perf-basic-prof` (or --perf-prof)"},
	{Name: "Ruby", files: []string{"ruby", "ruby[0-9]*", "libruby*.so*"},
		names:  "start it with `ruby --yjit-perf` (3.3 or later)",
		frames: "start it with `ruby --yjit-perf` (3.3 or later)", keeps: "--yjit-perf"},
	{Name: "PHP", files: []string{"php", "php[0-9]*", "php-*", "libphp*.so"},
		names: "start it with `php -d opcache.jit_debug=16`, or set that in php.ini"},
	{Name: "LuaJIT", files: []string{"luajit", "luajit-*", "libluajit*.so*"},
		names: "build LuaJIT with `make XCFLAGS=-DLUAJIT_USE_PERFTOOLS`"},
	{Name: "Wasmtime", files: []string{"wasmtime"}, names: "start it with `wasmtime --profile=perfmap`"},
	{Name: "Python", Interprets: true, files: []string{"python3", "python3.[0-9]*", "libpython3*.so*"},
		names: "start it with `python3 -X perf` (3.12 or later)"},
}

// Of finds the runtime of a process by the paths of files that it maps, nil for none that is known.
func Of(files iter.Seq[string]) *Runtime {
	best := len(all)
	for file := range files {
		base := path.Base(file)
		for i := range all[:best] {
			if all[i].has(base) {
				best = i
				break
			}
		}
	}
	if best == len(all) {
		return nil
	}
	return &all[best]
}

// has reports whether a file with a name shows that a process is this runtime.
func (r *Runtime) has(base string) bool {
	for _, pattern := range r.files {
		if is, _ := path.Match(pattern, base); is {
			return true
		}
	}
	return false
}

// Names returns what to do for the names of a process's code. pid is that of one that runs, 0 for one that has ended.
func (r *Runtime) Names(pid uint32) string {
	switch {
	case r == nil:
		return "if its runtime can write a perf map or a jitdump, start it with that"
	case r.running == "" || pid == 0:
		return r.names
	}
	return strings.Replace(r.running, "PID", strconv.FormatUint(uint64(pid), 10), 1)
}

// Frames returns what to do for stacks through the code, "" where nothing can be done, or nothing has to.
func (r *Runtime) Frames() string {
	if r == nil {
		return ""
	}
	return r.frames
}

// Keeps reports whether a command line says that the process's code has frame pointers, or it has them anyway.
func (r *Runtime) Keeps(args []string) bool {
	for _, arg := range args {
		if r.keeps != "" && strings.HasPrefix(arg, r.keeps) {
			return true
		}
	}
	return r.frames == ""
}
