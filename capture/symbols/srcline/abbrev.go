package srcline

import (
	"debug/dwarf"
	"fmt"

	"unspool/dwarfcfi/elf"
)

// role is what a DIE's tag means to the walk.
type role uint8

const (
	plain    role = iota // nothing; its children are walked only if addresses are left without a function
	scope                // contains functions: units, namespaces, modules
	block                // contains inlined functions
	function             // a function, or an inlined call of one
	inlined
)

func roleOf(tag dwarf.Tag) role {
	switch tag {
	case dwarf.TagSubprogram:
		return function
	case dwarf.TagInlinedSubroutine:
		return inlined
	case dwarf.TagLexDwarfBlock, dwarf.TagTryDwarfBlock, dwarf.TagCatchDwarfBlock, dwarf.TagWithStmt:
		return block
	case dwarf.TagCompileUnit, dwarf.TagPartialUnit, dwarf.TagSkeletonUnit, dwarf.TagNamespace, dwarf.TagModule,
		dwarf.TagCommonDwarfBlock:
		return scope
	}
	return plain
}

// abbrev is an abbreviation: the shape of a DIE.
type abbrev struct {
	code     uint64
	tag      dwarf.Tag
	role     role
	children bool
	sibling  bool   // has a DW_AT_sibling
	specs    []spec // nil: an abbreviation that does not exist
	skips    []skip // how to get past the attributes
}

// spec is one attribute of an abbreviation.
type spec struct {
	attr     dwarf.Attr
	form     form
	step     step
	size     uint8 // bytes, of stepFixed
	implicit int64 // the value, of DW_FORM_implicit_const
}

func newSpec(attr dwarf.Attr, f form, u *unit) (s spec, ok bool) {
	st, n, ok := f.size(u)
	return spec{attr: attr, form: f, step: st, size: n}, ok
}

// skip is a step past one or several attributes.
type skip struct {
	step step
	n    uint32 // bytes, of stepFixed and stepSibling
}

type step uint8

const (
	stepFixed   step = iota
	stepSibling      // a DW_AT_sibling of n bytes, relative to the unit
	stepLEB
	stepString
	stepBlock // a ULEB128 length and as many bytes
	stepBlock1
	stepBlock2
	stepBlock4
	stepIndirect
)

// abbrevs is an abbreviation table. Compilers number abbreviations 1, 2, 3, ...: those are found by index.
type abbrevs struct {
	dense []abbrev // dense[i] has the code i+1
	rest  map[uint64]*abbrev
}

func (t *abbrevs) lookup(code uint64) *abbrev {
	if code-1 < uint64(len(t.dense)) {
		return &t.dense[code-1]
	}
	return t.rest[code]
}

// tableKey is where a table is, and what the sizes of its forms depend on.
type tableKey struct {
	off                          uint64
	offsetSize, addrSize, refLen uint8
}

// Limits on an abbreviation table; LLVM's and GCC's largest have a few thousand abbreviations.
const (
	maxAbbrevs = 1 << 16
	maxSpecs   = 1 << 20
	maxTables  = 128 // tables that are kept
)

// abbrevs returns the unit's abbreviation table.
func (d *Data) abbrevs(u *unit) (*abbrevs, error) {
	o := u.obj
	key := tableKey{u.abbrevOff, u.offsetSize, u.addrSize, u.refAddrSize()}
	if t := o.tables[key]; t != nil {
		return t, nil
	}
	// Tables do not say how long they are. Most are short.
	var t *abbrevs
	for n := uint64(16 << 10); ; n *= 8 {
		b, err := o.abbrev.view(u.abbrevOff, 1, n)
		if err != nil {
			return nil, err
		}
		c := elf.Cursor{Data: b}
		t, err = parseAbbrevs(&c, u)
		if !d.spend(c.Pos) {
			return nil, o.abbrev.bad(u.abbrevOff, errWork.Error())
		}
		if err != nil {
			return nil, o.abbrev.bad(u.abbrevOff+uint64(c.Pos), err.Error())
		}
		if !c.Bad {
			break
		}
		if uint64(len(b)) < n {
			return nil, o.abbrev.bad(u.abbrevOff, "abbreviation table without an end")
		}
	}
	if o.tables == nil || len(o.tables) >= maxTables {
		o.tables = make(map[tableKey]*abbrevs)
	}
	o.tables[key] = t
	return t, nil
}

