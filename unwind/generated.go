package unwind

import (
	"unspool/unwind/image"
	"unspool/unwind/jit"
	"unspool/unwind/rule"
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
func (w *walk) generatedRule(p *place, f *frame) rule.Rule {
	return w.jit.Rule(p.jit, p.m, f.pc, f.lookup(), w.Strict)
}

// generatedCall says whether the code before pc, in generated code, is a call.
func (w *walk) generatedCall(pc uint64) bool {
	var p place
	return w.locate(&p, pc-1) && p.jit != nil && w.jit.IsCall(p.jit, w.space, p.m, pc)
}
