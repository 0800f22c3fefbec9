package explore

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/pprof/driver"
	proto "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/capture/symbols/srcline"
)

// objects finds the machine code of a profile's images and its source lines for pprof, in the files that the
// profile's names come from: the recorded builds, with their debug files. If there is no file, or no objdump,
// pprof lists the source by the lines of the profile alone.
type objects struct {
	ctx      context.Context
	problem  func(string)
	mappings []*proto.Mapping
	images   map[build]*profile.Image

	mu      sync.Mutex // pages are made concurrently, and a Symbolizer is for one goroutine at a time
	symbols *symbols.Symbolizer
	opened  map[string]*object // by file; nil for files that cannot be opened
	owned   map[build][]owner
}

// build is a mapping's file, and its build ID in hexadecimal.
type build struct{ file, id string }

// object is an image whose code is shown.
type object struct {
	of     *objects
	image  *symbols.Image
	owners []owner
	bias   uint64 // added to virtual addresses
	lines  map[uint64][]driver.Frame
}

// newObjects finds the objects of the mappings that images were converted to.
func newObjects(
	ctx context.Context, images []profile.Image, mappings []*proto.Mapping, o symbols.Options,
	problem func(string),
) *objects {
	return &objects{
		ctx: ctx, problem: problem, mappings: mappings, images: byBuild(images), symbols: symbols.New(o),
		opened: make(map[string]*object), owned: make(map[build][]owner),
	}
}

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
		ob = o.open(file)
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
	owners := o.ownersOf(build{file, first.BuildID})
	code, err := openImage(im, owners)
	if err != nil {
		if errors.As(err, &refused{}) || errors.Is(err, fs.ErrPermission) {
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
			return &object{o, im, owners, first.Start - (s.Addr - intoPage), make(map[uint64][]driver.Frame)}
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

// owners are the users who own the image of a mapping.
func (o *objects) owners(m *proto.Mapping) []owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ownersOf(build{m.File, m.BuildID})
}

func (o *objects) ownersOf(b build) []owner {
	found, ok := o.owned[b]
	if !ok {
		found = o.findOwners(b)
		o.owned[b] = found
	}
	return found
}

// findOwners returns the owner of the image's file. If that is a copy, as in perf's cache, it also returns
// the owner of the original, as root owns the files that it has copied.
func (o *objects) findOwners(b build) []owner {
	unknown := []owner{{image: b.file}}
	im := o.image(b)
	if im == nil {
		return unknown
	}
	file, err := im.Open()
	if err != nil {
		return unknown
	}
	defer file.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return unknown
	}
	found := []owner{{st.Uid, true, b.file}}
	uid, err := ownerAt(strings.TrimSuffix(b.file, " (deleted)"))
	switch {
	case missing(err):
	case err != nil:
		return unknown
	case uid != st.Uid:
		found = append(found, owner{uid, true, b.file})
	}
	return found
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
	table := ob.image.Table()
	for i := range table.Len() {
		f := table.At(i)
		name := ob.of.symbols.Name(f.Name)
		if addr != 0 && addr-f.Addr < f.Size || r == nil || r.MatchString(f.Name) || r.MatchString(name) {
			found = append(found, &driver.Sym{Name: []string{name}, File: ob.image.Path, Start: f.Addr,
				End: f.Addr + f.Size})
		}
	}
	return found, nil
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

// openImage opens an image's file. Its owners must be able to read it as well.
func openImage(im *symbols.Image, owners []owner) (*os.File, error) {
	opened, err := im.Open()
	if err != nil {
		return nil, err
	}
	code := opened.File // which this process has opened: it has rights of its own
	route, err := routeTo(code)
	if o, ok := route.refuses(owners); err == nil && ok {
		err = refused{o}
	}
	if err != nil {
		code.Close()
		return nil, err
	}
	return code, nil
}

// Disasm returns the instructions from start to end, and looks up their source lines. pprof asks for whole
// functions, and for code around samples. The latter may start in the middle of an instruction, so decoding
// starts with a function.
func (o *objects) Disasm(file string, start, end uint64, intelSyntax bool) ([]driver.Inst, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ob := o.opened[file]
	if ob == nil {
		return nil, fs.ErrNotExist
	}
	from := start
	table := ob.image.Table()
	if f, ok := table.Lookup(start); ok && start-f.Addr < maxLead {
		from = f.Addr
	}
	code, err := openImage(ob.image, ob.owners)
	if err != nil {
		return nil, err
	}
	defer code.Close()
	all, err := disassemble(o.ctx, code, from, end, intelSyntax)
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
	ob.image.Lines(addrs, func(i int, found []srcline.Frame) {
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

// disassemble lets objdump decode a file's code at virtual addresses.
func disassemble(ctx context.Context, code *os.File, start, end uint64,
	intelSyntax bool) ([]driver.Inst, error) {
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
			ob.sources.offer(f.File, ob.owners)
		}
		f.File = ob.sources.masked(f.File)
	}
	return frames, err
}
