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
	"unspool/capture/rights/priority"
	"unspool/capture/session"
	"unspool/perfring"
)

func main() {
	var b bench
	only := flag.String("only", "", "record only these programs, by name, separated by commas")
	output := flag.String("o", "", "write the tables to this file instead of standard output")
	flag.IntVar(&b.freq, "F", 999, "samples per second and CPU")
	flag.StringVar(&b.keep, "keep", "",
		"keep the recordings and their programs in this `folder`, and take those that are there")
	copies := flag.Bool("copies", false, "record programs with copies of several sizes, and say what each costs")
	flag.IntVar(&b.runs, "runs", 1, "with -copies, how often each is recorded")
	flag.StringVar(&b.as, "as", "", "with -copies, record as this `user`, who has no rights that others lack")
	install := flag.Bool("install", true, "install programs that are missing, with apt-get")
	size := flag.Int("live", 0,
		"record the command that is given, and cut its copies to so many `bytes` meanwhile")
	ordinary := flag.Bool("ordinary", false, "with -live, stay at ordinary priority")
	flag.Parse()
	err := error(nil)
	if *size > 0 && flag.NArg() > 0 {
		if !*ordinary {
			defer priority.Raise().Restore()
		}
		t := trial{size: uint64(*size), atOnce: true}
		if err = live(exec.Command(flag.Arg(0), flag.Args()[1:]...), b.freq, &t); err == nil {
			fmt.Println(t.line())
		}
	} else if flag.NArg() > 0 {
		err = b.files(flag.Args())
	} else {
		err = b.run(*only, *output, *install, *copies)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "joins:", err)
		os.Exit(1)
	}
}

// programs are those whose stacks are deep, by their names in package workloads.
var programs = []string{"clang", "rustc", "cc1plus", "go build", "python3", "git log", "node", "ruby", "perl",
	"postgres", "sqlite3", "nginx (TLS)", "blender", "libreoffice"}

// A bench is one run over the programs.
type bench struct {
	freq int
	runs int
	keep string
	root string // of the module
	dir  string // temporary, one folder for each program in it
	as   string // the user who records programs with copies of several sizes; "" for who runs this
}

func (b *bench) run(only, output string, install, copies bool) error {
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	b.root = filepath.Dir(strings.TrimSpace(string(gomod)))
	if b.keep != "" {
		if err := os.MkdirAll(b.keep, 0o755); err != nil {
			return err
		}
		if b.dir, err = filepath.Abs(b.keep); err != nil {
			return err
		}
	} else if b.dir, err = os.MkdirTemp("", "unspool-joins-"); err != nil {
		return err
	} else {
		defer os.RemoveAll(b.dir)
	}
	// The database server runs as another user.
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return err
	}
	names := programs
	for i := range workloads.Breaking {
		names = append(names, workloads.Breaking[i].Name)
	}
	if copies {
		names = copied
	}
	if only != "" {
		names = strings.Split(only, ",")
	}
	var chosen []workloads.Program
	for _, name := range names {
		p := workloads.Find(name)
		if p == nil {
			return fmt.Errorf("no program called %s", name)
		}
		chosen = append(chosen, *p)
	}
	if install {
		workloads.Install(chosen)
	}
	if copies {
		text, err := b.copies(chosen)
		if err != nil {
			return err
		}
		return write(output, text)
	}
	t := table{bench: b}
	for i := range chosen {
		p := &chosen[i]
		r, err := b.measure(p)
		if err != nil {
			line, _, _ := strings.Cut(err.Error(), "\n")
			t.leftOut = append(t.leftOut, fmt.Sprintf("%s (%s)", p.Name, line))
			fmt.Fprintf(os.Stderr, "%-14s left out: %v\n", p.Name, err)
			continue
		}
		fmt.Fprintf(os.Stderr, "%-14s %6d samples\n", p.Name, r.user)
		t.results = append(t.results, r)
	}
	return write(output, t.markdown())
}

// write writes text to a file, or to standard output if there is no name.
func write(output, text string) error {
	if output == "" {
		_, err := os.Stdout.WriteString(text)
		return err
	}
	return os.WriteFile(output, []byte(text), 0o644)
}

// A result is what became of the samples of one program.
type result struct {
	name     string
	user     uint64
	outcomes map[int]map[time.Duration]*outcome // by size of the copy, and how long samples wait
}

var (
	sizes = []int{4 << 10, 8 << 10, 16 << 10, 32 << 10}
	waits = []time.Duration{25 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, time.Second}
)

// measure records a program, and cuts the copies of its stack.
func (b *bench) measure(p *workloads.Program) (*result, error) {
	data, err := b.record(p)
	if err != nil {
		return nil, err
	}
	return judgeFile(p.Name, data)
}

// files judges recordings that are there.
func (b *bench) files(paths []string) error {
	t := table{bench: b}
	for _, path := range paths {
		r, err := judgeFile(strings.TrimSuffix(filepath.Base(path), ".data"), path)
		if err != nil {
			return err
		}
		t.results = append(t.results, r)
	}
	_, err := os.Stdout.WriteString(t.rows() + t.markdown())
	return err
}

