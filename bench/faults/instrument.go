package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"unspool/bench/faults/reached"
)

//go:embed reached/reached.go
var reachedSource string

// A site is a line of a source file, by where it begins, and the number that it is counted by.
type site struct{ begin, number int }

// instrument makes a source file count when the sites are reached: before the innermost statement around the
// beginning of each, or around what follows it in its line. The numbers of lines stay.
func instrument(source []byte, sites []site) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	type insertion struct {
		at   int
		text string
	}
	insertions := []insertion{{offset(file.Name.End()), `; import _reached "unspool/bench/faults/reached"`}}
	for _, s := range sites {
		end := len(source)
		if n := bytes.IndexByte(source[s.begin:], '\n'); n >= 0 {
			end = s.begin + n
		}
		around, inside := -1, -1
		ast.Inspect(file, func(n ast.Node) bool {
			for _, statement := range statementsOf(n) {
				switch at := offset(statement.Pos()); {
				case at <= s.begin && s.begin < offset(statement.End()):
					around = max(around, at)
				case at > s.begin && at < end && (inside < 0 || at < inside):
					inside = at
				}
			}
			return true
		})
		if around < 0 {
			around = inside // a function in one line
		}
		if around < 0 {
			return nil, fmt.Errorf("no statement at line %d", 1+bytes.Count(source[:s.begin], []byte("\n")))
		}
		insertions = append(insertions, insertion{around, fmt.Sprintf("_reached.Hit(%d); ", s.number)})
	}
	slices.SortStableFunc(insertions, func(a, b insertion) int { return a.at - b.at })
	var out []byte
	at := 0
	for _, i := range insertions {
		out = append(append(out, source[at:i.at]...), i.text...)
		at = i.at
	}
	return append(out, source[at:]...), nil
}

// statementsOf are the statements of a list, before which there can be another one.
func statementsOf(n ast.Node) []ast.Stmt {
	switch n := n.(type) {
	case *ast.CaseClause:
		return n.Body
	case *ast.CommClause:
		return n.Body
	case *ast.BlockStmt:
		if len(n.List) > 0 {
			switch n.List[0].(type) {
			case *ast.CaseClause, *ast.CommClause:
				return nil
			}
		}
		return n.List
	}
	return nil
}

// plantSites instruments a copy of a tree for the faults, whose numbers are their indices. shared is the file
// for the counters of processes that do not know another one.
func plantSites(tree string, faults []*fault, shared string) error {
	sites := make(map[string][]site)
	for i, f := range faults {
		at, err := f.locate(tree)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		sites[at.file] = append(sites[at.file], site{at.begin, i})
	}
	for name, sites := range sites {
		path := filepath.Join(tree, name)
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if source, err = instrument(source, sites); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(path, source, 0o644); err != nil {
			return err
		}
	}
	dir := filepath.Join(tree, "bench/faults/reached")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	source := strings.ReplaceAll(reachedSource, strconv.Quote(reached.Shared), strconv.Quote(shared))
	return os.WriteFile(filepath.Join(dir, "reached.go"), []byte(source), 0o644)
}
