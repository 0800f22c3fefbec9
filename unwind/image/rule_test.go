package image

import (
	"unspool/unwind/rule"
	"unspool/vmas"
)

// Rule gives the rule for pc, which lies in m.
func (im *Image) Rule(m *vmas.Mapping, pc uint64) rule.Rule {
	off := pc - m.Start + m.Offset
	if off>>32 == 0 {
		if r := im.rules.Get(uint32(off)); r != rule.None {
			return r
		}
	}
	return im.Find(m, pc, off)
}
