package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"unspool/bench/section"
	"unspool/bench/workloads"
)

const (
	title = "Kernels and releases"
	log   = "dist/kernels.log"

	// tests is the binary of cmd/unspool's tests.
	tests = "dist/kernels.test"
)

// errLeftOut means that a root or a kernel cannot be had.
var errLeftOut = errors.New("left out")

func main() {
	kernels := flag.String("kernels", "bullseye bookworm trixie trixie-backports sid", "Debian's releases")
	output := flag.String("o", "", "replace the section in this file instead of printing it")
	flag.Parse()
	err := run(strings.Fields(*kernels), *output)
	switch {
	case errors.Is(err, errLeftOut):
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

func run(suites []string, output string) error {
	for _, suite := range suites {
		if err := makeRoot(suite); err != nil {
			return fmt.Errorf("%w: %w", errLeftOut, err)
		}
	}
	began := time.Now()
	to, err := os.Create(log)
	if err != nil {
		return err
	}
	defer to.Close()
	booted, here, outside := &table{head: "kernel"}, &table{head: "root"}, &table{head: "root"}
	for _, suite := range suites {
		// What the tests compile in a root is kept there for its kernel, on which compiling takes long.
		here.add(suite, judge(test("TestKernel", "root", "bench/kernels/enter", rootOf(suite)), to, suite+", this kernel"))
	}
	var roots []string
	for _, suite := range suites {
		root, err := filepath.Abs(rootOf(suite)) // chroot and the recording name it alike
		if err != nil {
			return err
		}
		roots = append(roots, root)
	}
	programs := test("TestProgramsOfRoots", "root", "env", "UNSPOOL_ROOTS="+strings.Join(roots, ":"))
	outside.split(judge(programs, to, "programs of the roots"))
	for i, r := range bootAll(suites, to) {
		booted.add(strings.TrimSpace(suites[i]+" "+r.kernel), r)
	}

	text := fmt.Sprintf(about, title, workloads.Machine(), time.Since(began).Round(time.Second), booted, here, outside)
	failed := booted.failed + here.failed + outside.failed
	if failed > 0 {
		err = fmt.Errorf("%d failed: see %s", failed, log)
	}
	if output == "" {
		fmt.Print(text)
		return err
	}
	return errors.Join(err, section.Replace(output, title, text))
}

// bootAll runs the test on the kernels, on two at a time: each keeps a CPU busy.
func bootAll(suites []string, to io.Writer) []*results {
	all, slots := make([]*results, len(suites)), make(chan bool, 2)
	var running sync.WaitGroup
	for i, suite := range suites {
		slots <- true
		running.Go(func() {
			all[i] = judge(test("TestKernel", "kernel", ".ci/kernel", suite, rootOf(suite)), to, suite)
			<-slots
		})
	}
	running.Wait()
	return all
}

const about = `## %s

Made by ` + "`make test-kernels`" + `. %s The tests took %v; making the roots takes a quarter of an hour, once.

Each of these kernels was booted by qemu (TCG, one CPU), with a root of its release: its C library, compiler and perf.
**ok**: as wanted. Events are counted (page faults, breakpoints, a tracepoint), and programs know their chains; the
clock of the virtual machine goes by its instructions.

- *-a*: at 99 Hz, and once more with an event of a known number
- *deep stacks*: how many of those of which 1 KiB is copied were whole; that others were cut off is said
- *perf*: the release's perf reads a recording, and its own recording is converted
- *confined*: which protections of the kernel are in force besides the user and the capabilities; Landlock's version
- *user, paranoid N*: an ordinary user records at this kernel.perf_event_paranoid; at 3, is told what to do
- *capabilities*: the highest level at which a copy with capabilities records; above it, the user is told what to do

%v
On this machine's kernel, in the same roots:

%v
Programs that were compiled in these roots (*qsort*: with their C library, *-musl* and *-static*: with musl), recorded
from outside of the root: their chains, their names, and the package that has the symbols of their C library.

%v`

// rootOf is where the root of a release is, and programs of it in srv/unspool.
func rootOf(suite string) string { return filepath.Join("dist/kernels", suite, "root") }

// makeRoot makes the root of a release, with compilers and perf, and programs in it.
func makeRoot(suite string) error {
	from := ""
	if strings.HasSuffix(suite, "-backports") {
		from = "/" + suite
	}
	packages := "g++,libc6-dev,linux-base,linux-perf" + from + ",musl-tools"
	root := rootOf(suite)
	if out, err := exec.Command("bench/sysprof/bootstrap", suite, root, packages, "apt").CombinedOutput(); err != nil {
		return fmt.Errorf("no root of %s: %s", suite, strings.TrimSpace(string(out)))
	}
	programs := filepath.Join(root, "srv/unspool")
	if _, err := os.Stat(programs); err == nil {
		return nil
	}
	script := `mkdir -p "$1" && cp testdata/programs/src/{chain.h,qsort.c} "$1" && cd "$1"/../.. && chroot . sh -ec '
		cd srv/unspool
		gcc -O2 -o qsort qsort.c
		musl-gcc -O2 -o qsort-musl qsort.c
		musl-gcc -O2 -static -o qsort-static qsort.c
		rm chain.h qsort.c'`
	if out, err := exec.Command("bash", "-c", script, "bash", programs).CombinedOutput(); err != nil {
		_ = os.RemoveAll(programs)
		return fmt.Errorf("programs of %s: %s", suite, strings.TrimSpace(string(out)))
	}
	return nil
}

// test is a command that runs a test of cmd/unspool by another command.
func test(name, lane string, by ...string) *exec.Cmd {
	script := `uname -r; cd cmd/unspool && exec ../../` + tests + ` -test.v -test.count=1 -test.run "^$0\$"`
	cmd := exec.Command(by[0], append(by[1:], "sh", "-c", script, name)...)
	cmd.Env = append(os.Environ(), "UNSPOOL_LANE="+lane, "HOME=/root", "PERF_CONFIG=/dev/null", "DEBUGINFOD_URLS=")
	return cmd
}

// judge runs a test, and returns what its subtests came to. What it prints goes to a log at once, when it has ended.
func judge(cmd *exec.Cmd, to io.Writer, what string) *results {
	began := time.Now()
	out, err := cmd.CombinedOutput()
	fmt.Fprintf(to, "# %s\n%s", what, out)
	r := &results{took: time.Since(began)}
	for line := range strings.Lines(string(out)) {
		r.line(strings.TrimRight(line, "\r\n"))
	}
	if err != nil && !r.anyFailed() { // it did not get to its end
		r.all = append(r.all, result{name: "the end", text: "**" + err.Error() + "**", failed: true})
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", what, r)
	return r
}
