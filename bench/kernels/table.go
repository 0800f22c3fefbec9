package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"unspool/bench/section"
)

// A result is what a subtest came to.
type result struct {
	name, text string
	failed     bool
}

// results are those of one run of a test, in their order.
type results struct {
	kernel string // the first line: uname -r
	all    []result
	took   time.Duration

	runs    string            // the subtest that runs
	figures map[string]string // by subtest
}

var (
	running = regexp.MustCompile(`^=== RUN +[^/]+/(.*)$`)
	ended   = regexp.MustCompile(`^ +--- (PASS|FAIL|SKIP): [^/]+/(.*) \(.*\)$`)
	figure  = regexp.MustCompile(`^ +[a-z_]+\.go:\d+: figure: (.*)$`)
	version = regexp.MustCompile(`^\d+\.\d+\.\S*$`)
)

// line reads a line of go test -v.
func (r *results) line(text string) {
	switch {
	case r.kernel == "" && version.MatchString(text):
		r.kernel = text
	case running.MatchString(text):
		r.runs = running.FindStringSubmatch(text)[1]
	case figure.MatchString(text):
		if r.figures == nil {
			r.figures = make(map[string]string)
		}
		r.figures[r.runs] = figure.FindStringSubmatch(text)[1]
	case ended.MatchString(text):
		m := ended.FindStringSubmatch(text)
		said := map[string]string{"PASS": "ok", "FAIL": "**failed**", "SKIP": "–"}[m[1]]
		if f := r.figures[m[2]]; f != "" && m[1] == "PASS" {
			said = f
		}
		r.all = append(r.all, result{strings.ReplaceAll(m[2], "_", " "), said, m[1] == "FAIL"})
	}
}

func (r *results) anyFailed() bool {
	return slices.ContainsFunc(r.all, func(r result) bool { return r.failed })
}

func (r *results) String() string {
	var failed []string
	for _, one := range r.all {
		if one.failed {
			failed = append(failed, one.name)
		}
	}
	said := "ok"
	if len(failed) > 0 {
		said = "FAILED: " + strings.Join(failed, ", ")
	}
	return fmt.Sprintf("%s, in %v", said, r.took.Round(time.Second))
}

// A table has a row for each run, and a column for each subtest.
type table struct {
	head    string // of the first column
	columns []string
	rows    []row
	failed  int
}

type row struct {
	name  string
	took  time.Duration // 0 for none
	cells map[string]string
}

// add adds the row of a run.
func (t *table) add(name string, r *results) {
	cells := row{name, r.took, make(map[string]string)}
	for _, one := range r.all {
		t.set(&cells, one.name, one)
	}
	t.rows = append(t.rows, cells)
}

func (t *table) set(to *row, column string, r result) {
	if !slices.Contains(t.columns, column) {
		t.columns = append(t.columns, column)
	}
	to.cells[column] = r.text
	if r.failed {
		t.failed++
	}
}

// split adds a row for each first word of the subtests' names; the rest of the name is a column.
func (t *table) split(r *results) {
	for _, one := range r.all {
		name, column, _ := strings.Cut(one.name, " ")
		i := slices.IndexFunc(t.rows, func(r row) bool { return r.name == name })
		if i < 0 {
			i = len(t.rows)
			t.rows = append(t.rows, row{name: name, cells: make(map[string]string)})
		}
		t.set(&t.rows[i], column, one)
	}
}

func (t *table) String() string {
	text := section.NewTableOf(1+len(t.columns), slices.Concat([]string{t.head}, t.columns, []string{"took"})...)
	for _, r := range t.rows {
		cells := []string{r.name}
		for _, c := range t.columns {
			cells = append(cells, r.cells[c])
		}
		took := ""
		if r.took > 0 {
			took = fmt.Sprintf("%.0f s", r.took.Seconds())
		}
		text.Add(append(cells, took)...)
	}
	return text.String()
}
