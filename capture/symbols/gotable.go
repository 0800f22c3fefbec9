package symbols

import (
	"bytes"
	"fmt"

	"unspool/dwarfcfi/elf"
	"unspool/unwind/gotab"
)

// A stripped Go binary still has its function table, the pclntab, which the runtime needs for tracebacks.

// goTable has the functions of a pclntab and the address that they are relative to.
type goTable struct {
	*gotab.NameTable
	f    *elfFile
	at   *elf.Section
	text uint64 // the address that the functions' offsets are relative to
}

// readGo adds the functions of Go's table, if there is one.
func (b *builder) readGo(f *elfFile) error {
	t, err := f.findGo(b.code)
	if t != nil && err == nil {
		t.add(b)
	}
	return err
}

// findGo finds Go's table, nil if there is none.
func (f *elfFile) findGo(code []addrRange) (*goTable, error) {
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type != elf.SHT_PROGBITS || s.Flags&elf.SHF_ALLOC == 0 || s.Flags&elf.SHF_EXECINSTR != 0 ||
			!f.Named(s, ".gopclntab") && !f.Named(s, ".data.rel.ro.gopclntab") {
			continue
		}
		t, err := f.goTable(s)
		if err == nil && !t.findText(code) {
			err = fmt.Errorf("cannot tell where the code begins")
		}
		if err != nil {
			return nil, fmt.Errorf("function table of Go at offset 0x%x: %w", s.Offset, err)
		}
		return t, nil
	}
	return nil, nil
}

// goTable reads the table in s.
func (f *elfFile) goTable(s *elf.Section) (*goTable, error) {
	names, err := gotab.ReadNames(f.File, s.Offset, s.Size)
	if err != nil {
		return nil, err
	}
	return &goTable{NameTable: names, f: f, at: s}, nil
}

func (t *goTable) add(b *builder) {
	names := t.Strings()
	base := b.addStrings(names)
	for i := range t.Len() {
		start, end, name, ok := t.Function(i)
		if addr := t.text + start; ok && names[name] != 0 && codeEnd(b.code, addr) != addr {
			b.syms = append(b.syms, symbol{addr: addr, size: uint32(min(end-start, 1<<32-1)), name: base + name})
		}
	}
}

// maxTries bounds how many addresses are tried as the start of the functions.
const maxTries = 64

// findText finds the address that offsets are relative to, runtime.text. Go's linker begins .text with it;
// a C linker may put other code first.
func (t *goTable) findText(code []addrRange) bool {
	text, certain := t.Text()
	if t.text = text; (certain || text != 0) && t.fits(code, text) {
		return true
	}
	if certain {
		return false
	}
	for _, r := range code[:min(len(code), maxTries)] {
		if t.fits(code, r.start) {
			t.text = r.start
			return true
		}
	}
	return t.f.Machine == elf.EM_X86_64 && t.findTrampoline(code)
}

// fits reports whether the functions can be relative to text: then they are in code, and on x86 between INT3
// instructions, with which the linker pads them.
func (t *goTable) fits(code []addrRange, text uint64) bool {
	const enough, int3 = 64, 0xcc
	n, padded := 0, 0
	for i := 1; i < t.Len(); i += max(1, t.Len()/enough) {
		start, _, _, ok := t.Function(i)
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

// findTrampoline finds runtime.text by a function whose code is known: the one that signal handlers return
// to. The C library may have the same code.
func (t *goTable) findTrampoline(code []addrRange) bool {
	sigreturn := []byte{0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05} // mov $15 (rt_sigreturn), %rax; syscall
	const name = "runtime.sigreturn__sigaction"
	var offset uint64
	found := false
	names := t.Strings()
	for i := 0; i < t.Len() && !found; i++ {
		start, _, at, ok := t.Function(i)
		found = ok && string(cString(names[:min(len(names), int(at)+len(name)+1)], at)) == name
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

// memory reads the bytes of the file that are loaded at a virtual address.
func (f *elfFile) memory(addr, n uint64) ([]byte, bool) {
	s := f.loads.At(addr)
	if s == nil || n > s.Filesz-(addr-s.Vaddr) {
		return nil, false
	}
	b, err := f.Read(s.Offset+(addr-s.Vaddr), n)
	return b, err == nil
}
