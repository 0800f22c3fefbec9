package explore

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/pprof/driver"
	proto "github.com/google/pprof/profile"

	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/capture/symbols/srcline"
)

// objects finds the machine code of a profile's images and its source lines for pprof, in the files that the
// profile's names come from: the recorded builds, with their debug files. If there is no file, or no objdump,
// pprof lists the source by the lines of the profile alone.
type objects struct {
	problem  func(string)
	known    []string // problems of the profile
	mappings []*proto.Mapping
	images   map[build]*profile.Image

	turn chan struct{} // has an element while a page with machine code is made

	mu      sync.Mutex // a Symbolizer is for one goroutine at a time; protects the following fields
	symbols *symbols.Symbolizer
	told    int                // problems of symbols that were reported
	opened  map[string]*object // by file; nil for files that cannot be opened
	page    context.Context    // of the page that is made
	left    int                // bytes of memory that it may still take
	full    bool               // it wanted more
}

// build is a mapping's file, and its build ID in hexadecimal.
type build struct{ file, id string }

// object is an image whose code is shown.
type object struct {
	of    *objects
	image *symbols.Image
	bias  uint64 // added to virtual addresses
	lines map[uint64][]driver.Frame
}

// newObjects finds the objects of the mappings that the images of a profile were converted to.
func newObjects(
	ctx context.Context, p *profile.Profile, mappings []*proto.Mapping, o symbols.Options, problem func(string),
) *objects {
	return &objects{
		problem: problem, known: p.Problems, mappings: mappings, images: byBuild(p.Images), symbols: symbols.New(o),
		opened: make(map[string]*object), turn: make(chan struct{}, 1), page: ctx, left: maxPage,
	}
}

// maxPage bounds the memory, in bytes, for a page's functions and their instructions and lines. How many these are, and
// how long, is for their file to say. The largest programs have a million functions, of 100,000 instructions at most.
const maxPage = 512 << 20

// alone makes a page with machine code while no other one is made: pprof does not tell for which one it asks. When
// whoever has asked for it has gone, nothing more is done for it.
func (o *objects) alone(made http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case o.turn <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		defer func() { <-o.turn }()
		o.begin(r.Context())
		made.ServeHTTP(w, r)
	})
}

// begin begins the next page.
func (o *objects) begin(page context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.page, o.left, o.full = page, maxPage, false
	for _, ob := range o.opened {
		if ob != nil {
			clear(ob.lines)
		}
	}
}

// contain does what reads a file for the page, so that whatever fault that leads to costs the file and a note. It
// does nothing when whoever has asked for the page has gone.
func (o *objects) contain(file string, do func() error) error {
	if err := o.page.Err(); err != nil {
		return err
	}
	err := errFault
	o.symbols.Contain(file, "machine code and lines", func() { err = do() })
	for _, problem := range o.symbols.Problems()[o.told:] {
		if o.told++; !slices.Contains(o.known, problem) {
			o.problem(problem)
		}
	}
	return cmp.Or(o.page.Err(), err)
}

// take takes n bytes for the page; false if that is too much, which is said once.
func (o *objects) take(n int) bool {
	if o.full || n > o.left {
		if !o.full {
			o.full = true
			o.problem(fmt.Sprintf("the rest of the page's machine code is left out: it would take more than %d MiB",
				maxPage>>20))
		}
		return false
	}
	o.left -= n
	return true
}

// Memory of a function, of an instruction and of a frame of its source, without names and texts.
const (
	sizeOfFunction    = 200
	sizeOfInstruction = 300
	sizeOfFrame       = 100
)

var errFault = errors.New("it led to a fault of unspool")

// byBuild lists images by what pprof knows about them: nil for images that pprof cannot distinguish.
func byBuild(images []profile.Image) map[build]*profile.Image {
	found := make(map[build]*profile.Image)
	for i := range images {
		im := &images[i]
		b := build{im.Path, hex.EncodeToString(im.BuildID)}
		if _, twice := found[b]; twice {
			im = nil
		}
		found[b] = im
	}
	return found
}

func (o *objects) Open(file string, _, _, _ uint64, _ string) (driver.ObjFile, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ob, ok := o.opened[file]
	if !ok {
		err := o.contain(file, func() error {
			ob = o.open(file)
			return nil
		})
		if gone := o.page.Err(); gone != nil {
			return nil, gone
		}
		if err != nil {
			ob = nil
		}
		o.opened[file] = ob
	}
	if ob == nil {
		return nil, &fs.PathError{Op: "disassemble", Path: file, Err: fs.ErrNotExist}
	}
	return ob, nil
}

