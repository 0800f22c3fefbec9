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
	"sync"
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
	// Dynamic says that the program needs the dynamic linker: it calls through a
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

// built holds the files that a compilation made, by file name.
type built map[string][]byte

var cache struct {
	sync.Mutex
	m map[string]func() (built, error) // compiles at its first call
}

// Build compiles the program called name and returns the executable's path,
// which is valid until the test ends. The result is kept in memory, and on disk for the
// next run, so that building the same program the same way again costs a write.
//
// It is compiled with gcc or g++, or the compiler that the flag "CC=clang" names
// (then clang++ is the C++ compiler), with -O2 and -pthread first and flags last. If a
// compiler is not installed, the test is skipped; if a program does not compile, it fails.
func Build(t testing.TB, name string, flags ...string) string {
	t.Helper()
	files, err := compiled(name+"\x00"+strings.Join(flags, "\x00"), func(dir string) (built, error) {
		return compile(dir, name, flags)
	})
	return place(t, name, files, err)
}

// BuildFile is Build for a source in a test's own folder, which may include the headers of this package. The
// flags may name no files that change.
func BuildFile(t testing.TB, source string, flags ...string) string {
	t.Helper()
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	from, err := filepath.Abs(source)
	if err != nil {
		t.Fatal(err)
	}
	// Debugging information names the source.
	key := strings.Join(append([]string{from, string(text)}, flags...), "\x00")
	name := strings.TrimSuffix(filepath.Base(source), filepath.Ext(source))
	files, err := compiled(key, func(dir string) (built, error) { return compileFile(dir, from, flags) })
	return place(t, name, files, err)
}

// place writes the files of a program for a test, and returns the path of the one called name.
func place(t testing.TB, name string, files built, err error) string {
	t.Helper()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skipf("needs a compiler: %v", err)
	}
	if err != nil {
		t.Fatalf("program %s: %v", name, err)
	}
	dir := t.TempDir()
	for file, content := range files {
		if err := writeExecutable(filepath.Join(dir, file), content); err != nil {
			t.Fatalf("program %s: %v", name, err)
		}
	}
	return filepath.Join(dir, name)
}

// compiled returns the files of a program that make has made, now or before: of the same key they are the same.
// Different programs are compiled in parallel.
func compiled(key string, makeIn func(dir string) (built, error)) (built, error) {
	cache.Lock()
	files := cache.m[key]
	if files == nil {
		if cache.m == nil {
			cache.m = make(map[string]func() (built, error))
		}
		files = sync.OnceValues(func() (built, error) {
			kept := keptAt(key)
			if files, err := readKept(kept); err == nil {
				return files, nil
			}
			dir, err := os.MkdirTemp("", "unspool-program")
			if err != nil {
				return nil, err
			}
			defer os.RemoveAll(dir)
			files, err := makeIn(dir)
			if err == nil {
				keep(kept, files) // if that fails, it is compiled again next time
			}
			return files, err
		})
		cache.m[key] = files
	}
	cache.Unlock()
	return files()
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
func compile(dir, name string, flags []string) (built, error) {
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
		return nil, err
	}
	src, err := os.MkdirTemp(dir, "src")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(src)
	if err := unpack(src); err != nil {
		return nil, err
	}

	outputs := []string{name}
	link := []string{"-o", filepath.Join(dir, name), source}
	if _, err := fs.Stat(sources, "src/"+name+"_lib.c"); err == nil {
		library := "lib" + name + ".so"
		outputs = append(outputs, library)
		args := slices.Concat(rest, []string{"-fPIC", "-shared", "-o", filepath.Join(dir, library),
			name + "_lib.c"})
		if err := run(src, path, args); err != nil {
			return nil, err
		}
		// -rdynamic: the library calls functions of the executable.
		link = append(link, "-rdynamic", "-L"+dir, "-l"+name, "-Wl,-rpath,$ORIGIN")
	}
	if err := run(src, path, slices.Concat(rest, link)); err != nil {
		return nil, err
	}
	files := make(built)
	for _, o := range outputs {
		if files[o], err = os.ReadFile(filepath.Join(dir, o)); err != nil {
			return nil, err
		}
	}
	return files, nil
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
func compileFile(dir, source string, flags []string) (built, error) {
	cc, rest := compilerOf(flags)
	if filepath.Ext(source) == ".cc" {
		cc = cplusplus(cc)
	}
	path, err := exec.LookPath(cc)
	if err != nil {
		return nil, err
	}
	headers, err := os.MkdirTemp(dir, "src")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(headers)
	if err := unpack(headers); err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(filepath.Base(source), filepath.Ext(source))
	to := filepath.Join(dir, name)
	args := slices.Concat([]string{"-I" + headers, "-o", to, filepath.Base(source)}, rest)
	if err := run(filepath.Dir(source), path, args); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(to)
	return built{name: content}, err
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

// unpack writes the sources to dir.
func unpack(dir string) error {
	entries, err := sources.ReadDir("src")
	if err != nil {
		return err
	}
	for _, e := range entries {
		content, err := sources.ReadFile("src/" + e.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), content, 0o644); err != nil {
			return err
		}
	}
	return nil
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
