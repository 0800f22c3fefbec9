package image

import (
	"errors"

	"unspool/dwarfcfi"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// keptRows are the rows of an image that were needed, by file offset.
type keptRows map[uint64]*keptRow

// keptRow is a row, or in place of one what is known of the PC. kind is one
// of the kinds of rules that are no formula.
type keptRow struct {
	kind rule.Rule
	row  dwarfcfi.Row
}

// maxRows bounds what the rows of an image may cost: 3 MiB. When there are
// as many they are dropped.
const maxRows = 1 << 13

// KeptRow gives the row for pc, which lies in m, where kind is general. It is for the
// architectures whose rows are not compiled to rules.
func (im *Image) KeptRow(arch *rule.Arch, m *vmas.Mapping, pc uint64) (kind rule.Rule, row *dwarfcfi.Row) {
	off := pc - m.Start + m.Offset
	if k := im.rows[off]; k != nil {
		return k.kind, &k.row
	}
	im.hit = true
	if !im.parsed {
		im.parse()
	}
	k := &keptRow{kind: rule.Unreadable}
	switch {
	case im.err != nil:
		return rule.Unreadable, nil
	case im.arch != arch && len(im.loads) > 0:
		// An image of another mode, as a 64-bit one for 32-bit code: whoever runs its
		// code in this mode has not jumped to one of its functions.
		return rule.Unreadable, nil
	default:
		im.readRow(arch, m, pc, k)
	}
	if len(im.rows) >= maxRows || im.rows == nil {
		im.rows = make(keptRows)
	}
	im.rows[off] = k
	return k.kind, &k.row
}

func (im *Image) readRow(arch *rule.Arch, m *vmas.Mapping, pc uint64, k *keptRow) {
	err := im.Row(m, pc, &k.row)
	addr, ok := im.Address(pc - m.Start + m.Offset)
	switch {
	case err == nil && int(k.row.RA) >= arch.NumRegs:
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
