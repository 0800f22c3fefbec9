// Command fuzz gives every fuzz target of the module as many inputs as asked for, in one process after the
// other, and writes what came of it: see [unspool/testdata/inputs] for how inputs are made.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A result is a row of the table.
type result struct {
	pkg, target string
	inputs      int
	cells       []string // what is behind the name and the number
}

func main() {
	inputs := flag.Int("inputs", 10_000_000, "inputs for each target")
	limit := flag.Duration("time", 10*time.Minute, "CPU time for each target")
	seed := flag.Uint64("seed", 1, "another number makes other inputs")
	only := flag.String("only", "", "regular expression for `PACKAGE FuzzName`; the rows of others are kept")
	output := flag.String("o", "bench/FUZZ.md", "file to write")
	flag.Parse()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		log.Fatal(err)
	}
	if err := collect(corpus); err != nil {
		log.Fatal(err)
	}
	targets, err := find()
	if err != nil {
		log.Fatal(err)
	}
	old := readTable(*output)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for i := range targets {
		r := &targets[i]
		if !wanted.MatchString(r.pkg + " " + r.target) {
			if i := slices.IndexFunc(old, r.same); i >= 0 {
				*r = old[i]
			}
			continue
		}
		fmt.Fprintln(os.Stderr, r.pkg, r.target)
		if err := r.run(ctx, *inputs, *limit, *seed); err != nil {
			log.Print(err)
			if i := slices.IndexFunc(old, r.same); i >= 0 {
				*r = old[i]
			}
		}
		if ctx.Err() != nil {
			break
		}
		old = slices.DeleteFunc(old, r.same)
		old = append(old, *r)
		if err := os.WriteFile(*output, table(targets, old, *seed), 0o666); err != nil {
			log.Fatal(err)
		}
	}
}

func (r *result) same(o result) bool { return r.pkg == o.pkg && r.target == o.target }

// find lists the fuzz targets of the module.
func find() (targets []result, err error) {
	function := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	err = filepath.WalkDir(".", func(name string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "testdata/") {
			return err
		}
		source, err := os.ReadFile(name)
		for _, match := range function.FindAllSubmatch(source, -1) {
			targets = append(targets, result{pkg: filepath.Dir(name), target: string(match[1])})
		}
		return err
	})
	return targets, err
}

// memory is where a file takes no disk.
const memory = "/dev/shm"

// run gives a target its inputs.
func (r *result) run(ctx context.Context, inputs int, limit time.Duration, seed uint64) error {
	dir, err := os.MkdirTemp("", "fuzz-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	profile, result := filepath.Join(dir, "coverage"), filepath.Join(dir, "result")
	deps, err := exec.CommandContext(ctx, "go", "list", "-deps", "./"+r.pkg).Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	var own []string // and what they use to decompress and to decode names
	for name := range strings.Lines(string(deps)) {
		name = strings.TrimSpace(name)
		if strings.HasPrefix(name, "unspool/") || strings.HasPrefix(name, "github.com/") {
			own = append(own, name)
		}
	}
	test := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-timeout=0", "-run=^"+r.target+"$",
		"-coverpkg="+strings.Join(own, ","), "-coverprofile="+profile, "./"+r.pkg)
	// An input makes much garbage and keeps little: with the usual GOGC half of the time is the collector's.
	test.Env = append(os.Environ(), "GOGC=800",
		fmt.Sprint("UNSPOOL_INPUTS=", inputs), fmt.Sprint("UNSPOOL_INPUTS_TIME=", limit),
		fmt.Sprint("UNSPOOL_INPUTS_SEED=", seed), "UNSPOOL_INPUTS_LOG="+result)
	if info, err := os.Stat(memory); err == nil && info.IsDir() {
		// Some targets make files. The program itself is where it always is.
		test.Env = append(test.Env, "TMPDIR="+memory, "GOTMPDIR="+os.TempDir())
	}
	said, failed := test.CombinedOutput()
	if failed != nil {
		log.Printf("%s\n%v", said, failed)
	}
	line, err := os.ReadFile(result)
	if err != nil {
		return fmt.Errorf("%s %s ended early: %w", r.pkg, r.target, err)
	}
	value := make(map[string]float64)
	for _, field := range strings.Fields(string(line)) {
		if key, text, ok := strings.Cut(field, "="); ok {
			value[key], err = strconv.ParseFloat(text, 64)
			if err != nil {
				return err
			}
		}
	}
	covered, functions, err := coverage(profile)
	if err != nil {
		return err
	}
	faults := "none"
	if value["failures"] > 0 {
		faults = fmt.Sprint(value["failures"])
	}
	r.inputs = int(value["inputs"])
	r.cells = []string{
		fmt.Sprintf("%.0f", value["inputs"]/max(value["seconds"], 0.1)),
		fmt.Sprintf("%.0f + %.0f", value["seeds"], value["kept"]),
		fmt.Sprintf("%.1f %% of %d", 100*covered, functions),
		fmt.Sprintf("%.1f %%", 100*value["cpu"]), fmt.Sprintf("%.1f %%", 100*value["memory"]),
		faults, time.Now().UTC().Format(time.DateOnly),
	}
	return nil
}

