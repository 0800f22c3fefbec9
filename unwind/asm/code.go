package asm

import (
	"bytes"
	"io"
	"iter"

	"unspool/dwarfcfi/elf"
	"unspool/unwind/rule"
)

// A Code reads the instructions of an image to find out what they did to SP
// and BP, where no CFI says it: hand-written assembly, C libraries built
// without unwind tables, PLT entries.
//
// From the start of the function that holds a PC, all ways to the PC are
// followed, and must agree; from the PC, all ways to a ret near by. Either
// gives the distance to the return address. What both give must be the same.
// An instruction that does to SP what is not understood makes it unknown, and
// then there is no rule.
//
// It fills caches while it answers, so one goroutine at a time may use it.
type Code struct {
	r       io.ReaderAt
	layout  *elf.Layout
	covered Covered

	pages   [4]page
	paths   paths
	charted *codeMap // of what was asked for, and whole when that does not do
	kept    int      // instructions in readings
	// readings are those of functions, by their starts.
	readings map[uint64]*reading
	// What was found out, by image address.
	after   answers[callKind]
	returns answers[returning]
	changed answers[regSet] // by functions
	probes  [3]paths
}

// answers keeps values other than rules in the way of a [rule.Cache], by address. A value of
// zero is no answer.
type answers[V ~uint32] struct{ cache rule.Cache }

func (a *answers[V]) get(addr uint32) V    { return V(a.cache.Get(addr)) }
func (a *answers[V]) put(addr uint32, v V) { a.cache.Put(addr, rule.Rule(v)) }

// A page is a piece of code that was read, with the start of the next one.
type page struct {
	addr uint64
	data []byte
}

const (
	pageSize = 16 << 10
	pageOver = 16
)

// Covered says which code CFI covers. Either may be nil.
type Covered struct {
	// FDEs yields the ranges that CFI covers.
	FDEs iter.Seq2[uint64, uint64]
	// Gap gives the hole around addr, and whether a function is known to begin it; ok is
	// false where that is not known, or addr is in none.
	Gap func(addr uint64) (h Hole, begins, ok bool)
}

// New returns a reader of the code of an ELF image. Nothing is read
// before the first question.
func New(r io.ReaderAt, layout *elf.Layout, covered Covered) *Code {
	c := &Code{r: r, layout: layout, covered: covered, charted: &codeMap{}, readings: make(map[uint64]*reading)}
	c.paths.c = c
	for i := range c.pages {
		c.pages[i].addr = 1 // no page starts there
	}
	return c
}

// bytes returns the code at addr, at least 16 bytes of it unless the file has
// less. It is valid until the next call.
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

// read fills buf with the image's bytes from addr on. A segment may start in
// the middle: what is before it is zero.
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

// Rule gives the rule for addr, which no CFI covers: what CFI would have
// said. addr is an instruction, or the last byte of a call.
func (c *Code) Rule(addr uint64) (r rule.Rule, ok bool) {
	if table, ok := c.plt(addr); ok {
		return c.pltRule(table, addr)
	}
	if r, ok = c.ruleNearby(addr); ok {
		return r, true
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
	return agree(in.sp, in.bp, out.sp, out.bp)
}

// ruleNearby gives the rule without having looked through all the code, for addresses in
// small holes: by the way out, or by the way from a function that is known or one of those
// that compilers' start files leave in every program. What looks like the start of another
// one may be the head of a loop or a landing pad, so the way out must say the same.
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
		if out == (way{}) && in.at != addr && !c.endsFunction(addr+1) { // that ends at the second call
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

// A way is what the way out gives: the rule from SP, or from where that is saved, and
// the one from BP.
type way struct{ sp, bp rule.Rule }

// ways reads the function that holds addr, which is in h, from its start, and from addr to
// where it returns. ok is false where nothing can be told: addr is in the middle of an
// instruction, or behind a call that does not return.
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
			return in, out, false // the call does not return: what follows is, or may be, another function
		}
		pc = addr + 1
	}
	out.sp, out.bp = c.paths.wayOut(pc, h.Lo, h.Hi)
	return f, out, true
}

