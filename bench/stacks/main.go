package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"unspool/bench/workloads"
)

func main() {
	var b bench
	only := flag.String("only", "", "record only these programs, by name, separated by commas")
	output := flag.String("o", "", "write the table to this file instead of standard output")
	flag.IntVar(&b.freq, "F", 999, "samples per second and CPU")
	flag.IntVar(&b.stackSize, "stack-size", 32768, "bytes of each stack that the kernel copies")
	flag.DurationVar(&b.perfLimit, "perf-limit", 10*time.Second,
		"how long perf script may take for each program; 0 leaves it out")
	flag.IntVar(&b.places, "places", 0,
		"show that many places where the stacks of each program end early, and wrong edges")
	flag.StringVar(&b.keep, "keep", "", "keep the recordings in this `folder`")
	install := flag.Bool("install", true, "install programs that are missing, with apt-get")
	flag.Parse()
	if err := b.run(*only, *output, *install); err != nil {
		fmt.Fprintln(os.Stderr, "stacks:", err)
		os.Exit(1)
	}
}

// A bench is one run over the programs.
type bench struct {
	freq      int
	stackSize int
	perfLimit time.Duration
	places    int
	keep      string

	root string // of the module
	dir  string // temporary, one folder for each program in it
}

func (b *bench) run(only, output string, install bool) error {
	if os.Getuid() != 0 {
		return fmt.Errorf("needs root, to install programs and to record the servers among them")
	}
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	b.root = filepath.Dir(strings.TrimSpace(string(gomod)))
	b.dir, err = os.MkdirTemp("", "unspool-stacks-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	// The database server runs as another user.
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return err
	}

	chosen := workloads.Programs
	if only != "" {
		names := strings.Split(only, ",")
		chosen = slices.DeleteFunc(slices.Clone(workloads.Programs), func(p workloads.Program) bool {
			return !slices.Contains(names, p.Name)
		})
		if len(chosen) == 0 {
			return fmt.Errorf("no program called %s", only)
		}
	}
	if install {
		workloads.Install(chosen)
	}
	if _, err := exec.LookPath("perf"); err != nil {
		return err
	}
	t := table{bench: b}
	begun := time.Now()
	for i := range chosen {
		p := &chosen[i]
		if m := p.Missing(); m != "" {
			t.leftOut = append(t.leftOut, fmt.Sprintf("%s (no %s)", p.Name, m))
			fmt.Fprintf(os.Stderr, "%-14s left out: no %s\n", p.Name, m)
			continue
		}
		r, err := b.measure(p)
		if err != nil {
			t.leftOut = append(t.leftOut, fmt.Sprintf("%s (%s)", p.Name, firstLine(err.Error())))
			fmt.Fprintf(os.Stderr, "%-14s left out: %v\n", p.Name, err)
			continue
		}
		fmt.Fprintf(os.Stderr, "%-14s %6d samples, complete %s, perf %s, %.0f s\n",
			p.Name, r.user(), r.completeShare(), r.perf, time.Since(begun).Seconds())
		fmt.Fprint(os.Stderr, r.shown.String())
		t.results = append(t.results, r)
	}
	out := os.Stdout
	if output != "" {
		if out, err = os.Create(output); err != nil {
			return err
		}
	}
	if _, err := out.WriteString(t.markdown()); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	if names := t.tooWrong(); len(names) > 0 {
		return fmt.Errorf("more wrong edges than %v %% by CFI or %v %% otherwise: %s", mostByCFI, mostOthers,
			strings.Join(names, ", "))
	}
	return nil
}

// measure records a program and unwinds its samples twice.
func (b *bench) measure(p *workloads.Program) (*result, error) {
	dir := filepath.Join(b.dir, strings.ReplaceAll(p.Name, " ", "-"))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	w := workloads.Workload{Program: p, Root: b.root, Dir: dir, Freq: b.freq, StackSize: b.stackSize,
		Data: true}
	data := filepath.Join(dir, "perf.data")
	if err := w.Record(data); err != nil {
		return nil, err
	}
	if b.keep != "" {
		kept := filepath.Join(b.keep, filepath.Base(dir)+".data")
		if out, err := exec.Command("cp", data, kept).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
	}
	r, err := unwindRecording(data)
	if err != nil {
		return nil, err
	}
	r.program, r.version = p, w.Version()
	b.showPlaces(r) // while the files are there
	b.showWrong(r)
	if b.perfLimit > 0 {
		r.perf, err = perfScript(data, r, b.perfLimit)
	}
	return r, err
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