// parseAbbrevs parses a table. It leaves c bad if the table goes on beyond c's bytes.
func parseAbbrevs(c *elf.Cursor, u *unit) (*abbrevs, error) {
	t := &abbrevs{}
	var specs []spec
	for n := 0; ; n++ {
		code := c.WrappedULEB()
		if code == 0 || c.Bad {
			return t, nil
		}
		if n == maxAbbrevs || len(specs) > maxSpecs {
			return nil, fmt.Errorf("abbreviation table with more than %d abbreviations or %d attributes", maxAbbrevs,
				maxSpecs)
		}
		a := abbrev{code: code}
		if tag := c.WrappedULEB(); tag <= 0xffff {
			a.tag, a.role = dwarf.Tag(tag), roleOf(dwarf.Tag(tag))
		}
		a.children = c.U8() != 0
		first := len(specs)
		for {
			attr, f := c.WrappedULEB(), c.WrappedULEB()
			if c.Bad {
				return t, nil
			}
			if attr == 0 && f == 0 {
				break
			}
			if attr > 0xffff || f > 0xffff {
				return nil, fmt.Errorf("attribute %#x of form %#x", attr, f)
			}
			s, ok := newSpec(dwarf.Attr(attr), form(f), u)
			if !ok {
				return nil, fmt.Errorf("unknown form %#x of attribute %#x", f, attr)
			}
			if s.form == formImplicitConst {
				s.implicit = c.SLEB()
			}
			if s.attr == dwarf.AttrSibling {
				a.sibling = true
			}
			a.addSkip(s)
			specs = append(specs, s)
		}
		a.specs = specs[first:len(specs):len(specs)]
		if a.specs == nil {
			a.specs = []spec{}
		}
		if code == uint64(len(t.dense))+1 {
			t.dense = append(t.dense, a)
			continue
		}
		if t.rest == nil {
			t.rest = make(map[uint64]*abbrev)
		}
		t.rest[code] = &a
	}
}

// addSkip adds the step past an attribute. If it and the one before have fixed sizes, they become one step.
func (a *abbrev) addSkip(s spec) {
	n := uint32(s.size)
	if s.attr == dwarf.AttrSibling && s.step == stepFixed && s.form.isUnitRef() {
		a.skips = append(a.skips, skip{stepSibling, n})
		return
	}
	if s.step == stepFixed {
		if n == 0 {
			return
		}
		if last := len(a.skips) - 1; last >= 0 && a.skips[last].step == stepFixed {
			a.skips[last].n += n
			return
		}
	}
	a.skips = append(a.skips, skip{s.step, n})
}

// skipDIE skips a DIE's attributes and returns its DW_AT_sibling, relative to the unit, 0 if it has none.
func (a *abbrev) skipDIE(c *elf.Cursor, u *unit) (sibling uint64) {
	for _, s := range a.skips {
		switch s.step {
		case stepFixed:
			c.Skip(uint64(s.n))
		case stepSibling:
			sibling = c.Uint(uint8(s.n))
		default:
			skipStep(c, s.step, u)
		}
	}
	return sibling
}

func skipStep(c *elf.Cursor, st step, u *unit) {
	switch st {
	case stepLEB:
		c.WrappedULEB()
	case stepString:
		c.CString()
	case stepBlock:
		c.Skip(c.WrappedULEB())
	case stepBlock1:
		c.Skip(uint64(c.U8()))
	case stepBlock2:
		c.Skip(uint64(c.U16()))
	case stepBlock4:
		c.Skip(uint64(c.U32()))
	case stepIndirect:
		readIndirect(c, u)
	}
}
