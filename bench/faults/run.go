package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What becomes of a fault.
const (
	noticed    = "noticed"
	hang       = "hang"    // noticed, as a test did not end in time
	unnoticed  = "not"     // all tests that reach it pass
	unfinished = "not yet" // those that were run pass, and the time was over
	same       = "same"    // written by hand, with the reason in place of a test: no test could notice it
	unreached  = "unreached"
	broken     = "broken" // it does not compile
	gone       = "gone"   // the line is not there
)

// A verdict is what became of a fault in a lane.
type verdict struct {
	id, key string
	outcome string
	pkg     string // of the test that noticed
	test    string
	seconds float64
	left    int // tests that reach the line and were not run
}

const verdictHeader = "id\tkey\toutcome\tpackage\ttest\tseconds\tleft\n"

func (v *verdict) String() string {
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%.0f\t%d\n",
		v.id, v.key, v.outcome, v.pkg, v.test, v.seconds, v.left)
}

// readVerdicts reads what became of faults, by key. Of several about one the last one counts.
func readVerdicts(name string) (map[string]*verdict, error) {
	verdicts := make(map[string]*verdict)
	text, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return verdicts, nil
	}
	for line := range strings.Lines(string(text)) {
		c := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if line == verdictHeader || len(c) != strings.Count(verdictHeader, "\t")+1 {
			continue // one that was cut short, maybe
		}
		v := &verdict{id: c[0], key: c[1], outcome: c[2], pkg: c[3], test: c[4]}
		v.seconds, _ = strconv.ParseFloat(c[5], 64)
		v.left, _ = strconv.Atoi(c[6])
		verdicts[v.key] = v
	}
	return verdicts, err
}

// A runner plants faults in a copy of a lane's tree.
type runner struct {
	*lane
	dir    string // the copy
	intact string // another copy, in which nothing is planted
	budget time.Duration
	live   *regexp.Regexp // packages whose tests depend on what else the machine does
	tests  []*test
	built  map[string]bool           // executables of tests, of those in dir as long as one fault is planted
	near   map[string]map[string]int // by package, how many imports away each is that imports it
}

// run plants those faults, one at a time, that there is no verdict about, and appends verdicts to the file.
func (r *runner) run(ctx context.Context, faults []*fault, name string) error {
	verdicts, err := readVerdicts(name)
	if err != nil {
		return err
	}
	if r.tests, err = r.reach(ctx, faults); err != nil {
		return err
	}
	if r.near, err = importers(r.tree); err != nil {
		return err
	}
	r.dir, r.intact = filepath.Join(r.work, "tree"), filepath.Join(r.work, "intact")
	for _, dir := range []string{r.dir, r.intact} {
		if err := errors.Join(copyTree(r.tree, dir), os.MkdirAll(dir+"-tests", 0o755)); err != nil {
			return err
		}
	}
	r.built = make(map[string]bool)
	out, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer out.Close()
	if info, err := out.Stat(); err != nil || info.Size() == 0 {
		fmt.Fprint(out, verdictHeader)
	}
	for _, f := range faults {
		if v := verdicts[f.key()]; v != nil && v.outcome != unfinished {
			continue
		} else if v != nil && v.seconds >= r.budget.Seconds() {
			continue // more time is what it takes
		}
		v, err := r.plant(ctx, f)
		if err != nil {
			return err
		}
		log.Printf("%d %s %s: %s %s %s, %.0f s", f.id, f.file, f.function, v.outcome, v.pkg, v.test, v.seconds)
		if _, err := fmt.Fprint(out, v); err != nil {
			return err
		}
	}
	return nil
}

