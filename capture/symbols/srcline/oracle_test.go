package srcline

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unspool/testdata/programs"
)

// open opens an ELF file; the files that it refers to are looked for beside it.
func open(t testing.TB, name string) *Data {
	t.Helper()
	file := func(name string) (File, error) {
		f, err := os.Open(name)
		if err != nil {
			return File{}, err
		}
		info, err := f.Stat()
		if err != nil {
			return File{}, err
		}
		return File{ReaderAt: f, Size: info.Size(), Name: filepath.Base(name)}, nil
	}
	f, err := file(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	d, err := Open(f, Options{
		Alt: func(alt string, _ []byte) (File, error) { return file(filepath.Join(filepath.Dir(name), alt)) },
		DWO: func(dir, dwo string, _ uint64) (File, error) {
			if !filepath.IsAbs(dwo) {
				dwo = filepath.Join(dir, dwo)
			}
			return file(dwo)
		},
		DWP: func() (File, error) {
			f, err := file(name + ".dwp")
			if os.IsNotExist(err) {
				return File{}, nil
			}
			return f, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func symbolsOf(t testing.TB, name string) (syms []elf.Symbol, text uint64) {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if syms, err = f.Symbols(); err != nil {
		t.Fatal(err)
	}
	return syms, f.Section(".text").Size
}

// textAddrs are some thousand addresses in the functions of the symbol table.
func textAddrs(t testing.TB, name string) []uint64 {
	t.Helper()
	syms, text := symbolsOf(t, name)
	var addrs []uint64
	step := max(3, text/5000)
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF {
			continue
		}
		for a := s.Value; a < s.Value+s.Size; a += step {
			addrs = append(addrs, a)
		}
	}
	slices.Sort(addrs)
	return slices.Compact(addrs)
}

// frames are our frames for every address.
func frames(t testing.TB, d *Data, addrs []uint64) [][]Frame {
	t.Helper()
	all := make([][]Frame, len(addrs))
	err := d.Frames(addrs, func(i int, f []Frame) {
		if all[i] != nil {
			t.Errorf("%#x yielded twice", addrs[i])
		}
		all[i] = slices.Clone(f)
	})
	if err != nil {
		t.Error(err)
	}
	return all
}

// oracle is a program that answers the same question. It prints each address, and for each frame a line with
// the function and one with file:line, or if it is verbose, several with one thing each, as "  Column: 3".
type oracle struct {
	command []string // the arguments before the file's name
	verbose bool     // columns and where functions begin, too
}

var (
	llvmSymbolizer = oracle{[]string{"llvm-symbolizer", "--no-demangle", "--inlines", "-a", "--verbose", "--obj"}, true}
	addr2line      = oracle{[]string{"addr2line", "-a", "-i", "-f", "-e"}, false}
)

// withoutSymbols hides the symbol table in a copy of the file beside it: both programs prefer its names for
// outermost frames.
func withoutSymbols(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	shoff, entry, kind := uint64(0), 64, 4
	if elf.Class(b[elf.EI_CLASS]) == elf.ELFCLASS64 {
		shoff = binary.LittleEndian.Uint64(b[40:])
	} else {
		shoff, entry = uint64(binary.LittleEndian.Uint32(b[32:])), 40
	}
	for h := b[shoff:]; len(h) >= entry; h = h[entry:] {
		if typ := elf.SectionType(binary.LittleEndian.Uint32(h[kind:])); typ == elf.SHT_SYMTAB ||
			typ == elf.SHT_DYNSYM {
			binary.LittleEndian.PutUint32(h[kind:], uint32(elf.SHT_PROGBITS))
		}
	}
	bare := name + ".bare"
	if err := os.WriteFile(bare, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name + ".dwp"); err == nil {
		if err := os.Symlink(name+".dwp", bare+".dwp"); err != nil {
			t.Fatal(err)
		}
	}
	return bare
}

func (o oracle) ask(t *testing.T, name string, addrs []uint64) [][]Frame {
	t.Helper()
	tool := o.command[0]
	need(t, tool)
	var in bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	out := programs.Answer(t, in.Bytes(), []string{name}, o.command...)
	all := make([][]Frame, 0, len(addrs))
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if a, err := strconv.ParseUint(line, 0, 64); err == nil && len(all) < len(addrs) && a == addrs[len(all)] {
			all = append(all, nil)
			continue
		}
		if line == "" || len(all) == 0 {
			continue
		}
		last := &all[len(all)-1]
		if what, value, ok := strings.Cut(line, ": "); o.verbose && ok && line[0] == ' ' {
			(*last)[len(*last)-1].put(strings.TrimSpace(what), value)
			continue
		}
		f := Frame{Func: strings.Trim(line, "?")}
		if !o.verbose {
			lines.Scan()
			place, _, _ := strings.Cut(lines.Text(), " (discriminator")
			f.File, f.Line = cutNumber(place)
			f.File = strings.Trim(f.File, "?")
		}
		*last = append(*last, f)
	}
	if len(all) != len(addrs) {
		t.Fatalf("%s answered %d of %d addresses", tool, len(all), len(addrs))
	}
	return all
}

// put takes what llvm-symbolizer prints of a frame.
func (f *Frame) put(what, value string) {
	n, _ := strconv.Atoi(value)
	switch what {
	case "Filename":
		f.File = strings.Trim(value, "?")
	case "Line":
		f.Line = n
	case "Column":
		f.Column = n
	case "Function start line":
		f.Start = n
	}
}

func cutNumber(s string) (string, int) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, 0
	}
	n, _ := strconv.Atoi(s[i+1:])
	return s[:i], n
}

func need(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

// run runs a command in dir.
func run(t testing.TB, dir string, command ...string) {
	t.Helper()
	programs.Run(t, dir, command...)
}

// recipe is the commands that make a program, called program, of the sources in testdata, which they name. The sources
// are copied beside it: what is kept is the same for all checkouts.
type recipe [][]string

func (r recipe) in(t testing.TB, dir string) {
	t.Helper()
	texts, from := sources(t), filepath.Join(dir, "sources")
	if err := os.Mkdir(from, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(from, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range r {
		command = slices.Clone(command)
		for i, arg := range command {
			if texts[arg] != nil {
				command[i] = filepath.Join(from, arg)
			}
		}
		run(t, dir, command...)
	}
}

// kept is a folder with the program, and with its copy without symbols. Nobody may change it.
func (r recipe) kept(t *testing.T) string {
	t.Helper()
	return programs.Keep(t, fmt.Sprintf("%q %q", r, sources(t)), func(dir string) {
		r.in(t, dir)
		withoutSymbols(t, filepath.Join(dir, "program"))
	})
}

// sources are the texts of the files in testdata.
func sources(t testing.TB) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string][]byte)
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if texts[e.Name()], err = os.ReadFile(filepath.Join("testdata", e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

// cxx compiles testdata/main.cc and measure.cc, each on its own, and links them. The standard library's
// headers are a third larger in C++17, and take half of the time.
func cxx(compiler string, flags ...string) (r recipe) {
	link := append(append([]string{compiler}, flags...), "-o", "program")
	for _, source := range []string{"main", "measure"} {
		r = append(r, append(append([]string{compiler}, flags...), "-std=c++14", "-c", "-o", source+".o",
			source+".cc"))
		link = append(link, source+".o")
	}
	return append(r, link)
}

// single compiles one source file with the command.
func single(source string, command ...string) recipe {
	return recipe{append(slices.Clone(command), "-o", "program", source)}
}

// variant changes how the debugging information is stored, not what it says.
type variant struct{ name, tool, command string }

// Every address has the frames that other programs find, also if the same debugging information is stored
// in another way. llvm-symbolizer 14 does not support alternate files. addr2line 2.40 supports neither
// split DWARF 5, nor 64-bit DWARF, nor DW_FORM_rnglistx (which Clang writes in DWARF 5), nor references out
// of a unit in DWARF 5; and of two files with the same number in GCC's DWARF 5 it takes the wrong one. So
// each is used only for what it supports.
func TestFrames(t *testing.T) {
	llvm := []oracle{llvmSymbolizer}
	both := []oracle{llvmSymbolizer, addr2line}
	// Of some files, llvm-dwp 14 never comes to an end: it takes values of GCC's abbreviations for attributes.
	const llvmDWP = "timeout 60 llvm-dwp -e program -o program.dwp && rm *.dwo"
	const dwz = "cp program other && dwz -m alt program other && readelf -SW program | grep -q debugaltlink"
	for _, test := range []struct {
		name     string
		build    recipe
		oracles  []oracle
		variants []variant
	}{
		{"gcc, DWARF 4", cxx("g++", "-O2", "-gdwarf-4"), both, []variant{
			{"zlib", "objcopy", "objcopy --compress-debug-sections=zlib-gabi program"},
			{"zdebug", "objcopy", "objcopy --decompress-debug-sections program && objcopy " +
				"--compress-debug-sections=zlib-gnu program"},
			{"dwz", "dwz", "objcopy --decompress-debug-sections program && " + dwz},
		}},
		{"gcc, DWARF 5", cxx("g++", "-O3", "-gdwarf-5"), llvm, []variant{
			{"separate file", "objcopy", "objcopy --only-keep-debug program program.debug && mv program.debug " +
				"program"},
			{"zstd", "objcopy", "objcopy --compress-debug-sections=zstd program"},
			{"dwz", "dwz", "objcopy --decompress-debug-sections program && " + dwz},
		}},
		{"gcc, DWARF 5, supplementary file", cxx("g++", "-O2", "-gdwarf-5"), llvm, []variant{
			{"dwz", "dwz", "dwz program"},
			{"dwz, supplementary file", "dwz",
				"cp program other && dwz -5 -m alt program other && readelf -SW program | grep -q debug_sup"},
		}},
		{"gcc, 64-bit DWARF", cxx("g++", "-O2", "-g", "-gdwarf64"), llvm, nil},
		{"gcc, 32-bit", cxx("g++", "-O2", "-g", "-m32"), llvm, nil},
		{"gcc, dropped sections, types in units",
			cxx("g++", "-O2", "-gdwarf-4", "-fdebug-types-section", "-ffunction-sections", "-Wl,--gc-sections"), both,
			nil},
		{"gcc, relative paths", cxx("g++", "-O2", "-gdwarf-5", "-ffile-prefix-map=/=rel/"), llvm, nil},
		{"gcc, relative paths, DWARF 4", cxx("g++", "-O2", "-gdwarf-4", "-ffile-prefix-map=/=rel/"), llvm, nil},
		{"gcc, link-time optimisation", cxx("g++", "-O2", "-g", "-flto"), llvm, nil},
		{"gcc, split DWARF 4", cxx("g++", "-O2", "-gdwarf-4", "-gsplit-dwarf"), llvm,
			[]variant{{"dwp", "dwp", "dwp -e program && rm *.dwo"}}},
		{"gcc, split DWARF 5", cxx("g++", "-O2", "-gdwarf-5", "-gsplit-dwarf"), llvm,
			[]variant{{"dwp", "llvm-dwp", llvmDWP}}},
		{"gcc, functions in functions", single("nested.c", "gcc", "-O2", "-g"), both, nil},
		{"clang, DWARF 4", cxx("clang++", "-O2", "-gdwarf-4"), both, nil},
		{"clang, DWARF 5", cxx("clang++", "-O3", "-gdwarf-5"), llvm,
			[]variant{{"zlib", "objcopy", "objcopy --compress-debug-sections=zlib program"}}},
		{"clang, lines only", cxx("clang++", "-O2", "-gmlt"), llvm, nil},
		{"clang, split DWARF 4", cxx("clang++", "-O2", "-gdwarf-4", "-gsplit-dwarf"), llvm,
			[]variant{{"dwp", "dwp", "dwp -e program && rm *.dwo"}}},
		{"clang, split DWARF 5", cxx("clang++", "-O2", "-gdwarf-5", "-gsplit-dwarf"), llvm,
			[]variant{{"dwp", "llvm-dwp", llvmDWP}}},
		{"rustc", single("words.rs", "rustc", "-O", "-g", "--edition=2021"), llvm, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := test.build.kept(t)
			name := filepath.Join(dir, "program")
			addrs := textAddrs(t, name)
			got := frames(t, open(t, name), addrs)
			for _, o := range test.oracles {
				o.compare(t, addrs, got, o.ask(t, name+".bare", addrs))
			}
			for _, v := range test.variants {
				t.Run(v.name, func(t *testing.T) {
					need(t, v.tool)
					// The split units of the plain file are still there. With a .dwp file, no others are asked for.
					key := fmt.Sprintf("%s %q %q", dir, test.variants, v.name)
					dir = programs.Keep(t, key, func(to string) {
						run(t, dir, "cp", "-a", ".", to)
						run(t, to, "sh", "-c", "rm .made && "+v.command)
					})
					name := filepath.Join(dir, "program")
					d := open(t, name)
					if v.name == "dwp" {
						d.options.DWO = func(_, dwo string, _ uint64) (File, error) {
							t.Errorf("%s is asked for", dwo)
							return File{}, fs.ErrNotExist
						}
					}
					oracle{[]string{"the plain file"}, true}.compare(t, addrs, frames(t, d, addrs), got)
				})
			}
		})
	}
}

func (o oracle) compare(t *testing.T, addrs []uint64, got, want [][]Frame) {
	t.Helper()
	inlined, differ := 0, 0
	for i := range addrs {
		have := slices.Clone(got[i])
		if len(have) > 1 {
			inlined++
		}
		for k := range have {
			if !o.verbose {
				have[k].Column, have[k].Start = 0, 0
			}
		}
		if len(have) == 0 && o.command[0] != "the plain file" {
			have = []Frame{{}} // this is how they print it
		}
		if !slices.Equal(have, want[i]) {
			if differ++; differ <= 3 {
				t.Errorf("%#x: %+v\n%s has %+v", addrs[i], have, o.command[0], want[i])
			}
		}
	}
	t.Logf("%d addresses, %d with inlined functions, %s differs at %d", len(addrs), inlined, o.command[0],
		differ)
}
