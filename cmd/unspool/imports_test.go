package main

import (
	"errors"
	"go/build"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// CONTRIBUTING lists which package may import which. TestImports reads its table.
const (
	chapter      = "../../.github/CONTRIBUTING.md"
	chapterTable = "<!-- imports -->"
)

// A layer is a line of the chapter's table: what its packages may import of this module, as patterns.
type layer struct {
	packages, imports []string
}

func TestImports(t *testing.T) {
	text, err := os.ReadFile(chapter)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := readLayers(string(text))
	if err != nil {
		t.Fatalf("%s: %v", chapter, err)
	}
	graph := ourImports(t)
	if len(graph) < 20 {
		t.Fatalf("there are %d packages of ours", len(graph))
	}
	for _, wrong := range forbidden(layers, graph) {
		t.Errorf("%s: see %s", wrong, chapter)
	}
}

// Arrows that the chapter has to forbid, however its table changes.
func TestImportsThatAreForbidden(t *testing.T) {
	text, err := os.ReadFile(chapter)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := readLayers(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, arrow := range []string{
		"perfring vmas", "perfring dwarfcfi", "perfring unwind",
		"vmas perfring", "vmas dwarfcfi", "vmas unwind", "vmas capture/session",
		"dwarfcfi vmas", "dwarfcfi perfring", "dwarfcfi unwind", "dwarfcfi unwind/rule",
		"dwarfcfi/elf dwarfcfi", "dwarfcfi/elf vmas",
		"unwind/rule unwind/image", "unwind/rule unwind/asm", "unwind/rule unwind",
		"unwind/rule vmas", "unwind/asm dwarfcfi", "unwind/asm unwind", "unwind/asm unwind/image",
		"unwind/asm unwind/gotab", "unwind/asm vmas", "unwind/gotab unwind/asm",
		"unwind/gotab unwind/image", "unwind/jit unwind/image", "unwind perfring/recordtest", "unwind unwind/image",
		"unwind/module unwind/image",
		"unwind/image unwind", "unwind capture/session", "unwind perfring", "unwind capture/symbols",
		"unwind/image capture/session",
		"capture/perfdata/replay unwind", "capture/perfdata/replay capture/session", "capture/perfdata capture/session",
		"capture/symbols capture/profile", "capture/profile capture/session", "capture/format/folded capture/session",
		"capture/format/folded capture/format/pprof", "capture/view/report capture/recorded",
		"capture/counts capture/session", "capture/session capture/live", "capture/session capture/recorded",
		"capture/session capture/output", "capture/session/generators capture/session",
		"capture/live capture/recorded", "capture/recorded capture/live", "capture/live cmd/unspool",
		"capture/view/load capture/live", "capture/view/explore capture/verdict/check",
		"capture/format/pprof capture/session",
		"capture/live capture/profile", "capture/recorded capture/profile", "capture/live bench/workloads",
		"capture/recorded capture", "capture/view/report capture", "capture capture/live",
		"capture/format/export cmd/unspool", "capture/live testdata/programs",
		"cmd/unspool testdata/programs",
		"bench/speed testdata/browser",
	} {
		from, to, _ := strings.Cut(arrow, " ")
		if wrong := forbidden(layers, map[string][]string{from: {to}}); len(wrong) != 1 {
			t.Errorf("%s may import %s", from, to)
		}
	}
}

// readLayers reads the table: the indented lines behind the mark, of the form "package, …: import, …".
// What is indented more continues the line before.
func readLayers(text string) (layers []layer, err error) {
	_, text, ok := strings.Cut(text, chapterTable)
	if !ok {
		return nil, errors.New("there is no line " + chapterTable)
	}
	var lines []string
	for line := range strings.Lines(strings.TrimLeft(text, "\n")) {
		line, ok := strings.CutPrefix(line, "    ")
		if !ok {
			break
		}
		if strings.HasPrefix(line, " ") && len(lines) > 0 {
			lines[len(lines)-1] += line
		} else {
			lines = append(lines, line)
		}
	}
	for _, line := range lines {
		packages, imports, ok := strings.Cut(line, ":")
		if !ok {
			return nil, errors.New("no colon in " + line)
		}
		layers = append(layers, layer{names(packages), names(imports)})
	}
	if len(layers) == 0 {
		return nil, errors.New("no table behind " + chapterTable)
	}
	return layers, nil
}

// names are those of a list, but for "nothing".
func names(list string) (names []string) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" && name != "nothing" {
			names = append(names, name)
		}
	}
	return names
}

// covers reports whether a name is that of the pattern or, where the pattern ends in "/...", of a folder below
// it.
func covers(pattern, name string) bool {
	folder, below := strings.CutSuffix(pattern, "/...")
	return name == folder || below && strings.HasPrefix(name, folder+"/")
}

// layerOf is the layer of a package: the one that names it, or else has the longest pattern that covers it.
func layerOf(layers []layer, name string) *layer {
	var found *layer
	longest := -1
	for i, l := range layers {
		for _, p := range l.packages {
			if p == name {
				return &layers[i]
			}
			if covers(p, name) && len(p) > longest {
				found, longest = &layers[i], len(p)
			}
		}
	}
	return found
}

// forbidden lists the imports in the graph that the layers do not allow.
func forbidden(layers []layer, graph map[string][]string) (wrong []string) {
	for name, imports := range graph {
		l := layerOf(layers, name)
		if l == nil {
			wrong = append(wrong, name+" is in no line of the table")
			continue
		}
	imports:
		for _, imported := range imports {
			for _, p := range l.imports {
				if covers(p, imported) {
					continue imports
				}
			}
			wrong = append(wrong, name+" imports "+imported)
		}
	}
	return wrong
}

// ourImports are the imports of each package of this module that are of this module, without those of tests.
// Packages go by their folders.
func ourImports(t *testing.T) map[string][]string {
	t.Helper()
	const root, module = "../..", "unspool/"
	graph := make(map[string][]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		if base := d.Name(); base == "testdata" || path != root && strings.ContainsAny(base[:1], "._") ||
			name == "dist" || name == "bin" {
			return fs.SkipDir
		}
		p, err := build.ImportDir(path, 0)
		if _, none := err.(*build.NoGoError); none {
			return nil
		} else if err != nil {
			return err
		}
		graph[name] = nil
		for _, imported := range p.Imports {
			if folder, ok := strings.CutPrefix(imported, module); ok {
				graph[name] = append(graph[name], folder)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return graph
}