// plant plants a fault, runs the tests that reach it until one fails, and takes it out again.
func (r *runner) plant(ctx context.Context, f *fault) (*verdict, error) {
	began := time.Now()
	v := &verdict{id: strconv.Itoa(f.id), key: f.key()}
	defer func() { v.seconds = time.Since(began).Seconds() }()
	at, err := f.locate(r.dir)
	if err != nil {
		v.outcome = gone
		return v, nil
	}
	path := filepath.Join(r.dir, at.file)
	if err := os.WriteFile(path, f.apply(at), 0o644); err != nil {
		return nil, err
	}
	defer func() {
		maps.DeleteFunc(r.built, func(name string, _ bool) bool { return strings.HasPrefix(name, r.dir+"-tests") })
		if err := os.WriteFile(path, at.source, 0o644); err != nil {
			log.Fatal(err) // the next fault would not be the only one
		}
	}()
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", os.DevNull, "./"+filepath.Dir(at.file))
	build.Dir, build.Env = r.dir, append(os.Environ(), "CGO_ENABLED=0", "GOGC=800")
	if output, err := build.CombinedOutput(); err != nil {
		log.Printf("%s", output)
		v.outcome = broken
		return v, ctx.Err()
	}
	batches := r.batches(f.key(), filepath.Dir(at.file))
	if len(batches) == 0 {
		v.outcome = unreached
		return v, nil
	}
	for i, b := range batches {
		if time.Since(began) > r.budget {
			for _, b := range batches[i:] {
				v.left += len(b.names)
			}
			v.outcome = unfinished
			return v, nil
		}
		if r.try(ctx, f, v, b); ctx.Err() != nil || v.outcome != "" {
			return v, ctx.Err()
		}
	}
	v.outcome = unnoticed
	return v, nil
}

// try runs a batch, without those of its tests that turn out to fail without the fault, too.
func (r *runner) try(ctx context.Context, f *fault, v *verdict, b batch) {
	for len(b.names) > 0 {
		outcome, name, output := r.test(ctx, r.dir, b)
		if outcome == "" || ctx.Err() != nil {
			return
		}
		log := filepath.Join(r.work, fmt.Sprintf("noticed-%d.log", f.id))
		if err := os.WriteFile(log, output, 0o666); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		if !r.doubtful(b.pkg, name) || r.confirm(ctx, b, name, outcome) {
			v.outcome, v.pkg, v.test = outcome, b.pkg, name
			return
		}
		fmt.Fprintf(os.Stderr, "fault %d: %s %s fails by chance\n", f.id, b.pkg, name)
		rest := slices.DeleteFunc(slices.Clone(b.names), func(n string) bool { return n == name })
		if len(rest) == len(b.names) {
			return // not one test, but the whole package
		}
		b.names = rest
	}
}

// doubtful reports whether a test may fail for another reason than a fault.
func (r *runner) doubtful(pkg, name string) bool {
	return r.live.MatchString(pkg) || slices.ContainsFunc(r.tests, func(t *test) bool {
		return t.failed && t.pkg == pkg && (t.name == name || name == "")
	})
}

// confirm reports whether a test passes without the fault, and fails again with it. One that hung is not run
// again with it, as that would take as long.
func (r *runner) confirm(ctx context.Context, b batch, name, outcome string) bool {
	alone := batch{pkg: b.pkg, names: []string{name}, seconds: b.seconds}
	if name == "" || name == "TestMain" {
		alone.names = b.names
	}
	if outcome, _, _ := r.test(ctx, r.intact, alone); outcome != "" {
		return false
	}
	if outcome != hang {
		outcome, _, _ = r.test(ctx, r.dir, alone)
	}
	return outcome != ""
}

// A batch is tests of a package that are run at once.
type batch struct {
	pkg     string
	names   []string
	seconds float64 // of each one alone, together
}

// atOnce is how long the tests of a batch take, each one alone.
const atOnce = 60

// batches are the tests that reach a fault, those first that are likely to notice: those of its package, then
// of packages that import it, in the order of the distance; and those that reach few of all faults.
func (r *runner) batches(key, pkg string) (batches []batch) {
	byPackage := make(map[string][]*test)
	for _, t := range r.tests {
		if t.reached[key] {
			byPackage[t.pkg] = append(byPackage[t.pkg], t)
		}
	}
	distance := func(p string) int {
		d, ok := r.near[pkg][p]
		switch {
		case p == pkg:
			return 0
		case strings.HasPrefix(p, "bench/"):
			return 1000
		case r.live.MatchString(p):
			d += 100
		}
		if !ok {
			d += 50
		}
		return d
	}
	packages := slices.SortedFunc(maps.Keys(byPackage), func(a, b string) int {
		return cmp.Or(distance(a)-distance(b), strings.Compare(a, b))
	})
	for _, p := range packages {
		tests := byPackage[p]
		slices.SortStableFunc(tests, func(a, b *test) int {
			return cmp.Or(len(a.reached)-len(b.reached), cmp.Compare(a.seconds, b.seconds))
		})
		b := batch{pkg: p}
		for _, t := range tests {
			if len(b.names) > 0 && b.seconds+t.seconds > atOnce {
				batches = append(batches, b)
				b = batch{pkg: p}
			}
			b.names = append(b.names, t.name)
			b.seconds += t.seconds
		}
		batches = append(batches, b)
	}
	return batches
}

