package machine

import "math/rand/v2"

// A signal handler runs on a stack of its own (sigaltstack(2)): the interrupted stack is not in its samples' copies.

const (
	altSize = 32 << 10
	// Offsets in the ucontext that the kernel puts on it (asm/sigcontext.h), at SP of the code that a handler
	// returns to.
	ucRegisters, ucBP, ucBX, ucSP, ucIP, ucEnd, ucSize = 40, 120, 128, 160, 168, 176, 304
)

// restorer writes the code that a handler returns to, whose CFI says that registers are in the ucontext.
func (w *writer) restorer() {
	w.align()
	// The CFI begins a byte early, as callers are looked up by the byte before.
	f := function{start: w.here(), kind: restorer}
	w.code.Write([]byte{0x90, 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}) // mov $15,%rax; syscall
	f.end = w.here()
	cieAt := w.cfi.Len()
	w.cfi.Write(signalCIE)
	program := []byte{0} // augmentation data
	breg7 := func(at uint16) []byte { return []byte{0x77, byte(at&0x7f) | 0x80, byte(at >> 7)} }
	program = append(append(program, 0x0f, 4), append(breg7(ucSP), 0x06)...) // CFA: DW_OP_breg7 ucSP; DW_OP_deref
	for _, saved := range []struct {
		reg byte
		at  uint16
	}{{3, ucBX}, {6, ucBP}, {16, ucIP}} {
		program = append(append(program, 0x10, saved.reg, 3), breg7(saved.at)...) // DW_CFA_expression
	}
	w.starts = append(w.starts, fde{f.start, w.cfi.Len()})
	writeFDE(&w.cfi, &f, w.cfi.Len()-cieAt, program)
	f.start++
	w.im.restorer = f
}

// signalCIE is one for signal frames.
var signalCIE = makeCIE([]byte{0, 0, 0, 0, 1, 'z', 'S', 0, 1, 0x78, 16, 0, 0x0c, 7, 8, 0x90, 1})

// interrupt has a thread handle a signal.
func (t *thread) interrupt(r *rand.Rand) {
	l := t.last()
	pc := l.m.start + l.f.body[r.IntN(len(l.f.body))]
	if t.alt.memory == nil {
		t.alt = segment{memory: make([]byte, altSize), top: 0x6e00_0000_0000 + uint64(t.tid)<<24}
	}
	uc := t.alt.top - ucSize - uint64(r.IntN(64))*16
	for at := uint64(ucRegisters); at < ucEnd; at += 8 {
		t.put(uc+at, r.Uint64())
	}
	for _, saved := range []struct{ at, word uint64 }{{ucBP, t.bp}, {ucBX, t.bx}, {ucSP, t.sp}, {ucIP, pc}} {
		t.put(uc+saved.at, saved.word)
	}
	m := t.p.maps[0]
	t.frames = append(t.frames, frame{m: m, f: &m.file.image.restorer, cfa: uc + ucIP + 8, bp: t.bp, bx: t.bx, sp: t.sp})
	t.sp = uc
	all := t.p.maps[r.IntN(len(t.p.maps))]
	f := &all.file.image.functions[2+r.IntN(len(all.file.image.functions)-2)]
	t.call(r, m.start+m.file.image.restorer.start, all, f)
}

// onAlt reports whether a thread handles a signal.
func (t *thread) onAlt() bool { return t.alt.holds(t.sp) }

// handled is the index of the first frame of the handler that runs, 0 for none.
func (t *thread) handled() int {
	for i := len(t.frames) - 1; i > 0; i-- {
		if t.frames[i].f.kind == restorer {
			return i + 1
		}
	}
	return 0
}
