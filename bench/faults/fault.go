package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A fault is a line of the product that is replaced by a wrong one.
type fault struct {
	id       int
	file     string // below the module's root
	function string // "name", or "Type.name" for a method
	line     int    // when it was chosen; a hint for readers only
	nth      int    // which of the function's lines with this text, from 1
	kind     string
	before   string // the line, without white space around it
	after    string
}

const header = "id\tfile\tfunction\tline\tnth\tkind\tbefore\tafter\n"

func (f *fault) String() string {
	return fmt.Sprintf("%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n",
		f.id, f.file, f.function, f.line, f.nth, f.kind, f.before, f.after)
}

// key names the fault independently of the number that it has in a list, and of the file, which may be moved.
func (f *fault) key() string {
	h := fnv.New32a()
	fmt.Fprint(h, f.function, f.nth, f.before, f.after)
	return fmt.Sprintf("%08x", h.Sum32())
}

func (f *fault) pkg() string { return filepath.Dir(f.file) }

// readFaults reads a list of faults. Lines that begin with # are comments.
func readFaults(name string) (faults []*fault, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line == header || strings.HasPrefix(line, "#") {
			continue
		}
		c := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(c) != strings.Count(header, "\t")+1 {
			return nil, fmt.Errorf("%s:%d: %d columns", name, n, len(c))
		}
		f := &fault{file: c[1], function: c[2], kind: c[5], before: c[6], after: c[7]}
		for at, number := range map[int]*int{0: &f.id, 3: &f.line, 4: &f.nth} {
			if *number, err = strconv.Atoi(c[at]); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", name, n, err)
			}
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// A place is where a fault's line is in a tree: source[begin:end], without the white space around it.
type place struct {
	file       string // below the tree
	source     []byte
	begin, end int
}

// locate finds the line of a fault in a tree, also if the code has moved: the function is looked for in the
// file, then in the other files of its folder, then in all.
func (f *fault) locate(tree string) (place, error) {
	if at, err := f.in(tree, f.file); err == nil {
		return at, nil
	}
	files, err := productFiles(tree)
	if err != nil {
		return place{}, err
	}
	inFolder := func(name string) bool { return filepath.Dir(name) == f.pkg() }
	for _, wanted := range []func(string) bool{inFolder, func(string) bool { return true }} {
		var found []place
		for _, name := range files {
			if !wanted(name) {
				continue
			}
			if at, err := f.in(tree, name); err == nil {
				found = append(found, at)
			}
		}
		if len(found) == 1 {
			return found[0], nil
		}
	}
	return place{}, fmt.Errorf("fault %d: %s has no line %q, nor has another file", f.id, f.function, f.before)
}

func (f *fault) in(tree, name string) (place, error) {
	source, err := os.ReadFile(filepath.Join(tree, name))
	if err != nil {
		return place{}, err
	}
	begin, ok := f.find(source)
	if !ok {
		return place{}, fs.ErrNotExist
	}
	return place{name, source, begin, begin + len(f.before)}, nil
}

// find returns where the fault's line begins in a source file.
func (f *fault) find(source []byte) (begin int, ok bool) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution)
	if err != nil {
		return 0, false
	}
	for _, d := range file.Decls {
		d, isFunc := d.(*ast.FuncDecl)
		if !isFunc || nameOf(d) != f.function {
			continue
		}
		at, end, nth := set.Position(d.Pos()).Offset, set.Position(d.End()).Offset, 0
		for line := range bytes.Lines(source[at:end]) {
			if string(bytes.TrimSpace(line)) == f.before {
				if nth++; nth == f.nth {
					return at + bytes.Index(line, []byte(f.before)), true
				}
			}
			at += len(line)
		}
	}
	return 0, false
}

// apply returns the source with the fault in it.
func (f *fault) apply(at place) []byte {
	return slices.Concat(at.source[:at.begin], []byte(f.after), at.source[at.end:])
}

// nameOf is what a list of faults calls a function.
func nameOf(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}

// productFiles lists the Go files of the product: no tests, no programs for tests, no benchmarks, no packages
// that only tests import, whose names end in "test", and nothing for other systems and processors.
func productFiles(tree string) (files []string, err error) {
	err = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(tree, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (name == "bench" || name == "dist" || d.Name() == "testdata" || d.Name()[0] == '.' ||
				strings.HasSuffix(d.Name(), "test")) {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") &&
			!strings.HasSuffix(name, "_arm64.go") {
			files = append(files, name)
		}
		return nil
	})
	return files, err
}
