package image

import (
	"errors"

	"unspool/dwarfcfi"
	"unspool/dwarfcfi/elf"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// rows386 are the rows of an image that were needed, by file offset.
type rows386 map[uint64]*kept386

// kept386 is a row, or in place of one what is known of the PC. kind is one
// of the kinds of rules that are no formula.
type kept386 struct {
	kind rule.Rule
	row  dwarfcfi.Row
}

// maxRows386 bounds what the rows of an image may cost: 3 MiB. When there are
// as many they are dropped.
const maxRows386 = 1 << 13

// Row386 gives the row for pc, which lies in m, where kind is general.
func (im *Image) Row386(m *vmas.Mapping, pc uint64) (kind rule.Rule, row *dwarfcfi.Row) {
	off := pc - m.Start + m.Offset
	if k := im.rows386[off]; k != nil {
		return k.kind, &k.row
	}
	im.hit = true
	if !im.parsed {
		im.parse()
	}
	k := &kept386{kind: rule.Unreadable}
	switch {
	case im.err != nil:
		return rule.Unreadable, nil
	case im.machine != elf.EM_386 && len(im.loads) > 0:
		// A 64-bit image: whoever runs its code in 32-bit mode has not jumped
		// to one of its functions.
		return rule.Unreadable, nil
	default:
		im.read386(m, pc, k)
	}
	if len(im.rows386) >= maxRows386 || im.rows386 == nil {
		im.rows386 = make(rows386)
	}
	im.rows386[off] = k
	return k.kind, &k.row
}

func (im *Image) read386(m *vmas.Mapping, pc uint64, k *kept386) {
	err := im.Row(m, pc, &k.row)
	addr, ok := im.Address(pc - m.Start + m.Offset)
	switch {
	case err == nil && k.row.RA >= rule.NumRegs386:
		k.kind = rule.Malformed
	case err == nil && k.row.Regs[k.row.RA].Kind == dwarfcfi.Undefined:
		k.kind = rule.EndOfStack
	case err == nil:
		k.kind = rule.General
	case !errors.Is(err, dwarfcfi.ErrNoFDE):
		k.kind = rule.Malformed
	case ok && addr-im.entry < entrySize:
		k.kind = rule.EntryCode
	default:
		k.kind = rule.Uncovered
	}
}
