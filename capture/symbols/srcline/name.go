package srcline

import (
	"cmp"
	"debug/dwarf"
)

// maxOrigins bounds the chain from a function's code to its name. Real chains have three entries at most: an
// inlined call, the function itself, its declaration.
const maxOrigins = 16

// subprogram is what DIEs say about a function.
type subprogram struct {
	name   string
	linked bool // it is a linkage name
	start  int  // the line where it is declared; 0 if that is not known
}

// subprogram returns what the DIE at a place says about its function, and for what it does not say up to most-1 others
// along the chain of abstract origins and specifications. The name is the linkage name if one of them has that.
func (d *Data) subprogram(u *unit, at reference, most int) subprogram {
	if known, ok := at.obj.subprograms[at.off]; ok {
		return known
	}
	f, origin, err := d.readFunc(u, at)
	if err != nil {
		d.problems.add(err)
	}
	if origin.obj != nil && most > 1 && (!f.linked || f.start == 0) {
		if u, err = d.unitAt(origin.obj, origin.off); err != nil {
			d.problems.add(err)
		} else {
			more := d.subprogram(u, origin, most-1)
			if !f.linked && (more.linked || f.name == "") {
				f.name, f.linked = more.name, more.linked
			}
			f.start = cmp.Or(f.start, more.start)
		}
	}
	if origin.obj != nil && most == maxOrigins {
		return f // one of many calls of the same function
	}
	if at.obj.subprograms == nil {
		at.obj.subprograms = make(map[uint64]subprogram)
	}
	at.obj.subprograms[at.off] = f
	return f
}

// readFunc reads what a DIE itself says about its function, and where the next DIE of the chain is; its obj is nil
// at the end.
func (d *Data) readFunc(u *unit, at reference) (f subprogram, next reference, err error) {
	var linkage, name, origin, specification value
	err = d.readDIE(u, at.off, func(attr dwarf.Attr, v value) {
		switch attr {
		case dwarf.AttrLinkageName, attrMIPSLinkage:
			linkage = v
		case dwarf.AttrName:
			name = v
		case dwarf.AttrDeclLine:
			f.start = number(v.u)
		case dwarf.AttrAbstractOrigin:
			origin = v
		case dwarf.AttrSpecification:
			specification = v
		}
	}, nil)
	if err != nil {
		return f, next, err
	}
	if linkage.form != 0 {
		if f.name, err = d.string(u, linkage, at.off); err != nil {
			return f, next, err
		}
		f.linked = f.name != ""
	}
	if name.form != 0 && !f.linked {
		if f.name, err = d.string(u, name, at.off); err != nil {
			return f, next, err
		}
	}
	if origin.form == 0 {
		origin = specification
	}
	if origin.form != 0 {
		next, err = d.resolve(u, origin)
	}
	return f, next, err
}