const columns = "| package | target | inputs | inputs/s | seeds | statements | CPU | memory | failures | " +
	"on |\n" +
	"|---|---|---:|---:|---:|---:|---:|---:|---|---|\n"

// readTable reads the rows of a table that was written before.
func readTable(name string) (rows []result) {
	text, err := os.ReadFile(name)
	if err != nil || !strings.Contains(string(text), columns) {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != strings.Count(columns, "---") || !strings.HasPrefix(cells[1], "`") {
			continue
		}
		inputs, err := strconv.Atoi(cells[2])
		if err == nil {
			rows = append(rows, result{strings.Trim(cells[0], "`"), strings.Trim(cells[1], "`"), inputs, cells[3:]})
		}
	}
	return rows
}

// table is the file: what was run, in the order of the targets.
func table(targets, rows []result, seed uint64) []byte {
	var b strings.Builder
	kernel, _ := exec.Command("uname", "-r").Output()
	fmt.Fprintf(&b, explanation, seed, runtime.Version(), strings.TrimSpace(string(kernel)), runtime.NumCPU())
	b.WriteString("\n" + columns)
	sum := 0
	for _, t := range targets {
		if i := slices.IndexFunc(rows, t.same); i >= 0 && rows[i].inputs > 0 {
			r := rows[i]
			fmt.Fprintf(&b, "| `%s` | `%s` | %d | %s |\n", r.pkg, r.target, r.inputs, strings.Join(r.cells, " | "))
			sum += r.inputs
		}
	}
	fmt.Fprintf(&b, "| all | | %d | | | | | | | |\n", sum)
	return []byte(b.String())
}

const explanation = `# Fuzzing

Made by ` + "`make bench-fuzz`" + ` with seed %d, %s,
Linux %s, %d CPUs. Every fuzz target is called with inputs that are [made in its
process](../testdata/inputs/inputs.go): a seed, or an input that had reached something new, with one to eight
changes. Seeds are those of the target, and what this machine has: ELF files and their sections,
` + "`/proc`" + `, recordings by perf, jitdumps of node, programs by gcc. A target with less than
10 million inputs had a limit of CPU time.

- **inputs/s** are of CPU time, with what the checks in the targets and counting coverage take.
- **seeds**: and how many inputs were kept for reaching something new.
- **statements** that ran, of the functions that were called.
- **CPU** and **memory**: the most that one input took, as a share of
  [what it may](../testdata/costs/costs.go): a second and 64 MiB, and for each byte 10 µs and a KiB. CPU time
  is that of the process, with its garbage collector.
- **failures** are panics, wrong results, and inputs that took more than they may.
`