// agree gives the rule on which the way from the start (fsp, fbp) and the way
// out (osp, obp) agree, with what either says when the other is silent.
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

// prefer gives the rule from SP where there are both.
func prefer(fsp, in rule.Rule) rule.Rule {
	if fsp != rule.None {
		return fsp
	}
	return in
}

// A place in a function: found, with its address and the function's.
type inFunction struct {
	found
	at, start uint64
}

// fromStart reads the function that holds addr from its start, or from that
// of one of the functions before it, whose code may go on behind others.
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

// maxKept is how many instructions readings may have that are kept: 2 MiB.
const maxKept = 1 << 17

func (c *Code) readingOf(start, hi uint64) *reading {
	r := c.readings[start]
	if r == nil {
		r = c.paths.function(start, hi)
		if c.kept += len(r.found) + 1; c.kept > maxKept {
			clear(c.readings)
			c.kept = len(r.found) + 1
		}
		c.readings[start] = r
	}
	return r
}

// pastPadding gives the first instruction from addr on that is no padding, up to where functions
// are aligned.
func (c *Code) pastPadding(addr uint64) uint64 {
	var in insn
	for addr%alignment != 0 && in.decode(c.bytes(addr)) && in.isPadding() {
		addr += uint64(in.n)
	}
	return addr
}

func (c *Code) isStart(addr uint64) bool { return c.charted.isStart(addr) }

// chart finds all holes and starts at its first call.
func (c *Code) chart() *codeMap {
	if !c.charted.whole {
		c.charted = c.survey()
		c.forget()
	}
	return c.charted
}

// forget drops what was read with other starts.
func (c *Code) forget() {
	clear(c.readings)
	c.kept = 0
	c.returns = answers[returning]{}
}

