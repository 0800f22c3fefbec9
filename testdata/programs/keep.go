package programs

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"unspool/testdata/lane"
)

// madeFile is in a folder that fill has filled to the end.
const madeFile = ".made"

// Keep returns a folder with what fill has made in it, in this run of the tests or an earlier one. Nobody may change
// it. The key says all that the result depends on besides the tools that world lists, as the sources and the
// commands. The folder always has the same path, which debugging information may have.
func Keep(t testing.TB, key string, fill func(dir string)) (dir string) {
	t.Helper()
	kept := keptAt("folder\x00" + key)
	if kept == "" {
		dir = t.TempDir()
		fill(dir)
		return dir
	}
	lock, err := os.OpenFile(kept+".lock", os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	dir = kept + ".folder"
	made, now := filepath.Join(dir, madeFile), time.Now()
	if _, err := os.Stat(made); err == nil {
		_ = os.Chtimes(dir, now, now) // by this, forget knows that it was used
		_ = os.Chtimes(kept+".lock", now, now)
		return dir
	}
	if err := os.RemoveAll(dir); err != nil { // fill has failed half-way
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fill(dir) // which may end the test
	if t.Failed() {
		return dir
	}
	if err := os.WriteFile(made, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Answer is what a tool prints on stdout about the files, which are its last arguments, when it reads input. Of the
// same files and input it is asked once, in all runs of the tests. The test is skipped where there is no such tool.
func Answer(t testing.TB, input []byte, files []string, command ...string) []byte {
	t.Helper()
	lane.Tools(t, command[0])
	tool, _ := exec.LookPath(command[0])
	h := sha256.New()
	if target, err := filepath.EvalSymlinks(tool); err == nil {
		describe(h, target)
	}
	fmt.Fprintf(h, "%q %q %d\n%s", command, files, len(input), input)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(h, f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(h, n)
	}
	dir := Keep(t, fmt.Sprintf("answer %x", h.Sum(nil)), func(dir string) {
		cmd := exec.Command(tool, append(command[1:len(command):len(command)], files...)...)
		cmd.Stdin = bytes.NewReader(input)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, &stderr)
		}
		if err := os.WriteFile(filepath.Join(dir, "answer"), out, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	answer, err := os.ReadFile(filepath.Join(dir, "answer"))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// Run runs a command in a folder; one that fails fails the test, one that is not there skips it.
func Run(t testing.TB, dir string, command ...string) {
	t.Helper()
	lane.Tools(t, command[0])
	if err := run(dir, command[0], command[1:]); err != nil {
		t.Fatal(err)
	}
}

// BuildText compiles the text of a source with a command, that is a compiler and flags, once in all runs of the tests.
// The name says in which language it is. Nobody may change the result.
func BuildText(t testing.TB, name, text string, command ...string) string {
	t.Helper()
	dir := Keep(t, fmt.Sprintf("%q %q %q", name, text, command), func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		Run(t, dir, append([]string{command[0], "-o", "program", name}, command[1:]...)...)
	})
	return filepath.Join(dir, "program")
}

// BuildGo compiles a Go program from the text of its main package with the arguments of go build, in an
// environment that has env besides. Nobody may change it.
func BuildGo(t testing.TB, source string, env []string, args ...string) string {
	t.Helper()
	key := strings.Join(append(append([]string{"go", runtime.Version(), source}, env...), args...), "\x00")
	dir := Keep(t, key, func(dir string) {
		path, err := exec.LookPath("go")
		if err != nil {
			t.Skip(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path, append(append([]string{"build", "-o", "program"}, args...), "main.go")...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	})
	return filepath.Join(dir, "program")
}

// AllOracles reports whether tests ask other programs about everything, and not about a sample:
// UNSPOOL_ORACLE=all.
func AllOracles() bool { return os.Getenv("UNSPOOL_ORACLE") == "all" }

// Sampled reports whether the nth thing belongs to the sample of one in so many that an oracle is asked
// about, always the same. With [AllOracles], all do.
func Sampled(n uint64, every int) bool {
	const golden = 0x9e3779b97f4a7c15 // Fibonacci hashing: neighbours and strides are spread
	return every <= 1 || AllOracles() || (n*golden)>>32%uint64(every) == 0
}
