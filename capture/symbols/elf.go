package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits on what an ELF file may claim. The largest browsers and compilers stay well below them; what is above is damaged
// or hostile, and costs its own names only.
const (
	maxSections = 1 << 16
	maxSymbols  = 1 << 24
	maxStrings  = 512 << 20
	maxNotes    = 1 << 20
)

// elfFile is what of an ELF file the symbol tables need: the segments, the section headers, and a bounded way to read bytes.
// It reads the headers itself instead of through debug/elf, which makes a string of every section's and symbol's name and
// so takes time in the product of what a file claims.
type elfFile struct {
	r       io.ReaderAt
	size    int64
	order   binary.ByteOrder
	is64    bool
	machine elf.Machine
	loads   []segment
	notes   []extent
	sects   []section
	names   section // section header string table, Size 0 when there is none
}

// segment is a PT_LOAD: File bytes at Off appear at virtual address Addr.
type segment struct {
	Off, Addr, FileSize, MemSize uint64
	Exec                         bool
}

// extent is a run of bytes in the file.
type extent struct{ Off, Size uint64 }

// section is a section header; Name is an offset in the section header string table.
type section struct {
	Name               uint32
	Type               elf.SectionType
	Flags              elf.SectionFlag
	Addr, Off, Size    uint64
	Link, Info         uint32
	EntrySize, Ordinal uint64
}

// parseELF reads the ELF header, the program headers and the section headers of the size bytes behind r.
func parseELF(r io.ReaderAt, size int64) (*elfFile, error) {
	f := &elfFile{r: r, size: size}
	head, err := f.read(0, 52)
	if err != nil || string(head[:4]) != elf.ELFMAG {
		return nil, errors.New("not an ELF file")
	}
	switch elf.Data(head[elf.EI_DATA]) {
	case elf.ELFDATA2LSB:
		f.order = binary.LittleEndian
	case elf.ELFDATA2MSB:
		f.order = binary.BigEndian
	default:
		return nil, fmt.Errorf("ELF header: unknown data encoding %d", head[elf.EI_DATA])
	}
	switch elf.Class(head[elf.EI_CLASS]) {
	case elf.ELFCLASS64:
		f.is64 = true
		if head, err = f.read(0, 64); err != nil {
			return nil, fmt.Errorf("ELF header: %w", err)
		}
	case elf.ELFCLASS32:
	default:
		return nil, fmt.Errorf("ELF header: unknown class %d", head[elf.EI_CLASS])
	}
	f.machine = elf.Machine(f.order.Uint16(head[18:]))
	// e_phoff, e_shoff, then the six half words e_ehsize … e_shstrndx.
	var phoff, shoff uint64
	var tail []byte
	if f.is64 {
		phoff, shoff, tail = f.order.Uint64(head[32:]), f.order.Uint64(head[40:]), head[52:]
	} else {
		phoff, shoff, tail = uint64(f.order.Uint32(head[28:])), uint64(f.order.Uint32(head[32:])), head[40:]
	}
	if err := f.readSegments(phoff, int(f.order.Uint16(tail[2:])), int(f.order.Uint16(tail[4:]))); err != nil {
		return nil, err
	}
	err = f.readSections(shoff, int(f.order.Uint16(tail[6:])), int(f.order.Uint16(tail[8:])), int(f.order.Uint16(tail[10:])))
	if err != nil {
		return nil, err
	}
	return f, nil
}

// read returns the n bytes at off, or an error when the file does not have them.
func (f *elfFile) read(off, n uint64) ([]byte, error) {
	if off > uint64(f.size) || n > uint64(f.size)-off {
		return nil, fmt.Errorf("%d bytes at offset 0x%x reach beyond the end of the file (0x%x)", n, off, f.size)
	}
	b := make([]byte, n)
	if m, err := f.r.ReadAt(b, int64(off)); m < len(b) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("reading %d bytes at offset 0x%x: %w", n, off, err)
	}
	return b, nil
}

// word reads an address-sized field: 8 bytes at off64 of a 64-bit structure, 4 at off32 of a 32-bit one.
func (f *elfFile) word(b []byte, off64, off32 int) uint64 {
	if f.is64 {
		return f.order.Uint64(b[off64:])
	}
	return uint64(f.order.Uint32(b[off32:]))
}

func (f *elfFile) readSegments(off uint64, entry, n int) error {
	if n == 0 {
		return nil
	}
	if want := f.pick(56, 32); entry != want {
		return fmt.Errorf("ELF header: program header size %d, not %d", entry, want)
	}
	b, err := f.read(off, uint64(entry)*uint64(n))
	if err != nil {
		return fmt.Errorf("program headers: %w", err)
	}
	for ; len(b) > 0; b = b[entry:] {
		s := segment{Off: f.word(b, 8, 4), Addr: f.word(b, 16, 8), FileSize: f.word(b, 32, 16), MemSize: f.word(b, 40, 20)}
		flags := f.order.Uint32(b[f.pick(4, 24):])
		s.Exec = elf.ProgFlag(flags)&elf.PF_X != 0
		switch elf.ProgType(f.order.Uint32(b)) {
		case elf.PT_LOAD:
			f.loads = append(f.loads, s)
		case elf.PT_NOTE:
			f.notes = append(f.notes, extent{s.Off, s.FileSize})
		}
	}
	return nil
}

