package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// repeated are names of types that may stand in several packages: those that Go's standard library repeats itself, as
// the name of the package is a part of them, and words of profiling, of which each wing has its own.
var repeated = map[string]bool{
	"Client": true, "Config": true, "Error": true, "File": true, "Image": true, "Kind": true, "Options": true,
	"Reader": true, "Result": true, "Section": true, "Source": true, "Table": true, "Writer": true,

	"Event": true, "Frame": true, "Sample": true, "Thread": true,
}

// TestTypeNames: the name of any other exported type is used in one package, so that it says alone what it is.
func TestTypeNames(t *testing.T) {
	packages := make(map[string]map[string]bool) // by the names of types
	const root = "../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bench"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			types, ok := decl.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			for _, spec := range types.Specs {
				s := spec.(*ast.TypeSpec)
				if !s.Name.IsExported() || s.Assign.IsValid() { // another name of a type
					continue
				}
				if packages[s.Name.Name] == nil {
					packages[s.Name.Name] = make(map[string]bool)
				}
				packages[s.Name.Name][filepath.Dir(path)] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 100 {
		t.Fatalf("there are %d names of types", len(packages))
	}
	for name, in := range packages {
		if len(in) > 1 && !repeated[name] {
			t.Errorf("%s is a type in %s", name, strings.Join(slices.Sorted(maps.Keys(in)), ", "))
		}
		if len(in) < 2 && repeated[name] {
			t.Errorf("%s may be a type in several packages, and is in one", name)
		}
	}
}