// chartNearby gives the hole around addr if it is small, and notes it with what look like
// starts of functions. If the first one is known to be one it is that, else 0.
func (c *Code) chartNearby(addr uint64) (h Hole, first uint64, ok bool) {
	if c.covered.Gap == nil {
		return h, 0, false
	}
	for _, r := range c.layout.Text {
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
			// What starts a section may be the cold part of a function.
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

// IsOneFunction says whether no other function starts between start and addr: the way from
// start goes on to addr, and no call on it leads there.
func (c *Code) IsOneFunction(start, addr uint64) bool {
	var in insn
	for at := start; at < addr; at += uint64(in.n) {
		if !in.decode(c.bytes(at)) {
			return false
		}
		if at+uint64(in.n) > addr {
			break
		}
		switch t, target := in.turn(at); {
		case !t.goesOn(), t == calls && target > start && target <= addr:
			return false
		}
	}
	return true
}

// cloneChild is how musl's clone begins a thread: with no frame pointer and
// the argument from the new stack it calls the thread's function, and there
// is nowhere to return to: xor %ebp, %ebp; pop %rdi; call *%r9.
var cloneChild = []byte{0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1}

// isThreadRoot says whether addr follows the call by which a thread begins,
// right after the system call that made it.
func (c *Code) isThreadRoot(addr uint64) bool {
	const near = 8 // from the system call to what it leads to: test and branch
	n := uint64(len(cloneChild))
	if addr < n+near || !bytes.HasPrefix(c.bytes(addr-n), cloneChild) {
		return false
	}
	syscallIn := func(b []byte) bool { return bytes.Contains(b[:min(near, len(b))], []byte{0x0f, 0x05}) }
	return syscallIn(c.bytes(addr-n-near)) && syscallIn(c.bytes(addr)) // the latter is exit
}

// clones are the system calls that make a thread, as glibc has them, which
// leaves what follows without CFI: mov $n, %eax; syscall. The numbers are from
// arch/x86/entry/syscalls/syscall_64.tbl.
var clones = [][]byte{
	{0xb8, 0xb3, 0x01, 0, 0, 0x0f, 0x05}, // clone3
	{0xb8, 0x38, 0, 0, 0, 0x0f, 0x05},    // clone
}

// FollowsClone says whether addr is where a thread begins: between the system
// call that made it and the place where it parts from the one that made the call.
func (c *Code) FollowsClone(addr uint64) bool {
	const near = 8 // bytes of test and branches
	for _, want := range clones {
		for n := uint64(len(want)); n < uint64(len(want))+near && n <= addr; n++ {
			if bytes.HasPrefix(c.bytes(addr-n), want) {
				return true
			}
		}
	}
	return false
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

// pltRule is the rule in the procedure linkage table at table, whose entries need no
// start to be known: they lie 16 bytes apart, and all that they do to SP is to
// push. The first entry of .plt runs after another one has pushed.
func (c *Code) pltRule(table, addr uint64) (rule.Rule, bool) {
	const entry = 16
	first := table + (addr-table)&^(entry-1)
	words := uint32(1)
	if bytes.HasPrefix(c.bytes(first), []byte{0xff, 0x35}) { // push of the link map
		words++
	}
	var in insn
	for at := first; at <= addr; at += uint64(in.n) {
		if at == addr {
			return rule.GuessSP.With(words, 0), true
		}
		if at-first >= entry || !in.decode(c.bytes(at)) {
			break
		}
		switch {
		case in.space != 0 || in.vector != legacy:
		case in.op == 0x68, in.op == 0xff && in.reg&7 == 6:
			words++
		case in.op >= 0x50 && in.op < 0x60, in.op == 0xe8, in.op == 0x8d, in.op == 0x83, in.op == 0x81:
			return rule.None, false
		}
	}
	return rule.None, false
}

// The signal restorer of C libraries without CFI: rt_sigreturn is system call
// 15 (arch/x86/entry/syscalls/syscall_64.tbl).
var restorers = [][]byte{
	{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}, // mov $15, %rax; syscall
	{0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05},             // mov $15, %eax; syscall
}

// IsRestorer says whether the instruction at addr is in a signal restorer, or follows it:
// there a thread stands while the kernel is about to restore its registers.
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

// FollowsCall says whether the instruction before addr is a call: a direct
// one into the image's own code, or an indirect one, whose bytes say less.
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

// A callKind says what call is before an address. Zero is none of them.
type callKind uint32

const (
	notCall callKind = 1 + iota
	directCall
	indirectCall
)

func (c *Code) findCall(addr uint64) callKind {
	if target, ok := c.DirectCall(addr); ok && c.executable(target) {
		return directCall
	}
	var in insn
	// ff /2 with prefix, SIB and displacement: 2 to 8 bytes, and more with
	// padding prefixes.
	for n := uint64(2); n <= 9; n++ {
		if at, ok := c.callBefore(addr, n, &in); ok {
			if t, _ := in.turn(at); t == callsFar && (n == 2 || in.n == int(n)) {
				return indirectCall
			}
		}
	}
	return notCall
}

// CallSize is the length of a direct call.
const CallSize = 5

// DirectCall gives the target of the direct call that ends at addr.
func (c *Code) DirectCall(addr uint64) (target uint64, ok bool) {
	var in insn
	at, ok := c.callBefore(addr, CallSize, &in)
	if !ok {
		return 0, false
	}
	t, target := in.turn(at)
	return target, t == calls
}

// callBefore decodes the instruction that would start n bytes before addr.
func (c *Code) callBefore(addr, n uint64, in *insn) (uint64, bool) {
	if addr < n {
		return 0, false
	}
	at := addr - n
	return at, in.decode(c.bytes(at)) && in.n == int(n)
}

// executable says whether addr is code of the image.
func (c *Code) executable(addr uint64) bool {
	for i := range c.layout.Loads {
		l := &c.layout.Loads[i]
		if l.Flags&1 != 0 && addr-l.Vaddr < l.Filesz { // PF_X
			return true
		}
	}
	return false
}
