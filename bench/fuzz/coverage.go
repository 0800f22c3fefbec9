package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
)

// coverage is the share of statements that ran, of the functions that were called, and how many functions
// those are.
func coverage(profile string) (share float64, functions int, err error) {
	f, err := os.Open(profile)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	type place struct {
		file string
		line int // where the function begins
	}
	all, ran := make(map[place]int), make(map[place]int)
	begins := make(map[string][]int) // by file, for each line the one where its function begins
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, block, ok := strings.Cut(lines.Text(), ".go:")
		if !ok || !strings.HasPrefix(name, "unspool/") {
			continue // the mode, or another module
		}
		name = strings.TrimPrefix(name, "unspool/") + ".go"
		var line, column, endLine, endColumn, statements, count int
		if _, err := fmt.Sscanf(block, "%d.%d,%d.%d %d %d", &line, &column, &endLine, &endColumn, &statements,
			&count); err != nil {
			return 0, 0, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		if begins[name] == nil {
			if begins[name], err = functionsOf(name); err != nil {
				return 0, 0, err
			}
		}
		at := place{name, begins[name][line]}
		all[at] += statements
		if count > 0 {
			ran[at] += statements
		}
	}
	sum, reached := 0, 0
	for at, n := range ran {
		sum += all[at]
		reached += n
	}
	return float64(reached) / float64(max(sum, 1)), len(ran), lines.Err()
}

// functionsOf tells for each line of a file in which line the function around it begins.
func functionsOf(name string) ([]int, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	begins := make([]int, set.Position(file.FileEnd).Line+2)
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			for line := set.Position(f.Pos()).Line; line <= set.Position(f.End()).Line; line++ {
				begins[line] = set.Position(f.Pos()).Line
			}
		}
	}
	return begins, nil
}