func (f *elfFile) readSections(off uint64, entry, n, names int) error {
	if off == 0 {
		return nil
	}
	want := f.pick(64, 40)
	if entry != want {
		return fmt.Errorf("ELF header: section header size %d, not %d", entry, want)
	}
	if n == 0 || names == int(elf.SHN_XINDEX) {
		// More sections than e_shnum can say: the counts are in the first section header (gABI, "Sections").
		b, err := f.read(off, uint64(entry))
		if err != nil {
			return fmt.Errorf("section headers: %w", err)
		}
		if n == 0 {
			n = int(min(f.word(b, 32, 20), maxSections+1))
		}
		if names == int(elf.SHN_XINDEX) {
			names = int(f.order.Uint32(b[f.pick(40, 24):]))
		}
	}
	if n > maxSections {
		return fmt.Errorf("section headers: more than %d", maxSections)
	}
	b, err := f.read(off, uint64(entry)*uint64(n))
	if err != nil {
		return fmt.Errorf("section headers: %w", err)
	}
	f.sects = make([]section, 0, n)
	for ; len(b) > 0; b = b[entry:] {
		f.sects = append(f.sects, section{
			Name:      f.order.Uint32(b),
			Type:      elf.SectionType(f.order.Uint32(b[4:])),
			Flags:     elf.SectionFlag(f.word(b, 8, 8)),
			Addr:      f.word(b, 16, 12),
			Off:       f.word(b, 24, 16),
			Size:      f.word(b, 32, 20),
			Link:      f.order.Uint32(b[f.pick(40, 24):]),
			Info:      f.order.Uint32(b[f.pick(44, 28):]),
			EntrySize: f.word(b, 56, 36),
			Ordinal:   uint64(len(f.sects)),
		})
	}
	if names < len(f.sects) && f.sects[names].Type == elf.SHT_STRTAB {
		f.names = f.sects[names]
	}
	return nil
}

func (f *elfFile) pick(in64, in32 int) int {
	if f.is64 {
		return in64
	}
	return in32
}

// named says whether the section is called name. It reads no more than the name is long.
func (f *elfFile) named(s section, name string) bool {
	if uint64(s.Name)+uint64(len(name))+1 > f.names.Size {
		return false
	}
	b, err := f.read(f.names.Off+uint64(s.Name), uint64(len(name)+1))
	return err == nil && string(b[:len(name)]) == name && b[len(name)] == 0
}

// section finds a section by its name, among those that are not loaded.
func (f *elfFile) section(name string) (section, bool) {
	for _, s := range f.sects {
		if s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_ALLOC == 0 && f.named(s, name) {
			return s, true
		}
	}
	return section{}, false
}

// link returns the section that s refers to by sh_link.
func (f *elfFile) link(s section) (section, bool) {
	if int64(s.Link) >= int64(len(f.sects)) || s.Link == 0 {
		return section{}, false
	}
	return f.sects[s.Link], true
}

// buildID returns the descriptor of the first NT_GNU_BUILD_ID note, nil when there is none. Relocatable files (kernel modules) have
// notes in sections only, and in Go's files the segment of notes leaves out the GNU one.
func (f *elfFile) buildID() []byte {
	left := uint64(maxNotes)
	in := func(off, size uint64) []byte {
		if size > left {
			return nil
		}
		left -= size
		b, err := f.read(off, size)
		if err != nil {
			return nil
		}
		return noteBuildID(b, f.order)
	}
	for _, n := range f.notes {
		if id := in(n.Off, n.Size); id != nil {
			return id
		}
	}
	for _, s := range f.sects {
		if s.Type == elf.SHT_NOTE {
			if id := in(s.Off, s.Size); id != nil {
				return id
			}
		}
	}
	return nil
}

// noteBuildID finds the NT_GNU_BUILD_ID (type 3, owner "GNU") among notes: three words namesz, descsz and type, then name
// and descriptor, each padded to four bytes.
func noteBuildID(b []byte, order binary.ByteOrder) []byte {
	for len(b) >= 12 {
		nameSize, descSize, kind := uint64(order.Uint32(b)), uint64(order.Uint32(b[4:])), order.Uint32(b[8:])
		b = b[12:]
		padded := (nameSize + 3) &^ 3
		if padded > uint64(len(b)) || descSize > uint64(len(b))-padded {
			return nil
		}
		name, desc := b[:nameSize], b[padded:padded+descSize]
		if kind == 3 && string(name) == "GNU\x00" && descSize > 0 && descSize <= 64 {
			return bytes.Clone(desc)
		}
		b = b[min(padded+(descSize+3)&^3, uint64(len(b))):]
	}
	return nil
}
