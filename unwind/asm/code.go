package asm

import (
	"bytes"
	"io"
	"iter"

	"unspool/dwarfcfi/elf"

	"unspool/unwind/rule"
	"unspool/unwind/x86"
)

// A Code reads the instructions of an image to find out what they did to SP
// and BP, where no CFI says it: hand-written assembly, C libraries built
// without unwind tables, PLT entries.
//
// All paths from the start of the function to the PC are followed, and must
// agree; so are all paths from the PC to a ret near by. Both give the distance
// to the return address, which must be the same. An instruction whose effect on
// SP is not understood makes SP unknown, and then there is no rule.
//
// Its methods fill caches, so one goroutine at a time may use it.
type Code struct {
	r       io.ReaderAt
	layout  *elf.Layout
	covered Covered

	pages   [32]page // the functions of an interpreter lie far from each other
	paths   paths
	charted *codeMap // of the holes that were asked for; of all code, once these are not enough
	kept    int      // number of instructions in readings
	left    int      // of the work that the question under way may take
	// readings are the functions that were read, by their starts.
	readings map[uint64]*reading
	// Results, by image address.
	after   answers[callKind]
	targets answers[callTarget]
	leaves  answers[verdict]                // of LeavesImage
	enters  answers[verdict]                // of entersFrame
	framed  answers[verdict]                // of FrameCalled
	returns [deepestCall]answers[returning] // by depth
	changed answers[regSet]                 // by functions
	written answers[regSet]                 // likewise, by functions whose ends are known
	// returning has the sizes of functions, by their starts.
	returning                    answers[functionSize]
	within, untouched, frameless answers[ofFunction]

	probes [deepestCall]paths
}

// answers keeps values other than rules in a [rule.Cache], by address. Zero means that there is no
// value.
type answers[V ~uint32] struct{ cache rule.Cache }

func (a *answers[V]) get(addr uint32) V    { return V(a.cache.Get(addr)) }
func (a *answers[V]) put(addr uint32, v V) { a.cache.Put(addr, rule.Rule(v)) }

// A verdict is the answer to a question about an address. Zero means that it was not asked.
type verdict uint32

const (
	no verdict = 1 + iota
	yes
)

// judge keeps what find says of an address.
func (c *Code) judge(kept *answers[verdict], addr uint64, find func(*Code, uint64) bool) bool {
	if addr>>32 != 0 {
		return find(c, addr)
	}
	if v := kept.get(uint32(addr)); v != 0 {
		return v == yes
	}
	v := no
	if find(c, addr) {
		v = yes
	}
	kept.put(uint32(addr), v)
	return v == yes
}

// A page is a page of code that was read, and the first bytes of the next one.
type page struct {
	addr uint64
	data []byte
}

const (
	pageSize = 4 << 10
	pageOver = 16
)

// Covered is which code CFI covers. Each may be nil.
type Covered struct {
	// FDEs yields the ranges that CFI covers.
	FDEs iter.Seq2[uint64, uint64]
	// Gap gives the hole around addr, and whether a function is known to begin at the start of the
	// hole; ok is false if the hole is not known, or addr is in none.
	Gap func(addr uint64) (h Hole, begins, ok bool)
	// Survey gives the survey of the image, nil as long as it is not there. If Survey is nil, the image is
	// surveyed when that is first needed.
	Survey func() *Survey
}

// New returns a reader of the code of an ELF image. Nothing is read before a
// method is called.
func New(r io.ReaderAt, layout *elf.Layout, covered Covered) *Code {
	c := &Code{r: r, layout: layout, covered: covered, charted: &codeMap{}, readings: make(map[uint64]*reading)}
	c.paths.c = c
	for i := range c.pages {
		c.pages[i].addr = 1 // no page starts there
	}
	return c
}

// bytes returns the code at addr, at least 16 bytes of it unless the file has
// fewer. It is valid until the next call.
func (c *Code) bytes(addr uint64) []byte {
	start := addr &^ (pageSize - 1)
	p := &c.pages[addr/pageSize%uint64(len(c.pages))]
	if p.addr != start {
		if p.data == nil {
			p.data = make([]byte, pageSize+pageOver)
		}
		p.addr, p.data = start, c.read(p.data[:pageSize+pageOver], start)
	}
	if off := addr - start; off < uint64(len(p.data)) {
		return p.data[off:]
	}
	return nil
}

