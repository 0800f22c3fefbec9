package image

import (
	"errors"

	"unspool/dwarfcfi"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// keptRows are the rows of an image that were needed, by file offset.
type keptRows map[uint64]*keptRow

// A keptRow is the row for a PC, if kind is General; otherwise kind says why there is none.
type keptRow struct {
	kind rule.Rule
	row  dwarfcfi.Row
}

// maxRows bounds the rows of an image to 3 MiB. When there are so many, all are dropped.
const maxRows = 1 << 13

// KeptRow is for [module.Module].
func (im *Image) KeptRow(arch *rule.Arch, m *vmas.Mapping, pc uint64) (kind rule.Rule, row *dwarfcfi.Row) {
	off := pc - m.Start + m.Offset
	if k := im.rows[off]; k != nil {
		return k.kind, &k.row
	}
	im.sampled(m.File)
	k := &keptRow{kind: rule.Unreadable}
	switch {
	case !im.isRead() || im.err != nil:
		return rule.Unreadable, nil
	case im.arch != arch && len(im.loads) > 0:
		// The image is of another mode, as a 64-bit one for 32-bit code: a program that runs its bytes in
		// this mode is not in one of its functions.
		return rule.Unreadable, nil
	}
	began, ok := im.store.rules.begin()
	if !ok {
		im.overBudget()
		return rule.Unreadable, nil
	}
	im.refresh()
	im.readRow(arch, m, pc, k)
	im.store.rules.end(began)
	if im.misses() || im.err != nil {
		return rule.Unreadable, nil
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
		if _, start := im.startCode(addr); ok && start {
			k.kind = rule.EntryCode
		}
	}
}