// open opens the image of a mapping's file, nil if that is not possible. The file alone, which pprof gives,
// is not enough: it must be the recorded build.
func (o *objects) open(file string) *object {
	var first *proto.Mapping
	for _, m := range o.mappings {
		if m.File != file {
			continue
		}
		if first == nil {
			first = m
		}
		if m.BuildID != first.BuildID {
			return nil // pprof cannot distinguish the builds
		}
	}
	if first == nil || disassembler() == "" {
		return nil
	}
	im := o.image(build{file, first.BuildID})
	if im == nil {
		return nil
	}
	code, err := im.Open()
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			o.problem(fmt.Sprintf("%s: no machine code: %s", file, words(err)))
		}
		return nil
	}
	code.Close()
	if im.Table() == nil {
		return nil
	}
	for _, s := range im.Code() {
		if intoPage := s.Offset % page; s.Offset-intoPage == first.Offset {
			return &object{o, im, first.Start - (s.Addr - intoPage), make(map[uint64][]driver.Frame)}
		}
	}
	return nil
}

const page = 4096

// image returns the image of a build, nil if it is not a file.
func (o *objects) image(b build) *symbols.Image {
	im := o.images[b]
	if im == nil || !symbols.IsFile(b.file) {
		return nil
	}
	return o.symbols.Image(im.Path, im.BuildID, im.File)
}

func (ob *object) Name() string                        { return ob.image.Path }
func (ob *object) BuildID() string                     { return hex.EncodeToString(ob.image.BuildID) }
func (ob *object) ObjAddr(addr uint64) (uint64, error) { return addr - ob.bias, nil }
func (ob *object) Close() error                        { return nil }

// SourceLine returns the source lines of an instruction that Disasm has returned.
func (ob *object) SourceLine(addr uint64) ([]driver.Frame, error) {
	ob.of.mu.Lock()
	defer ob.of.mu.Unlock()
	if frames, ok := ob.lines[addr-ob.bias]; ok {
		return frames, nil
	}
	return nil, fs.ErrNotExist
}

// Symbols returns the functions whose names match, or that contain the virtual address if it is not 0.
func (ob *object) Symbols(r *regexp.Regexp, addr uint64) ([]*driver.Sym, error) {
	ob.of.mu.Lock()
	defer ob.of.mu.Unlock()
	var found []*driver.Sym
	err := ob.of.contain(ob.image.Path, func() error {
		table := ob.image.Table()
		for i := range table.Len() {
			if ob.of.page.Err() != nil {
				break
			}
			f := table.At(i)
			name := ob.of.symbols.Name(f.Name)
			if addr != 0 && addr-f.Addr < f.Size || r == nil || r.MatchString(f.Name) || r.MatchString(name) {
				if !ob.of.take(sizeOfFunction + len(name)) {
					break
				}
				found = append(found, &driver.Sym{Name: []string{name}, File: ob.image.Path, Start: f.Addr,
					End: f.Addr + f.Size})
			}
		}
		return nil
	})
	return found, err
}

const disassemblerName = "objdump"

// disassembler is the program that disassembles, "" if it is not installed.
func disassembler() string {
	path, err := exec.LookPath(disassemblerName)
	if err != nil {
		return ""
	}
	return path
}

// maxLead is how far before an address its function may start, so that decoding starts with the function.
const maxLead = 64 << 10

// Disasm returns the instructions from start to end, and looks up their source lines. pprof asks for whole
// functions, and for code around samples. The latter may start in the middle of an instruction, so decoding
// starts with a function. If they cannot be had, the page goes on without them, and it is said.
func (o *objects) Disasm(file string, start, end uint64, intelSyntax bool) ([]driver.Inst, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ob := o.opened[file]
	switch {
	case ob == nil:
		return nil, fs.ErrNotExist
	case o.full:
		return nil, o.page.Err()
	}
	var insts []driver.Inst
	err := o.contain(file, func() (err error) {
		insts, err = ob.instructions(start, end, intelSyntax)
		return err
	})
	if gone := o.page.Err(); gone != nil {
		return nil, gone
	}
	if err != nil && !errors.Is(err, errFault) {
		o.problem(fmt.Sprintf("%s: no machine code: %s", file, words(err)))
	}
	return insts, nil
}