// read fills buf with the bytes of the image from addr on. If a segment starts
// inside of buf, the bytes before it are zero.
func (c *Code) read(buf []byte, addr uint64) []byte {
	clear(buf)
	end := 0
	for i := range c.layout.Loads {
		l := &c.layout.Loads[i]
		lo, hi := max(addr, l.Vaddr), min(addr+uint64(len(buf)), l.Vaddr+l.Filesz)
		if l.Vaddr+l.Filesz < l.Vaddr || lo >= hi {
			continue
		}
		n, _ := c.r.ReadAt(buf[lo-addr:hi-addr], int64(lo-l.Vaddr+l.Offset))
		end = max(end, int(lo-addr)+n)
	}
	return buf[:end]
}

// Rule gives the rule for addr, which no CFI covers, as CFI would have it. addr
// is the first byte of an instruction, or the last byte of a call.
func (c *Code) Rule(addr uint64) (r rule.Rule, ok bool) {
	c.left = mostWork
	if table, ok := c.plt(addr); ok {
		return c.pltRule(table, addr)
	}
	if r, ok = c.ruleNearby(addr); ok {
		return r, true
	}
	if !c.executable(addr) {
		return rule.None, false // data
	}
	h, ok := c.chart().hole(addr)
	if !ok {
		return rule.None, false
	}
	if r, ok = c.knownCode(addr); ok {
		return r, true
	}
	in, out, ok := c.ways(addr, h)
	if !ok {
		return rule.None, false
	}
	if in.sp == rule.None && in.bp == rule.None && out == (way{}) {
		return c.besideFrame(addr, h)
	}
	return agree(in.sp, in.bp, out.sp, out.bp)
}

// ruleNearby gives the rule for an address in a small hole, without reading all the code: by the
// way out of the function; or by the way from its start if that is a known function or one from the
// compiler's start files. Other code that looks like the start of a function may be the
// head of a loop or a landing pad: there the way out must give the same rule.
func (c *Code) ruleNearby(addr uint64) (rule.Rule, bool) {
	const (
		tries      = 8
		startFiles = 256 // bytes of crtbegin.o's functions
	)
	if c.charted.whole {
		return rule.None, false
	}
	h, first, ok := c.chartNearby(addr)
	if !ok {
		return rule.None, false
	}
	if r, ok := c.knownCode(addr); ok {
		return r, true
	}
	for range tries {
		in, out, ok := c.ways(addr, h)
		if !ok {
			break
		}
		if in.sp == rule.None && in.bp == rule.None {
			return agree(rule.None, rule.None, out.sp, out.bp)
		}
		// A way out goes over the call that it starts at, and ends at the next: try from behind the call.
		if out == (way{}) && in.at != addr && !c.endsFunction(addr+1) {
			out.sp, out.bp = c.paths.wayOut(addr+1, h.Lo, h.Hi)
		}
		if out != (way{}) || in.start == first || h.Hi-h.Lo <= startFiles && c.beginsFunction(in.start) {
			if r, ok := agree(in.sp, in.bp, out.sp, out.bp); ok {
				return r, true
			}
		}
		c.charted.drop(in.start)
		c.forget()
	}
	return rule.None, false
}

// knownCode gives the rule for code that is known by its bytes.
func (c *Code) knownCode(addr uint64) (rule.Rule, bool) {
	switch {
	case c.isThreadRoot(addr + 1):
		return rule.EndOfStack, true
	case c.IsRestorer(addr) || c.IsRestorer(addr+1):
		return rule.Sigframe, true
	}
	return rule.None, false
}

// A way has the two rules that the way out gives: one from SP, or from where SP is saved, and
// one from BP.
type way struct{ sp, bp rule.Rule }

// ways reads the function that holds addr, which is in h, from its start, and from addr to
// where it returns. ok is false if nothing can be said: addr is in the middle of an instruction,
// or behind a call that does not return.
func (c *Code) ways(addr uint64, h Hole) (in inFunction, out way, ok bool) {
	f, known := c.fromStart(addr, h)
	pc := addr
	switch {
	case known && f.at != addr:
		if !f.call || addr != f.at+uint64(f.n)-1 {
			return in, out, false // in the middle of an instruction
		}
		pc = f.at
	case !known && c.FollowsCall(addr+1):
		if c.isStart(c.pastPadding(addr+1)) || !c.charted.whole {
			return in, out, false // the call does not return: another function may follow
		}
		pc = addr + 1
	}
	out.sp, out.bp = c.paths.wayOut(pc, h.Lo, h.Hi)
	return f, out, true
}

