package firefox

import (
	"encoding/hex"
	"fmt"
	"strings"

	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// tables are the tables that all threads share. An index is one in the profile's list of the same name,
// unless its comment says otherwise.
type tables struct {
	p *profile.Profile

	strings profile.StringTable

	libs      []int32  // images that are files, or the kernel's
	resources []int32  // images that functions lie in
	lib       []int32  // by image: index in libs, -1 for none
	resource  []int32  // by image: index in resources, -1 for none
	base      []uint64 // by image: the virtual address of its beginning

	sources []int32 // source files: indices in strings
	funcs   []function
	fn      []int32 // by frame: index in funcs
	foreign []bool  // by frame: its line is in another file than its function

	symbols []symbol

	rows  []row
	stack []int32 // by node: index in rows; of the root -1
}

type function struct {
	name     int32 // in strings
	resource int32 // -1 for none
	source   int32 // -1 when unknown
}

// symbol is a function in the symbol table, into which others may be inlined.
type symbol struct {
	lib  int32
	addr int64 // see address
	name int32 // in strings
}

// row is a frame of the format: a Frame below the frame that it is inlined into.
type row struct {
	frame  int32
	depth  int32 // 0 if it is not inlined
	symbol int32 // of the outermost, -1 when unknown
}

// maxAddress is the largest address of a library that readers of the format keep: a signed number of 32 bits.
const maxAddress = 1<<31 - 1

// address is a virtual address of an image relative to the image's beginning, as the format has it; -1 if
// there is none, and for the kernel, whose beginning is not known.
func (t *tables) address(image int32, vaddr uint64) int64 {
	if vaddr == 0 || t.lib[image] < 0 {
		return -1
	}
	base := t.base[image]
	if vaddr < base || vaddr-base > maxAddress {
		return -1
	}
	return int64(vaddr - base)
}

// beginning is the virtual address of an image whose code lies in a segment. It is a multiple of 64 KiB; some
// linkers leave a page out between one segment and the next.
func beginning(code symbols.CodeSegment) uint64 {
	return (code.Addr - min(code.Offset, code.Addr)) &^ 0xffff
}

func newTables(p *profile.Profile) *tables {
	t := &tables{p: p}
	t.addImages()
	t.addFunctions()
	t.addStacks()
	return t
}

func (t *tables) text(s string) int32 { return t.strings.Number(s) }

func (t *tables) addImages() {
	t.lib = make([]int32, len(t.p.Images))
	t.resource = make([]int32, len(t.p.Images))
	t.base = make([]uint64, len(t.p.Images))
	for i := range t.lib {
		t.lib[i], t.resource[i] = -1, -1
		for j, code := range t.p.Images[i].Code {
			if at := beginning(code); j == 0 || at < t.base[i] {
				t.base[i] = at
			}
		}
	}
	for _, f := range t.p.Frames {
		if !f.Kind.IsCode() {
			continue
		}
		if t.resource[f.Image] < 0 {
			t.resource[f.Image] = int32(len(t.resources))
			t.resources = append(t.resources, f.Image)
		}
		if t.lib[f.Image] < 0 && f.Kind != profile.JIT {
			t.lib[f.Image] = int32(len(t.libs))
			t.libs = append(t.libs, f.Image)
		}
	}
	for _, image := range t.resources {
		t.text(t.p.Images[image].Name)
	}
}

// addFunctions makes one function of the inlined copies of a function and the one that is not inlined.
// Functions of the same name are distinguished by source file, those without one by address.
func (t *tables) addFunctions() {
	type place struct {
		image int32
		addr  uint64
		name  string
	}
	files := make(map[place]string) // the source files of functions with an address
	for _, f := range t.p.Frames {
		if at := (place{f.Image, f.Addr, f.Name}); f.Addr != 0 && files[at] == "" {
			files[at] = f.File
		}
	}
	type key struct {
		place
		file string
	}
	known := make(map[key]int32)
	sources := make(map[string]int32)
	t.fn = make([]int32, len(t.p.Frames))
	t.foreign = make([]bool, len(t.p.Frames))
	for i, f := range t.p.Frames {
		k := key{place{f.Image, f.Addr, f.Name}, f.File}
		if f.Addr != 0 {
			k.file = files[k.place]
		}
		if k.file != "" {
			k.addr = 0
		}
		fn, ok := known[k]
		if !ok {
			source := int32(-1)
			if k.file != "" {
				if source, ok = sources[k.file]; !ok {
					source = int32(len(t.sources))
					sources[k.file] = source
					t.sources = append(t.sources, t.text(k.file))
				}
			}
			fn = int32(len(t.funcs))
			known[k] = fn
			t.funcs = append(t.funcs, function{t.text(f.Name), t.resource[f.Image], source})
		}
		t.fn[i] = fn
		t.foreign[i] = f.File != k.file
	}
}

func (t *tables) addStacks() {
	type symbolKey struct {
		lib  int32
		addr int64
	}
	known := make(map[symbolKey]int32)
	type rowKey struct{ frame, outer int32 } // outer: the row that it is inlined into, -1 for none
	rows := make(map[rowKey]int32)
	t.stack = make([]int32, len(t.p.Nodes))
	t.stack[0] = -1
	for i, n := range t.p.Nodes[1:] {
		f := &t.p.Frames[n.Frame]
		k := rowKey{n.Frame, -1}
		if f.Inlined {
			k.outer = t.stack[n.Parent]
		}
		r, ok := rows[k]
		if !ok {
			made := row{frame: n.Frame, symbol: -1}
			if k.outer >= 0 {
				made.depth, made.symbol = t.rows[k.outer].depth+1, t.rows[k.outer].symbol
			} else if addr := t.address(f.Image, f.Addr); addr >= 0 {
				s := symbolKey{t.lib[f.Image], addr}
				if made.symbol, ok = known[s]; !ok {
					made.symbol = int32(len(t.symbols))
					known[s] = made.symbol
					t.symbols = append(t.symbols, symbol{s.lib, addr, t.text(f.Name)})
				}
			}
			r = int32(len(t.rows))
			t.rows = append(t.rows, made)
			rows[k] = r
		}
		t.stack[i+1] = r
	}
}

// check checks every index that will be written.
func (t *tables) check() error {
	for _, column := range []struct {
		name     string
		rows, of int
		at       func(i int) int32
		none     bool // -1 is allowed, and means none
	}{
		{"libraries", len(t.libs), len(t.p.Images), func(i int) int32 { return t.libs[i] }, false},
		{"resources", len(t.resources), len(t.p.Images), func(i int) int32 { return t.resources[i] }, false},
		{"libraries of resources", len(t.resources), len(t.libs), func(i int) int32 {
			return t.lib[t.resources[i]]
		}, true},
		{"sources", len(t.sources), len(t.strings.List), func(i int) int32 { return t.sources[i] }, false},
		{"names of functions", len(t.funcs), len(t.strings.List), func(i int) int32 { return t.funcs[i].name }, false},
		{"resources of functions", len(t.funcs), len(t.resources), func(i int) int32 {
			return t.funcs[i].resource
		}, true},
		{"sources of functions", len(t.funcs), len(t.sources), func(i int) int32 {
			return t.funcs[i].source
		}, true},
		{"libraries of symbols", len(t.symbols), len(t.libs), func(i int) int32 { return t.symbols[i].lib }, false},
		{"names of symbols", len(t.symbols), len(t.strings.List), func(i int) int32 { return t.symbols[i].name }, false},
		{"frames", len(t.rows), len(t.p.Frames), func(i int) int32 { return t.rows[i].frame }, false},
		{"functions of frames", len(t.fn), len(t.funcs), func(i int) int32 { return t.fn[i] }, false},
		{"symbols of frames", len(t.rows), len(t.symbols), func(i int) int32 { return t.rows[i].symbol }, true},
		{"frames of stacks", len(t.stack) - 1, len(t.rows), func(i int) int32 { return t.stack[i+1] }, false},
	} {
		for i := range column.rows {
			if at := column.at(i); int(at) >= column.of || at < 0 && !(at == -1 && column.none) {
				return fmt.Errorf("%s: entry %d leads to %d of %d", column.name, i, at, column.of)
			}
		}
	}
	return nil
}

func (t *tables) writeLibs(e *encoder) {
	e.column("libs", len(t.libs), func(i int) {
		image := &t.p.Images[t.libs[i]]
		e.Open('{')
		for _, field := range [][2]string{
			{"name", image.Name}, {"path", image.Path}, {"debugName", image.Name}, {"debugPath", image.Path},
			{"breakpadId", breakpadID(image.BuildID)}, {"arch", t.p.Arch},
		} {
			e.Field(field[0], field[1])
		}
		e.Key("codeId")
		if image.BuildID == nil {
			e.null()
		} else {
			e.Value(hex.EncodeToString(image.BuildID))
		}
		e.Close()
	})
}

// breakpadID is a build ID in the form of symbol servers: its first 16 bytes as a GUID whose first three
// fields are little-endian, and an age of 0. It is "" if there is no build ID.
func breakpadID(buildID []byte) string {
	if len(buildID) == 0 {
		return ""
	}
	var b [16]byte
	copy(b[:], buildID)
	b[0], b[1], b[2], b[3] = b[3], b[2], b[1], b[0]
	b[4], b[5] = b[5], b[4]
	b[6], b[7] = b[7], b[6]
	return strings.ToUpper(hex.EncodeToString(b[:])) + "0"
}

func (t *tables) write(e *encoder) {
	e.Open('{')

	n := len(t.stack) - 1
	e.table("stackTable", n)
	e.column("frame", n, func(i int) { e.index(t.stack[i+1]) })
	e.column("prefixOffset", n, func(i int) {
		if parent := int(t.p.Nodes[i+1].Parent); parent > 0 {
			e.Int(int64(i + 1 - parent))
			return
		}
		e.Int(0)
	})
	e.Close()

	t.writeFrames(e)

	n = len(t.funcs)
	e.table("funcTable", n)
	e.column("name", n, func(i int) { e.index(t.funcs[i].name) })
	e.same("isJS", n, "false")
	e.same("relevantForJS", n, "false")
	e.column("resource", n, func(i int) { e.Int(int64(t.funcs[i].resource)) })
	e.column("source", n, func(i int) { e.index(t.funcs[i].source) })
	e.same("lineNumber", n, "null")
	e.same("columnNumber", n, "null")
	e.same("originalLocation", n, "null")
	e.Close()

	n = len(t.resources)
	e.table("resourceTable", n)
	e.column("lib", n, func(i int) { e.index(t.lib[t.resources[i]]) })
	e.column("name", n, func(i int) { e.index(t.text(t.p.Images[t.resources[i]].Name)) })
	e.same("host", n, "null")
	e.same("type", n, "1") // library
	e.Close()

	n = len(t.symbols)
	e.table("nativeSymbols", n)
	e.column("libIndex", n, func(i int) { e.index(t.symbols[i].lib) })
	e.column("address", n, func(i int) { e.Int(t.symbols[i].addr) })
	e.column("name", n, func(i int) { e.index(t.symbols[i].name) })
	e.same("functionSize", n, "null")
	e.Close()

	n = len(t.sources)
	e.table("sources", n)
	e.same("id", n, "null")
	e.column("filename", n, func(i int) { e.index(t.sources[i]) })
	e.same("startLine", n, "1")
	e.same("startColumn", n, "1")
	e.same("sourceMapURL", n, "null")
	e.same("content", n, "null")
	e.Close()

	e.table("sourceLocationTable", 0)
	e.same("source", 0, "")
	e.same("line", 0, "")
	e.same("column", 0, "")
	e.Close()

	e.column("stringArray", len(t.strings.List), func(i int) { e.Value(t.strings.List[i]) })
	e.Close()
}

func (t *tables) writeFrames(e *encoder) {
	n := len(t.rows)
	at := func(i int) *profile.Frame { return &t.p.Frames[t.rows[i].frame] }
	e.table("frameTable", n)
	e.column("address", n, func(i int) {
		e.Int(t.address(at(i).Image, at(i).PC))
	})
	e.column("inlineDepth", n, func(i int) { e.Int(int64(min(t.rows[i].depth, 255))) }) // readers keep a byte
	e.column("category", n, func(i int) {
		category, _ := categoryOf(at(i))
		e.Int(int64(category))
	})
	e.column("subcategory", n, func(i int) {
		_, subcategory := categoryOf(at(i))
		e.Int(int64(subcategory))
	})
	e.column("func", n, func(i int) { e.index(t.fn[t.rows[i].frame]) })
	e.column("nativeSymbol", n, func(i int) { e.index(t.rows[i].symbol) })
	e.same("innerWindowID", n, "0")
	line := func(i int, v int32) {
		if v <= 0 || t.foreign[t.rows[i].frame] {
			e.null()
			return
		}
		e.Int(int64(v))
	}
	e.column("line", n, func(i int) { line(i, at(i).Line) })
	e.column("column", n, func(i int) { line(i, at(i).Column) })
	e.same("originalLocation", n, "null")
	e.Close()
}
