package symbols

import (
	"bytes"
	"fmt"

	"unspool/dwarfcfi/elf"
)

// A Go binary keeps its function table, the pclntab, when it is stripped: the runtime needs it for tracebacks. It has had two
// forms since Go 1.16 (runtime/symtab.go, internal/abi/symtab.go), told apart by a magic number.
const (
	goMagic116 = 0xfffffffa // 1.16 and 1.17: functions have addresses
	goMagic118 = 0xfffffff0 // 1.18 and 1.19: they have offsets from runtime.text
	goMagic120 = 0xfffffff1
)

// goTable is the part of a pclntab with the functions and their names.
type goTable struct {
	f     *elfFile
	magic uint32
	word  uint64 // size of an address
	n     uint64 // functions
	text  uint64 // what offsets count from, 0 when the table does not say
	names []byte // NUL-terminated
	funcs []byte // pairs of address and offset of the function's entry in funcs, the end, then the entries
}

// readGo adds the functions of Go's table, if there is one.
func (b *builder) readGo(f *elfFile) error {
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type != elf.SHT_PROGBITS || s.Flags&elf.SHF_ALLOC == 0 || s.Flags&elf.SHF_EXECINSTR != 0 ||
			!f.Named(s, ".gopclntab") && !f.Named(s, ".data.rel.ro.gopclntab") {
			continue
		}
		t, err := f.goTable(s)
		if err == nil && !t.findText(b.code) {
			err = fmt.Errorf("cannot tell where the code begins")
		}
		if err != nil {
			return fmt.Errorf("function table of Go at offset 0x%x: %w", s.Offset, err)
		}
		t.add(b)
		break
	}
	return nil
}

// goTable reads the table in s: a header of the magic number, two zeroes, the size of the shortest instruction, the size of an address,
// and words (runtime.pcHeader).
func (f *elfFile) goTable(s *elf.Section) (*goTable, error) {
	head, err := f.Read(s.Offset, min(s.Size, 8+8*8))
	if err != nil || len(head) < 8 {
		return nil, fmt.Errorf("no header: %w", err)
	}
	t := &goTable{f: f, magic: f.Order.Uint32(head), word: uint64(head[7])}
	if t.word != uint64(f.Pick(8, 4)) || uint64(len(head)) < 8+8*t.word {
		return nil, fmt.Errorf("header of %d bytes for addresses of %d", len(head), t.word)
	}
	word := func(i int) uint64 { return f.Word(head[8:], 8*i, 4*i) }
	var names, names2, funcs uint64
	t.n = word(0)
	switch t.magic {
	case goMagic116: // nfunc, nfiles, names, cutab, filetab, pctab, funcs
		names, names2, funcs = word(2), word(3), word(6)
	case goMagic118, goMagic120: // runtime.text comes before names; it is 0 since Go 1.26, and where a relocation fills it in
		t.text, names, names2, funcs = word(2), word(3), word(4), word(7)
	default:
		return nil, fmt.Errorf("unknown magic number 0x%x", t.magic)
	}
	if names > names2 || names2 > s.Size || funcs > s.Size || names2-names > maxStrings || s.Size-funcs > maxStrings {
		return nil, fmt.Errorf("names at 0x%x to 0x%x and functions at 0x%x of 0x%x bytes", names, names2, funcs, s.Size)
	}
	if t.n == 0 || t.n > maxSymbols || (2*t.n+1)*t.field() > s.Size-funcs {
		return nil, fmt.Errorf("%d functions in 0x%x bytes", t.n, s.Size-funcs)
	}
	if t.names, err = f.Read(s.Offset+names, names2-names); err != nil {
		return nil, err
	}
	if t.funcs, err = f.Read(s.Offset+funcs, s.Size-funcs); err != nil {
		return nil, err
	}
	return t, nil
}

// field is the size of the numbers in the list of functions.
func (t *goTable) field() uint64 {
	if t.magic == goMagic116 {
		return t.word
	}
	return 4
}

// number is a field of the list of functions.
func (t *goTable) number(i uint64) uint64 {
	if t.field() == 8 {
		return t.f.Order.Uint64(t.funcs[8*i:])
	}
	return uint64(t.f.Order.Uint32(t.funcs[4*i:]))
}