// agree gives the rule on which the way from the start (fsp, fbp) and the way
// out (osp, obp) agree. If only one of them gives a rule, it is that one.
func agree(fsp, fbp, osp, obp rule.Rule) (rule.Rule, bool) {
	out := osp
	if out == rule.None {
		out = obp
	}
	in := fsp
	if out.Kind() == rule.GuessBP && fbp != rule.None || in == rule.None {
		in = fbp
	}
	switch {
	case in == rule.None && out == rule.None:
		return rule.None, false
	case out == rule.None:
		return in, true
	case in == rule.None:
		return out, true
	case in.Kind() != out.Kind() || in.CFA() != out.CFA():
		return rule.None, false
	}
	const lost = rule.MaxBP << 4
	switch {
	case in&lost == out&lost, out&lost == lost:
		return prefer(fsp, in), true
	case in&lost == lost:
		return out, true
	}
	return rule.None, false
}

// prefer gives the rule from SP if there is one, else the other.
func prefer(fsp, in rule.Rule) rule.Rule {
	if fsp != rule.None {
		return fsp
	}
	return in
}

// inFunction is an instruction of a function with its address, and the start of the function.
type inFunction struct {
	found
	at, start uint64
}

// fromStart reads the function that holds addr from its start. It also tries functions
// before that, whose code may go on behind other functions.
func (c *Code) fromStart(addr uint64, h Hole) (inFunction, bool) {
	const tries = 3
	i := c.charted.before(addr)
	for n := 0; n < tries && i >= 0; n, i = n+1, i-1 {
		start := c.charted.starts[i]
		if start < h.Lo || addr-start >= maxSpan {
			break
		}
		r := c.readingOf(start, h.Hi)
		if f, ok := r.at(addr); ok {
			return inFunction{f, start + uint64(f.off), start}, true
		}
	}
	return inFunction{}, false
}

// maxKept is how many instructions the kept readings may have together: 2 MiB.
const maxKept = 1 << 17

func (c *Code) readingOf(start, hi uint64) *reading {
	r := c.readings[start]
	if r == nil {
		if r = c.paths.function(start, hi); c.isSpent() {
			return r
		}
		if c.kept += len(r.found) + 1; c.kept > maxKept {
			clear(c.readings)
			c.kept = len(r.found) + 1
		}
		c.readings[start] = r
	}
	return r
}

// pastPadding gives the first instruction from addr on that is not padding, at most up to the next
// address at which functions are aligned.
func (c *Code) pastPadding(addr uint64) uint64 {
	var in insn
	for addr%alignment != 0 && in.Decode(c.bytes(addr)) && in.isPadding() {
		addr += uint64(in.Len)
	}
	return addr
}

func (c *Code) isStart(addr uint64) bool { return c.charted.isStart(addr) }

// chartNearby gives the hole around addr if it is small, and notes the hole with the addresses that
// look like starts of functions. first is the first of them if it is known to be a function, else 0.
func (c *Code) chartNearby(addr uint64) (h Hole, first uint64, ok bool) {
	if c.covered.Gap == nil {
		return h, 0, false
	}
	for r := range c.text {
		if addr < r.Start || addr >= r.End {
			continue
		}
		h, begins, ok := c.covered.Gap(addr)
		h.Lo, h.Hi = max(h.Lo, r.Start), min(h.Hi, r.End)
		if !ok || h.Hi-h.Lo > maxNearby || h.Hi > highest {
			return h, 0, false
		}
		if begins || h.Lo == r.Start && (r.Name == ".init" || r.Name == ".fini") {
			first = h.Lo
		}
		c.charted.note(h, func(add func(uint64)) {
			// The start of a section may be the cold part of a function.
			if first != 0 || h.Lo != r.Start {
				add(c.skipPadding(h))
			}
			for at := (h.Lo + alignment) &^ (alignment - 1); at < h.Hi; at += alignment {
				if c.followsEnd(at) {
					add(at)
				}
			}
		})
		return h, first, true
	}
	return h, 0, false
}

