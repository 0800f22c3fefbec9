package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"unspool/bench/faults/reached"
)

// A test is a test of a tree, and what it reached.
type test struct {
	pkg, name string // pkg is below the module's root
	seconds   float64
	failed    bool // although nothing was planted
	reached   map[string]bool
}

// A lane is which tests count, and where.
type lane struct {
	tree, work string
	run, skip  *regexp.Regexp // as go test's -run and -skip
	jobs       int
}

func (l *lane) wants(name string) bool {
	return l.run.MatchString(name) && (l.skip.String() == "" || !l.skip.MatchString(name))
}

// reach finds which tests reach which of the faults' lines, in a copy of the tree that counts. It keeps what
// it has found in a file of the working directory, where it goes on with the packages that are left.
func (l *lane) reach(ctx context.Context, faults []*fault) ([]*test, error) {
	name := filepath.Join(l.work, "reach.txt")
	known, done, tests := readReach(name)
	for _, f := range faults {
		if !known[f.key()] {
			done, tests = nil, nil // of another list
			if err := os.RemoveAll(name); err != nil {
				return nil, err
			}
			break
		}
	}
	if tests == nil {
		known = nil
	}
	packages, err := testedPackages(l.tree)
	if err != nil {
		return nil, err
	}
	packages = slices.DeleteFunc(packages, func(p string) bool { return done[p] })
	if len(packages) == 0 {
		return tests, nil
	}
	out, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if known == nil {
		for _, f := range faults {
			fmt.Fprintf(out, "fault\t%s\n", f.key())
		}
	}
	c, err := l.prepare(faults)
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		found, err := c.tests(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, t := range found {
			fmt.Fprint(out, t)
		}
		fmt.Fprintf(out, "done\t%s\n", p)
		tests = append(tests, found...)
	}
	return tests, nil
}

func (t *test) String() string {
	var keys []string
	for key := range t.reached {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	all := strings.Join(keys, " ")
	return fmt.Sprintf("test\t%s\t%s\t%.1f\t%v\t%s\n", t.pkg, t.name, t.seconds, t.failed, all)
}

func readReach(name string) (faults, done map[string]bool, tests []*test) {
	faults, done = make(map[string]bool), make(map[string]bool)
	file, err := os.Open(name)
	if err != nil {
		return faults, done, nil
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		switch c := strings.Split(lines.Text(), "\t"); c[0] {
		case "fault":
			faults[c[1]] = true
		case "done":
			done[c[1]] = true
		case "test":
			t := &test{pkg: c[1], name: c[2], failed: c[4] == "true", reached: make(map[string]bool)}
			t.seconds, _ = strconv.ParseFloat(c[3], 64)
			for key := range strings.FieldsSeq(c[5]) {
				t.reached[key] = true
			}
			tests = append(tests, t)
		}
	}
	tests = slices.DeleteFunc(tests, func(t *test) bool { return !done[t.pkg] }) // interrupted
	return faults, done, tests
}

// testedPackages lists the packages that have tests, below the module's root: those of the product first.
func testedPackages(tree string) ([]string, error) {
	list := exec.Command("go", "list", "-e", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}",
		"./...", "./testdata/programs", "./testdata/browser", "./testdata/costs", "./testdata/inputs")
	list.Dir = tree
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages, others []string
	for path := range strings.FieldsSeq(string(out)) {
		switch p := strings.TrimPrefix(path, "unspool/"); {
		case p == "bench/faults" || p == "testdata/programs" || p == "testdata/browser":
			// nothing of the product is in them
		case strings.HasPrefix(p, "bench/") || strings.HasPrefix(p, "testdata/"):
			others = append(others, p)
		default:
			packages = append(packages, p)
		}
	}
	return append(packages, others...), nil
}

// A counting is a copy of a tree that counts.
type counting struct {
	*lane
	faults    []*fault
	dir       string
	shared    *os.File // see reached.Shared
	own       []*os.File
	path, bin string
}

// wrapper is what the tests find as go: it builds the program once. Its arguments are the folder of the
// program, where to keep it, and go.
const wrapper = `#!/bin/sh
if [ "$1" = build ] && [ "$PWD" = '%[1]s' ]; then
	out= previous=
	for a; do
		[ "$previous" = -o ] && out=$a
		previous=$a
	done
	if [ -n "$out" ]; then
		{
			flock 9
			[ -e '%[2]s' ] || { '%[3]s' "$@" && mv "$out" '%[2]s'; } || exit
		} 9>'%[2]s'.lock
		exec cp '%[2]s' "$out"
	fi
fi
exec '%[3]s' "$@"
`