// function gives the i-th function's extent, from text, and its name's offset.
func (t *goTable) function(i uint64) (start, end uint64, name uint32, ok bool) {
	start, end = t.number(2*i), t.number(2*i+2)
	// The entry (runtime._func) begins with the address or the offset again; then comes the name.
	at := t.number(2*i+1) + t.field()
	if end <= start || at < t.field() || at+4 > uint64(len(t.funcs)) {
		return 0, 0, 0, false
	}
	name = t.f.Order.Uint32(t.funcs[at:])
	return start, end, name, uint64(name) < uint64(len(t.names))
}

func (t *goTable) add(b *builder) {
	base := b.addStrings(t.names)
	for i := range t.n {
		start, end, name, ok := t.function(i)
		if addr := t.text + start; ok && t.names[name] != 0 && codeEnd(b.code, addr) != addr {
			b.syms = append(b.syms, symbol{addr: addr, size: uint32(min(end-start, 1<<32-1)), name: base + name})
		}
	}
}

// maxTries bounds for how many places it is found out whether functions begin there.
const maxTries = 64

// findText finds the address that offsets count from, runtime.text. Go's linker begins .text with it, a C linker may put other code
// first.
func (t *goTable) findText(code []addrRange) bool {
	if t.magic == goMagic116 {
		t.text = 0
		return t.fits(code, 0)
	}
	if t.text != 0 && t.fits(code, t.text) {
		return true
	}
	for _, r := range code[:min(len(code), maxTries)] {
		if t.fits(code, r.start) {
			t.text = r.start
			return true
		}
	}
	return t.f.Machine == elf.EM_X86_64 && t.findTrampoline(code)
}

// fits says whether the functions are where they are if they count from text: in code, and on x86 between INT3 instructions, with which
// the linker pads them.
func (t *goTable) fits(code []addrRange, text uint64) bool {
	const enough, int3 = 64, 0xcc
	n, padded := 0, 0
	for i := uint64(1); i < t.n; i += max(1, t.n/enough) {
		start, _, _, ok := t.function(i)
		addr := text + start
		if !ok {
			continue
		}
		if codeEnd(code, addr) == addr {
			return false
		}
		n++
		if b, ok := t.f.memory(addr-1, 1); ok && b[0] == int3 {
			padded++
		}
	}
	switch t.f.Machine {
	case elf.EM_X86_64, elf.EM_386:
		return n > 0 && padded >= n*3/4
	}
	return n > 0
}

// findTrampoline finds runtime.text by a function whose code is known: what signal handlers return to. The C library may have the
// same.
func (t *goTable) findTrampoline(code []addrRange) bool {
	sigreturn := []byte{0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05} // mov $15 (rt_sigreturn), %rax; syscall
	const name = "runtime.sigreturn__sigaction"
	var offset uint64
	found := false
	for i := uint64(0); i < t.n && !found; i++ {
		start, _, at, ok := t.function(i)
		found = ok && string(cString(t.names[:min(len(t.names), int(at)+len(name)+1)], at)) == name
		offset = start
	}
	if !found {
		return false
	}
	const chunk = 1 << 20
	left, tries := int64(t.f.Size), maxTries
	for _, r := range code {
		for from := r.start; from < r.end && left > 0; from += chunk {
			n := min(chunk+uint64(len(sigreturn))-1, r.end-from)
			left -= int64(n)
			b, ok := t.f.memory(from, n)
			for i := 0; ok; i++ {
				j := bytes.Index(b[i:], sigreturn)
				if j < 0 {
					break
				}
				i += j
				text := from + uint64(i) - offset
				if t.fits(code, text) {
					t.text = text
					return true
				}
				if tries--; tries == 0 {
					return false
				}
			}
		}
	}
	return false
}

// memory reads what the file says is at a virtual address.
func (f *elfFile) memory(addr, n uint64) ([]byte, bool) {
	s := f.loads.At(addr)
	if s == nil || n > s.Filesz-(addr-s.Vaddr) {
		return nil, false
	}
	b, err := f.Read(s.Offset+(addr-s.Vaddr), n)
	return b, err == nil
}
