package unwind

import (
	"unspool/unwind/image"
	"unspool/unwind/jit"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// generatedFrom says where what is known of generated code comes from, as that of the images.
func generatedFrom(images *image.Store) jit.Source {
	switch {
	case images.Offline():
		return jit.Recordings
	case !images.Asks():
		return jit.DumpsOnly
	}
	return jit.Live
}

// generatedRule gives the rule for the frame f in generated code.
func (u *Unwinder) generatedRule(p *place, f *frame) rule.Rule {
	return u.jit.Rule(p.jit, p.m, f.pc, f.lookup(), u.Strict)
}

// generatedCall says whether the code before pc, in generated code, is a call.
func (u *Unwinder) generatedCall(space *vmas.Space, pc uint64) bool {
	var p place
	return u.locate(&p, space, pc-1) && p.jit != nil && u.jit.IsCall(p.jit, space, p.m, pc)
}
