package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"unspool/bench/section"
	"unspool/bench/workloads"
)

// title is that of the section of the tables.
const title = "Sysprof"

// errLeftOut means that a root cannot be had, or that Sysprof does not record in it with its own helper.
var errLeftOut = errors.New("left out")

func main() {
	var b bench
	// Go's tools look into no folder whose name begins like this.
	flag.StringVar(&b.roots, "roots", "dist/_sysprof", "keep the roots in this folder")
	flag.StringVar(&b.unspool, "unspool", "bin/unspool", "the program that takes the place of Sysprof's")
	flag.StringVar(&b.output, "o", "", "replace the section in this file instead of printing it")
	flag.StringVar(&b.only, "only", "", "record only scenes with this in their names")
	flag.BoolVar(&b.inside, "inside", false, "")
	flag.Parse()
	err := b.run()
	switch {
	case errors.Is(err, errLeftOut):
		fmt.Fprintln(os.Stderr, "sysprof:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "sysprof:", err)
		os.Exit(1)
	}
}

// A bench is one run.
type bench struct {
	roots, unspool, output, only string

	inside bool // in a mount namespace of its own
	module string
	worse  []string // where unspool did worse than is asked
}

func (b *bench) run() error {
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	b.module = filepath.Dir(strings.TrimSpace(string(gomod)))
	if b.roots, err = filepath.Abs(b.roots); err != nil {
		return err
	}
	if !b.inside {
		return b.enter()
	}
	runtime.LockOSThread() // what it starts is to end with it, not with another thread
	var text strings.Builder
	for _, suite := range suites {
		part, err := b.suite(filepath.Join(b.roots, suite))
		if err != nil {
			return fmt.Errorf("%s: %w", suite, err)
		}
		text.WriteString(part)
	}
	whole := b.heading() + text.String()
	if b.output == "" {
		fmt.Print(whole)
	} else if err := section.Replace(b.output, title, whole); err != nil {
		return err
	}
	for _, w := range b.worse {
		fmt.Fprintln(os.Stderr, "sysprof: less than asked:", w)
	}
	return nil
}

// enter makes the roots, and runs the rest in a mount namespace of its own.
func (b *bench) enter() error {
	for _, suite := range suites {
		bootstrap := exec.Command(filepath.Join(b.module, "bench/sysprof/bootstrap"), suite,
			filepath.Join(b.roots, suite))
		out, err := bootstrap.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: no root of %s: %s", errLeftOut, suite, strings.TrimSpace(string(out)))
		}
	}
	c := exec.Command("/proc/self/exe", append([]string{"-inside"}, os.Args[1:]...)...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(max(1, exit.ExitCode())) // it has said why; 2 is for what was left out
	}
	if err != nil {
		err = fmt.Errorf("%w: no mount namespace: %w", errLeftOut, err)
	}
	return err
}

// heading is the title of the tables, with the command, the programs and the machine that they are of.
func (b *bench) heading() string {
	return fmt.Sprintf(`## %s

Made by `+"`make test-sysprof`"+`. %s

`, title, workloads.Machine())
}

// suite records all scenes in a root, with both helpers.
func (b *bench) suite(dir string) (string, error) {
	r, err := openRoot(dir, b.unspool, b.module)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errLeftOut, err)
	}
	defer r.close()
	t := section.NewTableOf(2, "while running", "helper", "samples", "lost", "complete, %", "µs/sample",
		"asked, × less", "× less", "MiB", "more MiB since it had settled", "open files")
	for i := range scenes {
		s := &scenes[i]
		if !strings.Contains(s.name, b.only) {
			continue
		}
		var results [2]result
		for ours := range results {
			switch results[ours], err = r.record(s, ours == 1); {
			case err != nil && ours == 1:
				return "", fmt.Errorf("%s, unspool: %w", s.name, err)
			case err != nil:
				return "", fmt.Errorf("%w: %s, Sysprof's helper: %w", errLeftOut, s.name, err)
			}
			fmt.Fprintf(os.Stderr, "Sysprof %s, %s: %+v\n", r.version, s.name, results[ours])
		}
		if err := b.judge(r, s, &results); err != nil {
			return "", err
		}
		addScene(t, s, &results)
	}
	note := ""
	if r.clock {
		note = "; sysprofd opens the CPU's clock, as this machine counts no cycles"
	}
	return fmt.Sprintf("### Sysprof %s, of Debian %s%s\n\n%s\n", r.version, filepath.Base(dir), note, t), nil
}

// What is asked: how many per cent of the stacks reach their root, and how many do even on a machine that is
// busy with other things, without which the run has failed.
const (
	leastComplete = 98
	leastEver     = 80
)

// judge notes where less was reached than is asked. How much depends on what else runs on the machine. The
// error says that unspool does not do its work.
func (b *bench) judge(r *root, s *scene, results *[2]result) error {
	theirs, ours := &results[0], &results[1]
	say := func(format string, args ...any) {
		b.worse = append(b.worse, fmt.Sprintf("Sysprof %s, %s: ", r.version, s.name)+fmt.Sprintf(format, args...))
	}
	if ours.lost > 0 {
		say("%d samples were lost", ours.lost)
	}
	if theirs.user == 0 {
		return fmt.Errorf("%w: Sysprof %s, %s: its own helper records no user stacks", errLeftOut, r.version,
			s.name)
	}
	if ours.user == 0 || ours.share() < leastEver {
		return fmt.Errorf("with Sysprof %s, %s: %d of %d stacks are complete", r.version, s.name,
			ours.complete, ours.user)
	}
	if ours.share() < leastComplete || ours.share() < theirs.share()-1 {
		say("%d of %d stacks are complete", ours.complete, ours.user)
	}
	if ours.samples*10 < theirs.samples*9 {
		say("%d samples, Sysprof's helper kept %d", ours.samples, theirs.samples)
	}
	return nil
}
