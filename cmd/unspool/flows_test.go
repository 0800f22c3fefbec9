package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFlows looks for the functions and types that the chapter's drawing names, such as vmas.Table and
// dwarfcfi.Table.Row.
func TestFlows(t *testing.T) {
	text, err := os.ReadFile(chapter)
	if err != nil {
		t.Fatal(err)
	}
	_, drawing, _ := strings.Cut(string(text), "## Two flows\n\n")
	drawing, _, _ = strings.Cut(drawing, "\n\n")
	named := regexp.MustCompile(`\b[a-z]+\.[A-Z]\w*(\.[A-Z]\w*)?`).FindAllString(drawing, -1)
	if lines := strings.Count(drawing, "\n"); lines > 22 || len(named) < 15 {
		t.Errorf("the drawing has %d lines, and names %d functions and types", lines, len(named))
	}
	declared := make(map[string]bool)
	for folder := range ourImports(t) {
		files, err := filepath.Glob("../../" + folder + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				declare(t, path.Base(folder), file, declared)
			}
		}
	}
	for _, name := range named {
		if !declared[name] {
			t.Errorf("%s: there is no %s", chapter, name)
		}
	}
}

// declare adds what a file of a package declares: types with their methods, and functions.
func declare(t *testing.T, of, file string, declared map[string]bool) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range parsed.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			declared[of+"."+receiver(d)+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				s, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				name := of + "." + s.Name.Name
				declared[name] = true
				if asked, ok := s.Type.(*ast.InterfaceType); ok {
					for _, method := range asked.Methods.List {
						for _, n := range method.Names {
							declared[name+"."+n.Name] = true
						}
					}
				}
			}
		}
	}
}

// receiver is the type of a method with a dot behind it, "" for other functions.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	typ := d.Recv.List[0].Type
	if pointer, ok := typ.(*ast.StarExpr); ok {
		typ = pointer.X
	}
	if name, ok := typ.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}