// StartCode reports whether addr is in the function at start, the entry point of a program: code leads
// from there to addr, and no call on the way goes to a function between them. It gives how
// many words the function has pushed on the way.
func (c *Code) StartCode(start, addr uint64) (words uint32, ok bool) {
	var in insn
	pushed := 0
	for at := start; at < addr; at += uint64(in.Len) {
		if !c.decode(&in, at) {
			return 0, false
		}
		if at+uint64(in.Len) > addr {
			break
		}
		switch t, target := in.turn(at); {
		case !t.goesOn(), t == calls && target > start && target <= addr:
			return 0, false
		}
		pushed += in.pushes()
	}
	return uint32(max(pushed, 0)), true
}

// decode decodes the instruction at addr, of the architecture that the image is for.
func (c *Code) decode(in *insn, addr uint64) bool {
	if c.layout.Machine == elf.EM_386 {
		return in.Decode386(c.bytes(addr))
	}
	return in.Decode(c.bytes(addr))
}

// plt gives the start of the procedure linkage table that holds addr.
func (c *Code) plt(addr uint64) (table uint64, ok bool) {
	for _, r := range c.layout.PLT {
		if addr >= r.Start && addr < r.End {
			return r.Start, true
		}
	}
	return 0, false
}

// IsRestorer reports whether the instruction at addr is in a signal restorer, or follows it: the PC of a
// thread is there while the kernel is about to restore its registers.
func (c *Code) IsRestorer(addr uint64) bool {
	for _, want := range restorers {
		if bytes.HasPrefix(c.bytes(addr), want) {
			return true
		}
		for _, n := range [...]uint64{uint64(len(want) - 2), uint64(len(want))} { // the system call, and behind it
			if addr >= n && bytes.HasPrefix(c.bytes(addr), want[n:]) && bytes.HasPrefix(c.bytes(addr-n), want) {
				return true
			}
		}
	}
	return false
}

// FollowsCall reports whether the instruction before addr is a call: a direct one
// into the code of the image, or bytes that may be an indirect one.
func (c *Code) FollowsCall(addr uint64) bool {
	if addr>>32 != 0 {
		return c.findCall(addr) != notCall
	}
	if k := c.after.get(uint32(addr)); k != 0 {
		return k != notCall
	}
	k := c.findCall(addr)
	c.after.put(uint32(addr), k)
	return k != notCall
}

// LeavesImage reports whether the call before addr can lead to code outside of the image: it is an indirect
// call, or one of a function that only jumps to the address in a register.
func (c *Code) LeavesImage(addr uint64) bool { return c.judge(&c.leaves, addr, (*Code).findLeaving) }

func (c *Code) findLeaving(addr uint64) bool {
	const most = 4 // instructions
	if !c.FollowsCall(addr) {
		return false
	}
	at, ok := c.DirectCall(addr)
	if !ok || !c.executable(at) {
		return true
	}
	var in insn
	for n := 0; n < most && in.Decode(c.bytes(at)); n++ {
		t, _ := in.turn(at)
		if t != onwards {
			return t == jumpsFar && in.Mod == 3
		}
		at += uint64(in.Len)
	}
	return false
}

// Stub gives the address of the pointer through which the code at addr jumps at once, as the entries of a
// procedure linkage table do.
func (c *Code) Stub(addr uint64) (pointer uint64, ok bool) {
	const most = 2 // instructions: endbr64, jmp
	var in insn
	for n := 0; n < most && in.Decode(c.bytes(addr)); n++ {
		t, _ := in.turn(addr)
		addr += uint64(in.Len)
		if t != onwards {
			return addr + uint64(in.Disp), t == jumpsFar && in.Mod != 3 && in.Base == x86.RIP
		}
	}
	return 0, false
}

// A callKind says what kind of call is before an address. Zero means that it is not known.
type callKind uint32

const (
	notCall callKind = 1 + iota
	directCall
	indirectCall
)

func (c *Code) findCall(addr uint64) callKind {
	if !c.executable(addr - 1) {
		return notCall // only data that looks like a call
	}
	if target, ok := c.DirectCall(addr); ok && c.executable(target) {
		return directCall
	}
	if c.indirectCallBefore(addr) {
		return indirectCall
	}
	return notCall
}