// instructions is Disasm for an object.
func (ob *object) instructions(start, end uint64, intelSyntax bool) ([]driver.Inst, error) {
	from := start
	table := ob.image.Table()
	if f, ok := table.Lookup(start); ok && start-f.Addr < maxLead {
		from = f.Addr
	}
	code, err := ob.image.Open()
	if err != nil {
		return nil, err
	}
	defer code.Close()
	all, err := disassemble(ob.of.page, code.File, from, end, intelSyntax, ob.of.take)
	if err != nil {
		return nil, err
	}
	var insts []driver.Inst
	var addrs []uint64
	for _, inst := range all {
		if inst.Addr < start || len(addrs) > 0 && inst.Addr <= addrs[len(addrs)-1] {
			continue
		}
		if f, ok := table.Lookup(inst.Addr); ok {
			inst.Function = f.Name
		}
		insts = append(insts, inst)
		addrs = append(addrs, inst.Addr)
		ob.lines[inst.Addr] = []driver.Frame{{Func: inst.Function}}
	}
	stop := func() bool { return ob.of.page.Err() != nil }
	ob.image.LinesUntil(stop, addrs, func(i int, found []srcline.Frame) {
		if !ob.of.take(sizeOfFrame * len(found)) {
			return
		}
		frames := make([]driver.Frame, len(found))
		for j, f := range found {
			frames[j] = driver.Frame{Func: f.Func, File: f.File, Line: f.Line, Column: f.Column}
		}
		if inst := &insts[i]; len(frames) > 0 {
			inst.File, inst.Line = frames[0].File, frames[0].Line
			if outer := &frames[len(frames)-1]; inst.Function != "" {
				outer.Func = inst.Function // the symbol's name, as in the profile
			}
			ob.lines[inst.Addr] = frames
		}
	})
	return insts, nil
}

// disassemble lets objdump decode a file's code at virtual addresses, as far as take has memory for it.
func disassemble(ctx context.Context, code *os.File, start, end uint64, intelSyntax bool, take func(n int) bool,
) ([]driver.Inst, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := []string{"--disassemble", "--demangle", "--wide", "--no-show-raw-insn",
		fmt.Sprintf("--start-address=%#x", start), fmt.Sprintf("--stop-address=%#x", end)}
	if intelSyntax {
		args = append(args, "--disassembler-options=intel")
	}
	cmd := exec.CommandContext(ctx, disassembler(), append(args, "/proc/self/fd/3")...)
	cmd.ExtraFiles = []*os.File{code}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var insts []driver.Inst
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		// "    1190:\tmov    $0xc350,%eax"
		addr, text, ok := strings.Cut(lines.Text(), ":\t")
		if !ok {
			continue
		}
		if at, err := strconv.ParseUint(strings.TrimSpace(addr), 16, 64); err == nil {
			if !take(sizeOfInstruction + len(text)) {
				cancel()
				_ = cmd.Wait() // it was killed
				return insts, nil
			}
			insts = append(insts, driver.Inst{Addr: at, Text: strings.Join(strings.Fields(text), " ")})
		}
	}
	io.Copy(io.Discard, out) // the rest, after a line that is too long
	return insts, errors.Join(lines.Err(), cmd.Wait())
}

// sourceObjects are the objects of pages with source: their source files have the names of their copies.
type sourceObjects struct {
	*objects
	sources *sources
}

func (o sourceObjects) Open(file string, start, limit, offset uint64, symbol string) (driver.ObjFile, error) {
	ob, err := o.objects.Open(file, start, limit, offset, symbol)
	if err != nil {
		return nil, err
	}
	return sourceObject{ob.(*object), o.sources}, nil
}

func (o sourceObjects) Disasm(file string, start, end uint64, intelSyntax bool) ([]driver.Inst, error) {
	insts, err := o.objects.Disasm(file, start, end, intelSyntax)
	for i := range insts {
		insts[i].File = o.sources.masked(insts[i].File)
	}
	return insts, err
}

type sourceObject struct {
	*object
	sources *sources
}

func (ob sourceObject) SourceLine(addr uint64) ([]driver.Frame, error) {
	frames, err := ob.object.SourceLine(addr)
	frames = slices.Clone(frames)
	for i := range frames {
		f := &frames[i]
		if f.File != "" {
			ob.sources.offer(f.File)
		}
		f.File = ob.sources.masked(f.File)
	}
	return frames, err
}
