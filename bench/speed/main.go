package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"unspool/bench/section"
	"unspool/bench/workloads"
)

// sections are the parts of a run, in order.
var sections = []struct {
	name string
	run  func(*bench) (string, error)
}{
	{"walks", (*bench).programs},
	{"growth", (*bench).growth},
	{"convert", (*bench).convert},
	{"sizes", (*bench).sizes},
	{"live", (*bench).live},
}

func main() {
	var b bench
	var only, programs, output string
	var install bool
	flag.StringVar(&only, "sections", "walks,growth,convert,sizes,live", "what to measure")
	flag.StringVar(&programs, "programs", "",
		"walk only the stacks of these programs, by name, separated by commas")
	flag.StringVar(&output, "o", "", "write the tables to this file instead of standard output")
	flag.StringVar(&b.recordings, "recordings", "",
		"take recordings from this directory, and leave those there that were not (default a temporary one)")
	flag.StringVar(&b.unspool, "unspool", "",
		"measure this executable instead of one built from this tree (sections convert, sizes, live)")
	flag.IntVar(&b.passes, "passes", 5, "of each pass take the best of so many")
	flag.IntVar(&b.freq, "F", 999, "samples per second and CPU of the recordings that are walked")
	flag.Float64Var(&b.gigabytes, "gigabytes", 1, "size of the recording that is converted")
	flag.DurationVar(&b.liveTime, "live-time", 8*time.Second, "how long each recording of section live takes")
	flag.DurationVar(&b.perfLimit, "perf-limit", 90*time.Second, "how long perf script may take")
	flag.BoolVar(&install, "install", true, "install programs that are missing, with apt-get")
	flag.Parse()
	if err := b.run(only, programs, output, install); err != nil {
		fmt.Fprintln(os.Stderr, "speed:", err)
		os.Exit(1)
	}
}

// A bench is one run.
type bench struct {
	recordings string
	unspool    string
	only       map[string]bool // programs, nil for all
	passes     int
	freq       int
	gigabytes  float64
	liveTime   time.Duration
	perfLimit  time.Duration

	root     string // of the module
	dir      string // temporary
	versions map[string]string
	leftOut  []string
	began    time.Time
}

func (b *bench) run(only, programs, output string, install bool) error {
	if os.Getuid() != 0 {
		return errors.New("needs root, to install programs and to record the whole system")
	}
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	b.began = time.Now()
	b.versions = make(map[string]string)
	b.root = filepath.Dir(strings.TrimSpace(string(gomod)))
	if b.dir, err = os.MkdirTemp("", "unspool-speed-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return err
	}
	if b.recordings == "" {
		b.recordings = b.dir
	} else if err := os.MkdirAll(b.recordings, 0o755); err != nil {
		return err
	}
	if programs != "" {
		b.only = make(map[string]bool)
		for p := range strings.SplitSeq(programs, ",") {
			b.only[p] = true
		}
	}
	if install {
		workloads.Install(b.chosen())
	}
	// One thread measures: it stays where its caches are warm.
	runtime.LockOSThread()
	var text []string
	wanted := strings.Split(only, ",")
	for _, s := range sections {
		if !slices.Contains(wanted, s.name) {
			continue
		}
		t, err := s.run(b)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		text = append(text, t)
	}
	if len(text) == 0 {
		return fmt.Errorf("no section called %s", only)
	}
	whole := b.heading() + "\n" + strings.Join(text, "\n") + b.ending()
	if output == "" {
		_, err := os.Stdout.WriteString(whole)
		return err
	}
	// The section that bench/sysprof writes stays.
	return os.WriteFile(output, []byte(section.Join(whole, section.Of(readText(output)+"\n", "Sysprof"))), 0o644)
}

// chosen are the workloads that are recorded.
func (b *bench) chosen() (list []workloads.Program) {
	for _, s := range subjects {
		if p := workloads.Find(s.name); p != nil && (b.only == nil || b.only[s.name]) {
			list = append(list, *p)
		}
	}
	return list
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.0f s  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

func (b *bench) leaveOut(what string, why error) {
	first, _, _ := strings.Cut(why.Error(), "\n")
	b.leftOut = append(b.leftOut, fmt.Sprintf("%s (%s)", what, first))
	b.say("%s left out: %v", what, why)
}

func (b *bench) heading() string {
	commit, _ := exec.Command("git", "-C", b.root, "describe", "--always", "--dirty", "--tags").Output()
	load, _, _ := strings.Cut(readText("/proc/loadavg"), " ")
	return fmt.Sprintf(`# Speed

Made by `+"`make bench`"+`; [README.md](README.md) says what each table is. What was asked for stands beside
what was reached, and is bold where it was missed.

%s %s, unspool %s. The load was %s at the end.

    %s
`, workloads.Machine(), runtime.Version(), strings.TrimSpace(string(commit)), load,
		strings.Join(append([]string{"go run ./bench/speed"}, os.Args[1:]...), " "))
}

func (b *bench) ending() string {
	s := fmt.Sprintf("\nThe run took %.0f s.\n", time.Since(b.began).Seconds())
	if len(b.leftOut) > 0 {
		s += fmt.Sprintf("\nLeft out: %s.\n", strings.Join(b.leftOut, ", "))
	}
	return s
}

func readText(path string) string {
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b))
}
