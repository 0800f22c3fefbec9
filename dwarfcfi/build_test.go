package dwarfcfi

import (
	"encoding/binary"
	"math"
	"testing"
)

// le are the functions that append little-endian values.
var le = binary.LittleEndian

func uleb128(v uint64) []byte { return binary.AppendUvarint(nil, v) }

func sleb128(v int64) []byte {
	var b []byte
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}

// join concatenates instructions: bytes as they are, byte slices, and rows of either.
func join(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = append(b, byte(p))
		case byte:
			b = append(b, p)
		case []byte:
			b = append(b, p...)
		case string:
			b = append(b, p...)
		default:
			panic("join takes bytes")
		}
	}
	return b
}

// builder writes a section of CIEs and FDEs.
type builder struct {
	Section
	eh      bool
	ptrSize int // 0: 8
	wide    bool
}

// cieSpec is a CIE to write. The zero values of the factors, the version and the return address
// column are those of x86-64: 1, -8, 1 and 16.
type cieSpec struct {
	version      byte
	augmentation string
	data         []byte // augmentation data, written after its length if there is a 'z'
	codeAlign    uint64
	dataAlign    int64
	ra           uint64
	addrSize     byte // version 4
	segSize      byte
	program      []byte

	offset uint64
}

// entry appends an entry; body follows the CIE id or CIE pointer.
func (b *builder) entry(cie *cieSpec, body []byte) uint64 {
	at := uint64(len(b.Data))
	idSize := 4
	if b.wide && !b.eh {
		idSize = 8
	}
	if b.wide {
		b.Data = le.AppendUint32(b.Data, math.MaxUint32)
		b.Data = le.AppendUint64(b.Data, uint64(idSize+len(body)))
	} else {
		b.Data = le.AppendUint32(b.Data, uint32(idSize+len(body)))
	}
	id := uint64(0)
	switch {
	case cie == nil && !b.eh:
		id = math.MaxUint64
	case cie != nil && b.eh:
		id = uint64(len(b.Data)) - cie.offset
	case cie != nil:
		id = cie.offset
	}
	b.Data = le.AppendUint64(b.Data, id)[:len(b.Data)+idSize]
	b.Data = append(b.Data, body...)
	return at
}

func (b *builder) cie(c cieSpec) *cieSpec {
	if c.version == 0 {
		c.version = 1
	}
	if c.codeAlign == 0 {
		c.codeAlign = 1
	}
	if c.dataAlign == 0 {
		c.dataAlign = -8
	}
	if c.ra == 0 {
		c.ra = 16
	}
	body := join(c.version, c.augmentation, 0)
	if c.version >= 4 {
		body = join(body, c.addrSize, c.segSize)
	}
	body = join(body, uleb128(c.codeAlign), sleb128(c.dataAlign))
	if c.version == 1 {
		body = join(body, byte(c.ra))
	} else {
		body = join(body, uleb128(c.ra))
	}
	if c.augmentation != "" && c.augmentation[0] == 'z' {
		body = join(body, uleb128(uint64(len(c.data))))
	}
	c.offset = b.entry(nil, join(body, c.data, c.program))
	return &c
}

// fde appends an FDE whose pointers are the given bytes: start and size.
func (b *builder) fde(c *cieSpec, pointers []byte, program ...any) uint64 {
	body := join(make([]byte, c.segSize), pointers)
	if c.augmentation != "" && c.augmentation[0] == 'z' {
		body = join(body, 0)
	}
	return b.entry(c, join(body, join(program...)))
}

// abs are pointers of encoding absptr.
func (b *builder) abs(start, size uint64) []byte {
	if b.ptrSize == 4 {
		return le.AppendUint32(le.AppendUint32(nil, uint32(start)), uint32(size))
	}
	return le.AppendUint64(le.AppendUint64(nil, start), size)
}

func (b *builder) sections() Sections {
	s := Sections{PtrSize: 8}
	if b.ptrSize != 0 {
		s.PtrSize = b.ptrSize
	}
	if b.eh {
		s.EhFrame = b.Section
	} else {
		s.DebugFrame = b.Section
	}
	return s
}

func (b *builder) table(t testing.TB) *Table {
	t.Helper()
	table, err := New(b.sections())
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// callSite is how x86-64 functions begin: CFA=rsp+8, return address at CFA-8.
var callSite = []byte{cfaDefCFA, 7, 8, cfaOffset | 16, 1}

// oneFDE is a table with one FDE over 0x1000..0x1100 and the given instructions.
func oneFDE(t testing.TB, cie cieSpec, program ...any) *Table {
	t.Helper()
	b := builder{eh: true}
	if cie.program == nil {
		cie.program = callSite
	}
	b.fde(b.cie(cie), b.abs(0x1000, 0x100), program...)
	return b.table(t)
}