func (l *lane) prepare(faults []*fault) (*counting, error) {
	c := &counting{lane: l, faults: faults, dir: filepath.Join(l.work, "counting")}
	c.path, c.bin = filepath.Join(l.work, "path"), filepath.Join(l.work, "tests")
	if len(faults) > reached.Places {
		return nil, fmt.Errorf("%d faults, at most %d can be told apart", len(faults), reached.Places)
	}
	if err := copyTree(l.tree, c.dir); err != nil {
		return nil, err
	}
	shared := filepath.Join(l.work, "reached")
	if err := plantSites(c.dir, faults, shared); err != nil {
		return nil, err
	}
	for _, dir := range []string{c.path, c.bin} {
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	golang, err := exec.LookPath("go")
	if err != nil {
		return nil, err
	}
	script := fmt.Sprintf(wrapper, filepath.Join(c.dir, "cmd/unspool"), filepath.Join(c.bin, "unspool"), golang)
	if err := os.WriteFile(filepath.Join(c.path, "go"), []byte(script), 0o755); err != nil {
		return nil, err
	}
	if c.shared, err = counters(shared); err != nil {
		return nil, err
	}
	for i := range l.jobs {
		own, err := counters(filepath.Join(l.work, fmt.Sprint("reached-", i)))
		if err != nil {
			return nil, err
		}
		c.own = append(c.own, own)
	}
	return c, nil
}

// counters makes a file for counters, which processes of any user may write.
func counters(name string) (*os.File, error) {
	if err := os.RemoveAll(name); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o666); err != nil {
		return nil, err
	}
	return f, f.Truncate(4 * reached.Places)
}

func read(counters *os.File) (counts [reached.Places]uint32, err error) {
	var raw [4 * reached.Places]byte
	_, err = counters.ReadAt(raw[:], 0)
	for i := range counts {
		counts[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return counts, err
}

// tests runs each test of a package, in a process of its own, and notes what it reaches.
func (c *counting) tests(ctx context.Context, pkg string) ([]*test, error) {
	binary := filepath.Join(c.bin, strings.ReplaceAll(pkg, "/", "-")+".test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-trimpath", "-ldflags=-w", "-o", binary,
		"./"+pkg)
	build.Dir, build.Env = c.dir, append(os.Environ(), "CGO_ENABLED=0", "GOGC=800")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", pkg, err, out)
	}
	source, err := testNames(filepath.Join(c.dir, pkg))
	if err != nil {
		return nil, err
	}
	source = slices.DeleteFunc(source, func(name string) bool { return !c.wants(name) })
	tests := make([]*test, len(source))
	next := make(chan int)
	var workers sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for _, own := range c.own {
		workers.Go(func() {
			for i := range next {
				t := &test{pkg: pkg, name: source[i], reached: make(map[string]bool)}
				err := c.count(ctx, t, binary, own)
				if err == nil && t.failed { // for the load, maybe
					err = c.count(ctx, t, binary, own)
				}
				mu.Lock()
				tests[i] = t
				if err != nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	for i := range source {
		next <- i
	}
	close(next)
	workers.Wait()
	for _, t := range tests {
		if t.failed {
			log.Printf("%s %s fails with nothing planted", t.pkg, t.name)
		}
	}
	log.Printf("%s: %d tests", pkg, len(tests))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return tests, failed
}

// testTime is what a test may take to reach what it reaches.
const testTime = 4 * time.Minute

// count runs a test, and adds what it reaches. Processes without a file of their own count in the shared one,
// those of other tests at the same time, too.
func (c *counting) count(ctx context.Context, t *test, binary string, own *os.File) error {
	if err := own.Truncate(0); err != nil {
		return err
	}
	if err := own.Truncate(4 * reached.Places); err != nil {
		return err
	}
	before, err := read(c.shared)
	if err != nil {
		return err
	}
	run := exec.Command(binary, "-test.run=^"+t.name+"$", fmt.Sprint("-test.timeout=", testTime))
	run.Dir = filepath.Join(c.dir, t.pkg)
	run.Env = append(os.Environ(), reached.Variable+"="+own.Name(), "PATH="+c.path+":"+os.Getenv("PATH"))
	began := time.Now()
	output, err := runGroup(ctx, run, testTime+20*time.Second)
	t.failed = err != nil
	t.seconds = time.Since(began).Seconds()
	if t.failed {
		name := filepath.Join(c.work, "failed-"+strings.ReplaceAll(t.pkg, "/", "-")+"-"+t.name+".log")
		if err := os.WriteFile(name, output, 0o666); err != nil {
			return err
		}
	}
	after, err := read(c.shared)
	if err != nil {
		return err
	}
	counts, err := read(own)
	for i, f := range c.faults {
		if counts[i] > 0 || after[i] != before[i] {
			t.reached[f.key()] = true
		}
	}
	return err
}

// mostMemory is what each process of a test may have, as a fault may be that something grows without end.
const mostMemory = 8 << 30

// runGroup runs a command for some time at most, and kills all of its group in the end.
func runGroup(ctx context.Context, cmd *exec.Cmd, within time.Duration) (output []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	out, err := os.CreateTemp("", "faults-") // a pipe would be held open by what outlives the test
	if err != nil {
		return nil, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	limit := unix.Rlimit{Cur: mostMemory, Max: mostMemory}
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_DATA, &limit, nil); err != nil {
		log.Print(err)
	}
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	stop := context.AfterFunc(ctx, kill)
	err = cmd.Wait()
	stop()
	kill()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	output, readErr := os.ReadFile(out.Name())
	if err == nil {
		err = readErr
	}
	return output, err
}

// testNames lists the tests in a folder, also fuzz targets, whose seeds are tests, and examples.
func testNames(dir string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
	for _, name := range files {
		source, readErr := os.ReadFile(name)
		if readErr != nil {
			return nil, readErr
		}
		for _, match := range function.FindAllSubmatch(source, -1) {
			if name := string(match[1]); name != "TestMain" {
				names = append(names, name)
			}
		}
	}
	return names, err
}
