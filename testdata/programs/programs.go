package programs

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

//go:embed src
var sources embed.FS

// Program is one program of this package.
type Program struct {
	Name  string   // of its source in src, without the suffix
	Args  []string // arguments after the seconds to run; they choose a variant
	Flags []string // compiler flags that it needs to have the chain that it prints
	// Dynamic means that the program needs the dynamic linker: it calls through a
	// PLT, or comes with a shared library of its own.
	Dynamic bool
	// Counts is the function that is counted at the chain's end, if that is not the leaf: see [StartCounted].
	Counts string
}

// String names the program and its variant, fit for a subtest's name.
func (p Program) String() string {
	return strings.Join(append([]string{p.Name}, p.Args...), "-")
}

// Chains lists the programs that print their call chain.
func Chains() []Program {
	return []Program{
		{Name: "plain"},
		{Name: "pulse", Counts: "pulse_run"},
		{Name: "qsort"},
		{Name: "thread"},
		{Name: "signal"},
		{Name: "signal", Args: []string{"other"}},
		{Name: "fault"},
		{Name: "alloca"},
		{Name: "realign"},
		{Name: "noreturn", Flags: []string{"-falign-functions=1"}},
		{Name: "tail"},
		{Name: "longjmp"},
		{Name: "coroutine"},
		{Name: "deep"},
		{Name: "vdso"},
		{Name: "backtrace"},
		{Name: "exception"},
		{Name: "terminate"},
		{Name: "plt", Dynamic: true},
		{Name: "lazy", Flags: []string{"-Wl,-z,lazy"}, Dynamic: true},
	}
}

// Build compiles the program called name and returns the executable's path,
// which is valid until the test ends. It is compiled once in all runs of the tests, and each caller gets a copy.
//
// It is compiled with gcc or g++, or the compiler that the flag "CC=clang" names
// (then clang++ is the C++ compiler), with -O2 and -pthread first and flags last. If a
// compiler is not installed, the test is skipped; if a program does not compile, it fails.
func Build(t testing.TB, name string, flags ...string) string {
	t.Helper()
	key := strings.Join(append([]string{name}, flags...), "\x00")
	return copied(t, name, key, func(dir string) error { return compile(dir, name, flags) })
}

// BuildFile is Build for a source in a test's own folder, which may include the headers beside it and those of this
// package. The flags may name no files that change. Debugging information names the source where it is kept, which is
// the same place for all checkouts.
func BuildFile(t testing.TB, source string, flags ...string) string {
	t.Helper()
	headers, err := filepath.Glob(filepath.Join(filepath.Dir(source), "*.h"))
	if err != nil {
		t.Fatal(err)
	}
	texts, key := make(map[string][]byte), slices.Clone(flags)
	for _, path := range append(headers, source) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(path)] = text
		key = append(key, filepath.Base(path), string(text))
	}
	base := filepath.Base(source)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	return copied(t, name, strings.Join(key, "\x00"), func(dir string) error {
		for name, text := range texts {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				return err
			}
		}
		return compileFile(dir, filepath.Join(dir, base), flags)
	})
}

// copied copies what build makes by a key for a test, and returns the path of the program called name.
func copied(t testing.TB, name, key string, build func(dir string) error) string {
	t.Helper()
	from := Keep(t, key, func(dir string) {
		err := build(dir)
		if errors.Is(err, exec.ErrNotFound) {
			t.Skipf("needs a compiler: %v", err)
		}
		if err != nil {
			t.Fatalf("program %s: %v", name, err)
		}
	})
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, e := range entries {
		if e.Name() == madeFile {
			continue
		}
		content, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err == nil {
			err = writeExecutable(filepath.Join(dir, e.Name()), content)
		}
		if err != nil {
			t.Fatalf("program %s: %v", name, err)
		}
	}
	return filepath.Join(dir, name)
}

// writeExecutable writes a file that will be executed. A child that is forked while
// the file is open for writing would inherit the descriptor, and until that child
// execs, execution would fail with ETXTBSY. So it prevents forks meanwhile.
func writeExecutable(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755)
}

// compile builds the program, and its shared library if it has one, into dir.
func compile(dir, name string, flags []string) error {
	for _, p := range Chains() {
		if p.Name == name {
			flags = slices.Concat(p.Flags, flags)
			break
		}
	}
	cc, rest := compilerOf(flags)
	source := name + ".c"
	if _, err := fs.Stat(sources, "src/"+source); err != nil {
		source = name + ".cc"
		cc = cplusplus(cc)
	}
	path, err := exec.LookPath(cc)
	if err != nil {
		return err
	}
	src, err := unpack(dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(src)

	link := []string{"-o", filepath.Join(dir, name), source}
	if _, err := fs.Stat(sources, "src/"+name+"_lib.c"); err == nil {
		args := slices.Concat(rest, []string{"-fPIC", "-shared", "-o", filepath.Join(dir, "lib"+name+".so"),
			name + "_lib.c"})
		if err := run(src, path, args); err != nil {
			return err
		}
		// -rdynamic: the library calls functions of the executable.
		link = append(link, "-rdynamic", "-L"+dir, "-l"+name, "-Wl,-rpath,$ORIGIN")
	}
	return run(src, path, slices.Concat(rest, link))
}

// compilerOf takes the compiler out of flags, and puts those before it that all programs have.
func compilerOf(flags []string) (cc string, rest []string) {
	cc, rest = "gcc", []string{"-O2", "-pthread", "-Wall", "-Wextra", "-Werror"}
	for _, f := range flags {
		if v, ok := strings.CutPrefix(f, "CC="); ok {
			cc = v
		} else {
			rest = append(rest, f)
		}
	}
	return cc, rest
}

// compileFile builds a source in another folder into dir.
func compileFile(dir, source string, flags []string) error {
	cc, rest := compilerOf(flags)
	if filepath.Ext(source) == ".cc" {
		cc = cplusplus(cc)
	}
	path, err := exec.LookPath(cc)
	if err != nil {
		return err
	}
	headers, err := unpack(dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(headers)
	name := strings.TrimSuffix(filepath.Base(source), filepath.Ext(source))
	to := filepath.Join(dir, name)
	args := slices.Concat([]string{"-I" + headers, "-o", to, filepath.Base(source)}, rest)
	return run(filepath.Dir(source), path, args)
}

// cplusplus is the C++ compiler that belongs to a C compiler.
func cplusplus(cc string) string {
	dir, base := filepath.Split(cc)
	if rest, ok := strings.CutPrefix(base, "gcc"); ok {
		return dir + "g++" + rest
	}
	if rest, ok := strings.CutPrefix(base, "clang"); ok {
		return dir + "clang++" + rest
	}
	return cc
}

// unpack writes the sources into a new folder in dir.
func unpack(dir string) (src string, err error) {
	src = filepath.Join(dir, "src")
	return src, os.CopyFS(dir, sources)
}

// run executes a compiler in dir; its messages become the error.
func run(dir, name string, args []string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, bytes.TrimSpace(out))
	}
	return nil
}
