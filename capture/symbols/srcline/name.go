package srcline

import "debug/dwarf"

// maxOrigins bounds the chain from a function's code to its name. Real chains have three entries at most: an
// inlined call, the function itself, its declaration.
const maxOrigins = 16

// funcName returns the name of the function whose DIE is at off: its linkage name, if a DIE along the chain
// of abstract origins and specifications has one, else its name.
func (d *Data) funcName(u *unit, off uint64) string {
	var name string
	at := reference{u.obj, off}
	var via []reference // the other DIEs of the chain, which get the same name
	for range maxOrigins {
		if known, ok := at.obj.names[at.off]; ok {
			name = known
			break
		}
		via = append(via, at)
		f, err := d.readFunc(u, at)
		if err != nil {
			d.problems.add(err)
			break
		}
		if f.linkage != "" {
			name = f.linkage
			break
		}
		if name == "" {
			name = f.name
		}
		if f.origin.obj == nil {
			break
		}
		at = f.origin
		if u, err = d.unitAt(at.obj, at.off); err != nil {
			d.problems.add(err)
			break
		}
	}
	for i, r := range via {
		if i == 0 && len(via) > 1 {
			continue // the DIE has no name itself: one of many calls of the same function
		}
		if r.obj.names == nil {
			r.obj.names = make(map[uint64]string)
		}
		r.obj.names[r.off] = name
	}
	return name
}

// funcDIE is what a DIE says about the function's name.
type funcDIE struct {
	linkage, name string
	origin        reference // the next DIE of the chain; obj is nil at its end
}

func (d *Data) readFunc(u *unit, at reference) (f funcDIE, err error) {
	var linkage, name, origin, specification value
	err = d.readDIE(u, at.off, func(attr dwarf.Attr, v value) {
		switch attr {
		case dwarf.AttrLinkageName, attrMIPSLinkage:
			linkage = v
		case dwarf.AttrName:
			name = v
		case dwarf.AttrAbstractOrigin:
			origin = v
		case dwarf.AttrSpecification:
			specification = v
		}
	}, nil)
	if err != nil {
		return f, err
	}
	if linkage.form != 0 {
		if f.linkage, err = d.string(u, linkage, at.off); err != nil || f.linkage != "" {
			return f, err
		}
	}
	if name.form != 0 {
		if f.name, err = d.string(u, name, at.off); err != nil {
			return f, err
		}
	}
	if origin.form == 0 {
		origin = specification
	}
	if origin.form != 0 {
		f.origin, err = d.resolve(u, origin)
	}
	return f, err
}