// judgeFile cuts the copies of a recording.
func judgeFile(name, data string) (*result, error) {
	rec, err := readWhole(data)
	if err != nil {
		return nil, err
	}
	r := &result{name: name, user: rec.user, outcomes: make(map[int]map[time.Duration]*outcome)}
	for _, size := range sizes {
		r.outcomes[size] = make(map[time.Duration]*outcome)
		for _, after := range waits {
			if r.outcomes[size][after], err = rec.judge(uint64(size), after); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// record gives the path of a recording with the largest copies that there are.
func (b *bench) record(p *workloads.Program) (path string, err error) {
	dir := filepath.Join(b.dir, strings.ReplaceAll(p.Name, " ", "-"))
	data := filepath.Join(dir, "perf.data")
	if _, err := os.Stat(data); err == nil {
		return data, nil // kept
	}
	if m := p.Missing(); m != "" {
		return "", fmt.Errorf("no %s", m)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	w := workloads.Workload{Program: p, Root: b.root, Dir: dir, Freq: b.freq, StackSize: perfring.MaxStackSize}
	return data, w.Record(data)
}

// A table is what is written about all programs.
type table struct {
	*bench
	results []*result // the programs made to break it last
	leftOut []string
}

// parts are the programs that do not know of us, and those made to break it.
func (t *table) parts() (others, made []*result) {
	for _, r := range t.results {
		if slices.ContainsFunc(workloads.Breaking, func(p workloads.Program) bool { return p.Name == r.name }) {
			made = append(made, r)
		} else {
			others = append(others, r)
		}
	}
	return others, made
}

func (t *table) markdown() string {
	var s strings.Builder
	s.WriteString(intro)
	programs, made := t.parts()
	for _, part := range []struct {
		title   string
		results []*result
	}{{"How long samples wait", programs}, {"The same for the programs made to break it", made}} {
		if len(part.results) > 0 {
			fmt.Fprintf(&s, "\n## %s\n\n%s.\n\nAll together, each with the same weight:\n\n", part.title, names(part.results))
			writeWaits(&s, part.results)
		}
	}
	if len(t.leftOut) > 0 {
		fmt.Fprintf(&s, "\nLeft out: %s.\n", strings.Join(t.leftOut, ", "))
	}
	return s.String()
}

// names lists programs with the numbers of their samples.
func names(results []*result) string {
	var list []string
	for _, r := range results {
		list = append(list, fmt.Sprintf("%s (%d)", r.name, r.outcomes[sizes[0]][waits[0]].all))
	}
	return strings.Join(list, ", ")
}

// rows are the outcomes of each program, by the size of copies.
func (t *table) rows() string {
	var s strings.Builder
	for _, after := range []time.Duration{session.JoinAfter, session.JoinAfterRecorded} {
		fmt.Fprintf(&s, "Samples wait for %v:\n\n", after)
		t.writeShares(&s, after)
		s.WriteString("\n")
	}
	return s.String()
}

const intro = `# Joined stacks

` + "`make bench-joins`" + ` records real programs with copies of up to 64 KiB, cuts the copies in memory, has
the stacks completed with what was seen of them before and after each sample (package unwind/link), and
compares them with what they are. Samples whose stack does not fit into 64 KiB are left out, as nobody knows
what is right. A stack is wrong if any of its frames is.

The last programs (callers, recursion, longjmp, coroutines and so on) are made to break it: by chance, every
so many microseconds, they leave a function and enter it again at the same place on the stack from somewhere
else. Most of them tell in a register which way led to where they are, so that stacks larger than 64 KiB are
judged, too. ` + "`go run ./bench/joins FILE…`" + ` judges recordings, with a row for each size of copies.
`

// writeShares writes a line for each program and size.
func (t *table) writeShares(s *strings.Builder, after time.Duration) {
	s.WriteString("| program | samples | copy | complete by the copy | joined | wrong | in all | doubtful | " +
		"disagree | one-sided | unseen |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range t.results {
		for _, size := range sizes {
			o := r.outcomes[size][after]
			fmt.Fprintf(s, "| %s | %d | %d KiB | %s | %s | %d | %s |", r.name, o.all, size>>10,
				o.share(o.byCopy), o.share(o.joined), o.wrong, o.share(o.byCopy+o.joined))
			for _, l := range left {
				fmt.Fprintf(s, " %s |", o.share(o.links[l]))
			}
			s.WriteString("\n")
		}
	}
}

// writeWaits writes how much is complete, and wrong, by how long samples wait.
func writeWaits(s *strings.Builder, results []*result) {
	s.WriteString("| copy | wait | complete by the copy | in all | samples | joined | wrong | " +
		"of the joined |\n" +
		"|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, size := range sizes {
		for _, after := range waits {
			var byCopy, all float64
			samples, joined, wrong, programs := 0, 0, 0, 0
			for _, r := range results {
				o := r.outcomes[size][after]
				if o.all == 0 {
					continue // the truth is not known of any, as where the program has gone since
				}
				programs++
				byCopy += float64(o.byCopy) / float64(o.all)
				all += float64(o.byCopy+o.joined) / float64(o.all)
				samples += o.all
				joined += o.joined
				wrong += o.wrong
			}
			n := float64(max(programs, 1)) / 100
			fmt.Fprintf(s, "| %d KiB | %v | %.1f %% | %.1f %% | %d | %d | %d | %.3f %% |\n", size>>10, after, byCopy/n,
				all/n, samples, joined, wrong, 100*float64(wrong)/float64(max(joined, 1)))
		}
	}
}

// share is a share of the samples, in words.
func (o *outcome) share(n int) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(o.all))
}
