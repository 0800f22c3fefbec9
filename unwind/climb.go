package unwind

import (
	"encoding/binary"

	"unspool/vmas"
)

// A climb is the hot part of a walk: frames whose rules are fromSP and fromBP,
// which nearly all are.
type climb struct {
	*Unwinder
	space *vmas.Space
	stack *Stack

	known    []Frame // the last walk of the thread
	passed   int     // how many of them are below SP
	recalled int     // how many of them were found to be there still
	// whole says that the frames from kept on are those that are known from at on, all
	// of them.
	whole    bool
	kept, at int
}

// run climbs from f, which lies at p, to a frame that needs more than these rules
// and words of the copy, and leaves it in f. Unless the walk ends on the way it
// returns stepped.
func (c *climb) run(p *place, f *frame) Reason {
	data, base := c.stack.Data, c.stack.Base
	if len(data) < 8 || !p.fast {
		return stepped
	}
	last := uint64(len(data) - 8) // where the last word is
	ips, frames, most := c.ips, c.frames, c.MaxFrames
	sp, bp := f.sp, f.bp
	lookup := f.lookup()
	start, size, bias := p.start, p.size, p.bias
	rules, shift := p.image.rules.table()
	end := stepped
	for {
		off := lookup - bias
		if off>>32 != 0 {
			break
		}
		// The first place of [cache.get] is mostly the right one.
		r := rule(0)
		if e := rules[off*spread>>shift&uint64(len(rules)-1)]; uint32(e) == uint32(off) {
			r = rule(e >> 32)
		} else {
			r = p.image.rules.get(uint32(off))
		}
		if r == noRule {
			r = p.image.find(p.m, lookup, off)
			rules, shift = p.image.rules.table()
		}
		cfa := sp
		if kind := r & kindMask; kind == fromBP {
			cfa = bp
		} else if kind != fromSP {
			break
		}
		cfa += r.cfa()
		at := cfa - 8 - base
		if cfa <= sp || at > last {
			break
		}
		// A slot below SP was popped: compilers leave the rule in place to the
		// end of the epilogue, while the register has its value back.
		slot := r.bp()
		if slot != 0 && cfa-slot >= sp {
			at := cfa - slot - base
			if at > last {
				break
			}
			bp = binary.LittleEndian.Uint64(data[at:])
		} else {
			slot = 0
		}
		if len(ips) >= most {
			end = DepthLimit
			break
		}
		pc := binary.LittleEndian.Uint64(data[at:])
		if pc-1-start >= size {
			if !c.locate(p, c.space, pc-1) {
				end = Unmapped
				break
			}
			if start, size, bias = p.start, p.size, p.bias; p.fast {
				rules, shift = p.image.rules.table()
			}
		}
		frames[len(frames)-1].saved = uint32(slot)
		lookup, sp = pc-1, cfa
		ips = append(ips, pc)
		frames = append(frames, Frame{SP: sp, Source: ByCFI, pc: pc, bp: bp, saved: noSlot})
		f.exact = false
		c.whole = false

		for c.passed < len(c.known) && c.known[c.passed].SP < sp {
			c.passed++
		}
		if c.passed < len(c.known) && c.known[c.passed].isCaller(pc, sp, bp) {
			c.ips, c.frames = ips, frames
			c.recall(data, base, last)
			ips, frames = c.ips, c.frames
			top := &frames[len(frames)-1]
			lookup, sp, bp = top.pc-1, top.SP, top.bp
			if !c.locate(p, c.space, lookup) {
				end = Unmapped
				break
			}
			if start, size, bias = p.start, p.size, p.bias; p.fast {
				rules, shift = p.image.rules.table()
			}
		}
		if !p.fast {
			break
		}
	}
	if !f.exact {
		f.pc, f.sp, f.bp = lookup+1, sp, bp
	}
	c.ips, c.frames = ips, frames
	return end
}

// isCaller says whether k is the frame of a caller with this PC, SP and BP, and its
// own caller follows from it by a fast rule.
func (k *Frame) isCaller(pc, sp, bp uint64) bool {
	return k.SP == sp && k.pc == pc && k.bp == bp && k.saved != noSlot && !k.exact
}

// recall adds the frames that followed in the last walk the one that was found last
// and is the first one of those that are known and not passed, as long as the words
// that they come from are the same.
func (c *climb) recall(data []byte, base, last uint64) {
	known, ips := c.known, c.ips
	i := c.passed
	for len(ips) < c.MaxFrames && i+1 < len(known) {
		f, next := &known[i], &known[i+1]
		at := next.SP - 8 - base
		if f.saved == noSlot || at > last || binary.LittleEndian.Uint64(data[at:]) != next.pc {
			break
		}
		if f.saved != 0 {
			at := next.SP - uint64(f.saved) - base
			if at > last || binary.LittleEndian.Uint64(data[at:]) != next.bp {
				break
			}
		}
		ips = append(ips, next.pc)
		i++
	}
	kept := len(c.frames) - 1
	c.ips = ips
	c.frames = append(c.frames[:kept], known[c.passed:i+1]...)
	c.frames[len(c.frames)-1].saved = noSlot
	c.whole, c.kept, c.at = i+1 == len(known), kept, c.passed
	c.recalled += i - c.passed
	c.passed = i + 1
}
