package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// A checker tells which faults compile.
type checker struct {
	tree     string
	files    map[string][]string // by folder below the tree: what is compiled on this machine
	importer types.Importer
}

// newChecker compiles the packages of a tree, and what they import.
func newChecker(tree string) (*checker, error) {
	list := exec.Command("go", "list", "-deps", "-export", "-json=Dir,ImportPath,Export,GoFiles", "./...")
	list.Dir, list.Stderr = tree, os.Stderr
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	c := &checker{tree: tree, files: make(map[string][]string)}
	exports := make(map[string]string)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir, ImportPath, Export string
			GoFiles                 []string
		}
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if dir, err := filepath.Rel(tree, p.Dir); err == nil {
			c.files[dir] = p.GoFiles
		}
	}
	c.importer = importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	return c, nil
}

// compiles reports whether the package with the fault compiles.
func (c *checker) compiles(f *fault) bool {
	set := token.NewFileSet()
	var files []*ast.File
	compiled := false
	for _, name := range c.files[f.pkg()] {
		name = filepath.Join(f.pkg(), name)
		source, err := os.ReadFile(filepath.Join(c.tree, name))
		if err != nil {
			return false
		}
		if name == f.file {
			at, err := f.in(c.tree, name)
			if err != nil {
				return false
			}
			source, compiled = f.apply(at), true
		}
		file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
		if err != nil {
			return false
		}
		files = append(files, file)
	}
	config := types.Config{Importer: c.importer, GoVersion: "go1.26"}
	_, err := config.Check("unspool/"+f.pkg(), set, files, nil)
	return compiled && err == nil
}