var (
	failure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	started = regexp.MustCompile(`(?m)^=== RUN   (\w+)`)
	late    = regexp.MustCompile(`(?m)^panic: test timed out after.*\n(?:\s*running tests:\n\s+(\w+))?`)
)

// build compiles the tests of a package in a tree, once for each fault, and returns the path of the
// executable.
func (r *runner) build(ctx context.Context, tree, pkg string) (string, error) {
	binary := filepath.Join(tree+"-tests", strings.ReplaceAll(pkg, "/", "-")+".test")
	if r.built[binary] {
		return binary, nil
	}
	build := exec.Command("go", "test", "-c", "-vet=off", "-trimpath", "-ldflags=-w", "-o", binary, "./"+pkg)
	build.Dir, build.Env = tree, append(os.Environ(), "CGO_ENABLED=0", "GOGC=800")
	output, err := runGroup(ctx, build, 10*time.Minute)
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", pkg, err, output)
	}
	r.built[binary] = true
	return binary, nil
}

// test runs tests in a tree: the outcome is "" if they pass, or do not compile.
func (r *runner) test(ctx context.Context, tree string, b batch) (outcome, name string, output []byte) {
	binary, err := r.build(ctx, tree, b.pkg)
	if err != nil {
		log.Print(err)
		return "", "", nil
	}
	limit := time.Duration(45+3*b.seconds) * time.Second
	cmd := exec.Command(binary, "-test.v", "-test.failfast", "-test.timeout="+limit.String(),
		"-test.run=^("+strings.Join(b.names, "|")+")$", "-test.skip="+r.skip.String())
	cmd.Dir = filepath.Join(tree, b.pkg)
	output, err = runGroup(ctx, cmd, limit+30*time.Second)
	if err == nil {
		return "", "", nil
	}
	last := func(expression *regexp.Regexp) string {
		if all := expression.FindAllSubmatch(output, -1); len(all) > 0 {
			return string(all[len(all)-1][1])
		}
		return ""
	}
	if timeout := late.FindSubmatch(output); timeout != nil {
		return hang, cmp.Or(string(timeout[1]), last(started)), output
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return hang, last(started), output
	}
	if failed := failure.FindSubmatch(output); failed != nil {
		return noticed, string(failed[1]), output
	}
	if bytes.Contains(output, []byte("\npanic: ")) || bytes.Contains(output, []byte("\nfatal error: ")) {
		return noticed, last(started), output
	}
	return noticed, "TestMain", output
}

// importers tells for each package how many imports away each of those is that import it, in tests, too.
func importers(tree string) (map[string]map[string]int, error) {
	list := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	list.Dir = tree
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	direct, tested := make(map[string][]string), make(map[string][]string)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(p.ImportPath, "unspool/")
		for _, path := range p.Imports {
			path = strings.TrimPrefix(path, "unspool/")
			direct[path] = append(direct[path], name)
		}
		for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
			path = strings.TrimPrefix(path, "unspool/")
			tested[path] = append(tested[path], name)
		}
	}
	near := make(map[string]map[string]int)
	for path := range direct {
		distance := map[string]int{path: 0}
		for queue := []string{path}; len(queue) > 0; queue = queue[1:] {
			at := queue[0]
			for _, p := range direct[at] {
				if _, ok := distance[p]; !ok {
					distance[p] = distance[at] + 1
					queue = append(queue, p)
				}
			}
			for _, p := range tested[at] {
				if _, ok := distance[p]; !ok {
					distance[p] = distance[at] + 1
				}
			}
		}
		near[path] = distance
	}
	return near, nil
}
