package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"unspool/bench/section"
	"unspool/bench/workloads"
)

// experiments are the parts of a run, in order.
var experiments = []struct {
	name, title string
	run         func(*bench) (string, error)
}{
	{"walks", "Walking 64 frames", (*bench).walks},
	{"sizes", "Size of recordings, and stacks that are cut", (*bench).sizes},
	{"rates", "CPU time at 20, 999 and 10,000 Hz", (*bench).rates},
	{"reports", "Until there is a report", (*bench).reports},
}

func main() {
	var b bench
	only := flag.String("sections", "walks,sizes,rates,reports", "what to measure")
	output := flag.String("o", "", "write the sections into this `file` instead of standard output")
	flag.StringVar(&b.newPerf, "perf7", "dist/_sysprof/commands/perf",
		"the newer `perf`, as bench/sysprof/commands makes it; left out if it is not there")
	flag.StringVar(&b.python, "python", "/usr/bin/python3", "the `python3` that is recorded: not a script that starts it")
	flag.IntVar(&b.runs, "runs", 5, "how often each is recorded for rates, of which the least counts")
	flag.Parse()
	if err := b.run(strings.Split(*only, ","), *output); err != nil {
		fmt.Fprintln(os.Stderr, "pep831:", err)
		os.Exit(1)
	}
}

// A bench is one run.
type bench struct {
	newPerf, python string
	runs            int

	root, dir string // of the module; temporary
	unspool   string
	perfs     []perf
	claims    [][]string // rows of the table of what the PEP claims
	began     time.Time
}

// A perf is an installed version of it.
type perf struct{ path, version string }

func (b *bench) run(only []string, output string) error {
	if os.Getuid() != 0 {
		return errors.New("needs root, so that perf may sample the kernel and take 10,000 samples a second")
	}
	if err := b.prepare(); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	for _, e := range experiments {
		if !slices.Contains(only, e.name) {
			continue
		}
		text, err := e.run(b)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		text = "## " + e.title + "\n\n" + text + "\n" + b.footing(e.name)
		if err := put(output, e.title, text); err != nil {
			return err
		}
	}
	if len(only) < len(experiments) {
		return nil // the table is of one run
	}
	return put(output, claimsTitle, "## "+claimsTitle+"\n\n"+workloads.Machine()+"\n\n"+b.claimed())
}

// put writes a section into the output file, or to standard output if it is "".
func put(output, title, text string) error {
	if output == "" {
		_, err := fmt.Println(text)
		return err
	}
	return section.Replace(output, title, text)
}

// claimsTitle is the heading of the table of all experiments.
const claimsTitle = "The PEP's figures"

// claim adds a row: what the PEP says, and what is measured with each perf, and with unspool.
func (b *bench) claim(what, pep string, perfs []string, unspool string) {
	b.claims = append(b.claims, append(append([]string{what, pep}, perfs...), unspool))
}

func (b *bench) claimed() string {
	head := []string{"", "PEP"}
	for _, p := range b.perfs {
		head = append(head, p.version)
	}
	t := section.NewTable(append(head, "unspool")...)
	for _, row := range b.claims {
		t.Add(row...)
	}
	return t.String()
}

// prepare builds what is measured, and what it is measured with.
func (b *bench) prepare() error {
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	b.began, b.root = time.Now(), filepath.Dir(strings.TrimSpace(string(gomod)))
	if b.dir, err = os.MkdirTemp("", "unspool-pep831-"); err != nil {
		return err
	}
	b.unspool = b.path("unspool")
	for _, args := range [][]string{
		{"go", "build", "-C", b.root, "-trimpath", "-o", b.unspool, "./cmd/unspool"},
		{"gcc", "-O2", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-o", b.path("walk"),
			filepath.Join(b.root, "bench/pep831/programs/walk.c")},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", args[0], err, out)
		}
	}
	for _, path := range []string{"perf", b.newPerf} {
		out, err := exec.Command(path, "--version").Output()
		if err != nil {
			if path == b.newPerf {
				break
			}
			return fmt.Errorf("%s: %w", path, err)
		}
		// "perf version 6.1.187"
		words := strings.Fields(string(out))
		version := strings.Join(strings.SplitN(words[len(words)-1], ".", 3)[:2], ".")
		b.perfs = append(b.perfs, perf{path, "perf " + version})
	}
	return nil
}

// path is that of a temporary file.
func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.0f s  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// footing says when and how a section was made.
func (b *bench) footing(name string) string {
	commit, _ := exec.Command("git", "-C", b.root, "describe", "--always", "--tags").Output()
	load, _ := os.ReadFile("/proc/loadavg")
	minute, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%s, unspool %s, load %s: `go run ./bench/pep831 -sections %s -o bench/PEP831.md`\n",
		time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(commit)), minute, name)
}