// indirectCallBefore reports whether the bytes before addr are an indirect call: ff /2 with prefix, SIB
// and displacement has 2 to 8 bytes, and more with prefixes for padding.
func (c *Code) indirectCallBefore(addr uint64) bool {
	var in insn
	for n := uint64(2); n <= 9; n++ {
		if at, ok := c.callBefore(addr, n, &in); ok {
			if t, _ := in.turn(at); t == callsFar && (n == 2 || in.Len == int(n)) {
				return true
			}
		}
	}
	return false
}

// CallSize is the length of a direct call.
const CallSize = 5

// DirectCall gives the target of the direct call that ends at addr.
func (c *Code) DirectCall(addr uint64) (target uint64, ok bool) {
	if addr>>32 != 0 {
		return c.findTarget(addr)
	}
	if t := c.targets.get(uint32(addr)); t != 0 {
		return uint64(t - 1), t != notDirect
	}
	target, ok = c.findTarget(addr)
	switch {
	case !ok:
		c.targets.put(uint32(addr), notDirect)
	case target < uint64(notDirect-1):
		c.targets.put(uint32(addr), callTarget(target+1))
	}
	return target, ok
}

// A callTarget is the target of the direct call before an address, and 1. Zero means that it is not known.
type callTarget uint32

// notDirect means that there is no direct call before the address.
const notDirect = ^callTarget(0)

func (c *Code) findTarget(addr uint64) (target uint64, ok bool) {
	var in insn
	at, ok := c.callBefore(addr, CallSize, &in)
	if !ok {
		return 0, false
	}
	t, target := in.turn(at)
	return target, t == calls
}

// PointerCalled gives the address of the pointer that the call before addr calls. Either the call has this
// address, or an instruction a little before loads the address, or the pointer, into the register that
// the call uses, as in
//
//	lea pointer(%rip), %rax; mov %rbp, %rdi; call *(%rax)
//	mov pointer(%rip), %rax; mov %rbp, %rdi; call *%rax
func (c *Code) PointerCalled(addr uint64) (pointer uint64, ok bool) {
	const most = 24 // bytes
	var in insn
	for size := uint64(2); size <= 6; size++ {
		at, ok := c.callBefore(addr, size, &in)
		if !ok {
			continue
		}
		const mov, lea = 0x8b, 0x8d
		t, _ := in.turn(at)
		load, reg := byte(lea), in.Base
		switch {
		case t != callsFar:
			continue
		case in.Mod == 3:
			load, reg = mov, in.RM
		case in.Base == x86.RIP:
			return addr + uint64(in.Disp), true
		case in.Disp != 0 || in.HasIndex:
			continue
		}
		for back := uint64(7); back <= most && back <= at; back++ {
			if pointer, ok := c.loadedBefore(at-back, at, load, reg); ok {
				return pointer, true
			}
		}
	}
	return 0, false
}

// Dispatch finds the first jump from lo up to hi through a pointer in memory to which a register points.
// The jumps of switches use a table, and those of stubs a pointer at a fixed address.
func (c *Code) Dispatch(lo, hi uint64) (at uint64, ok bool) {
	var in insn
	for at, n := lo, 0; at < hi && n < maxInsns && in.Decode(c.bytes(at)); n++ {
		t, _ := in.turn(at)
		if t == jumpsFar && in.Mod != 3 && in.Base != x86.RIP && in.Base != x86.None && !in.HasIndex {
			return at, true
		}
		at += uint64(in.Len)
	}
	return 0, false
}

// callBefore decodes the instruction that would start n bytes before addr.
func (c *Code) callBefore(addr, n uint64, in *insn) (uint64, bool) {
	if addr < n {
		return 0, false
	}
	at := addr - n
	return at, in.Decode(c.bytes(at)) && in.Len == int(n)
}

// executable reports whether addr is code of the image.
func (c *Code) executable(addr uint64) bool {
	for i := range c.layout.Loads {
		l := &c.layout.Loads[i]
		if l.Flags&1 != 0 && addr-l.Vaddr < l.Filesz { // PF_X
			return true
		}
	}
	return false
}
