package dwarfcfi

import "unspool/dwarfcfi/elf"

// FDE is a decoded frame description entry: the code from Start up to End.
type FDE struct {
	Offset     uint64 // of the entry in its section
	Start, End uint64 // addresses in the ELF image; End is exclusive
	CIE        *CIE

	code   span // instructions
	frames *frames

	from, upTo uint64 // around the address that was looked up, where look-ups find this FDE and no other one
}

// Section names the section that holds the FDE.
func (d *FDE) Section() string { return d.frames.name }

// Covers reports whether pc lies in the FDE's range.
func (d *FDE) Covers(pc uint64) bool { return pc-d.Start < d.End-d.Start }

// fde decodes the FDE at offset.
func (f *frames) fde(offset uint64) (FDE, error) {
	e, err := f.entry(offset)
	if err != nil {
		return FDE{}, err
	}
	if e.zero || e.isCIE {
		return FDE{}, f.bad(offset, "entry is not an FDE")
	}
	return f.parseFDE(&e)
}

func (f *frames) parseFDE(e *entry) (FDE, error) {
	cie, err := f.cie(e.cie)
	if err != nil {
		return FDE{}, err
	}
	c := elf.Cursor{Data: f.Data[:e.end], Pos: e.body}
	c.Take(int(cie.segSize))
	b := f.bases(cie)
	start := b.pointer(&c, cie.pointerEnc)
	size := b.length(&c, cie.pointerEnc)
	if cie.sized {
		n := c.ULEB()
		if n > uint64(len(c.Data)) {
			c.Bad = true
		}
		c.Take(int(n)) // the LSDA
	}
	if c.Bad {
		return FDE{}, f.bad(e.offset, "FDE is cut short or has pointers in an unsupported encoding")
	}
	if start+size < start {
		return FDE{}, f.bad(e.offset, "FDE wraps around the end of the address space")
	}
	if e.end-c.Pos > maxProgram {
		return FDE{}, f.bad(e.offset, "FDE has too many instructions")
	}
	return FDE{
		Offset: e.offset, Start: start, End: start + size, CIE: cie,
		code: span{uint32(c.Pos), uint32(e.end)}, frames: f,
	}, nil
}
