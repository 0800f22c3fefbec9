package gotab

import (
	"encoding/binary"

	"unspool/unwind/x86"
)

// A Growth says where the caller of runtime.morestack is found. That is a function of a goroutine that needs
// more stack. morestack gets it on the stack of the scheduler, and moves the goroutine to it:
//
//	R14 ─▶ g of the scheduler ─M─▶ m ─CurG─▶ g of the goroutine ─Sched─▶ SP, PC
//
// R14 has the g whose stack is in use. In a g, the first two words are the bounds of its stack, and at Sched
// are its SP, its PC and its own address; what a g runs goes on there when it has the CPU again.
type Growth struct {
	Return         uint64 // what is on the scheduler's stack then: where morestack's last call returns to
	M, CurG, Sched uint16 // offsets in a g, in an m, and in a g
}

const (
	// maxAssembly is how many functions in assembly may lie between an address and morestack.
	maxAssembly = 512
	// maxTries is how often morestack is looked for in a file, as a part of the file may come late.
	maxTries = 64

	nameOfMorestack = "runtime.morestack"
)

// Growth reads that from the code of the runtime. addr is any address in its functions in assembly, which all
// lie together; nearly all stacks of Go end in one of them. ok is false if addr is elsewhere.
func (t *Table) Growth(addr uint64) (g Growth, ok bool) {
	if t.growth.Return != 0 {
		return t.growth, true
	}
	index, ok := t.index(addr)
	if !ok || t.tries >= maxTries {
		return g, false
	}
	t.tries++
	from, more := t.switchesNear(index)
	if from < 0 || more < 0 || !g.readSwitch(t.codeOf(from)) {
		return g, false
	}
	if g.Return, ok = callOnOtherStack(t.codeOf(more)); ok {
		g.Return += t.text + t.start(uint32(more))
		t.growth = g
	}
	return g, ok
}

func (t *Table) codeOf(index int) []byte {
	start := t.start(uint32(index))
	return t.code.at(t.text+start, t.start(uint32(index)+1)-start)
}

// switchesNear are the indexes of systemstack and morestack among the functions in assembly around another
// one, -1 where there is none.
func (t *Table) switchesNear(index uint32) (system, more int) {
	system, more = -1, -1
	for _, step := range [...]int{1, -1} {
		for i, n := int(index), 0; i >= 0 && uint64(i) < t.count && n < maxAssembly; i, n = i+step, n+1 {
			f, ok := t.entry(uint32(i))
			if !ok || f.flag&flagAsm == 0 && t.version == go120 {
				break
			}
			switch t.code.name(f.name) {
			case "runtime.systemstack":
				system = i
			case nameOfMorestack:
				more = i
			}
			if system >= 0 && more >= 0 {
				return system, more
			}
		}
	}
	return system, more
}

// CallsMorestack reports whether a call of morestack, or of a function that only goes on there, ends at an
// address.
func (t *Table) CallsMorestack(addr uint64) bool {
	const size = 5 // call rel32
	code := t.code.at(addr-size, size)
	if len(code) < size || code[0] != 0xe8 {
		return false
	}
	to := addr + uint64(int64(int32(binary.LittleEndian.Uint32(code[1:]))))
	index, ok := t.index(to)
	if !ok || to != t.text+t.start(index) {
		return false
	}
	f, ok := t.entry(index)
	if !ok {
		return false
	}
	name := t.code.name(f.name)
	return name == nameOfMorestack || name == nameOfMorestack+"_noctxt"
}

// readSwitch reads the offsets from the code of systemstack, which begins with a check on which stack it is:
//
//	mov M(%rax),%rbx         from g to m
//	cmp …(%rbx),%rax         is it the g for signals?
//	mov (%rbx),%rdx          the scheduler's g
//	cmp CurG(%rbx),%rax      is it the goroutine's?
//	mov Sched(%rdx),%rsp     to the scheduler's stack
func (g *Growth) readSwitch(code []byte) bool {
	var in x86.Insn
	compared := 0
	for len(code) > 0 {
		if !in.Decode(code) {
			return false
		}
		code = code[in.Len:]
		offset, isField := fieldOf(&in, x86.AX)
		switch {
		case in.IsLoad() && in.Reg == x86.BX && isField && g.M == 0:
			g.M = offset
			continue
		case movesToSP(&in):
			g.Sched, isField = fieldOf(&in, x86.DX)
			return isField && g.M != 0 && compared == 2 && g.CurG != 0 && g.Sched != 0
		}
		if offset, isField = fieldOf(&in, x86.BX); isField && in.IsCompare() {
			compared++
			g.CurG = offset
		}
	}
	return false
}

// movesToSP reports whether an instruction copies a word to SP.
func movesToSP(in *x86.Insn) bool {
	dst, _, moves := in.Moves()
	return moves && dst == x86.SP || in.IsLoad() && in.Reg == x86.SP
}

// fieldOf is the offset in a structure of what an instruction reads, if a register has its address.
func fieldOf(in *x86.Insn, base uint8) (offset uint16, ok bool) {
	const largest = 4096
	if in.Base != base || in.HasIndex || in.Segment || in.Disp < 0 || in.Disp >= largest {
		return 0, false
	}
	return uint16(in.Disp), in.Disp%8 == 0
}

// callOnOtherStack is the offset behind the first call in code after it has switched stacks.
func callOnOtherStack(code []byte) (offset uint64, ok bool) {
	var in x86.Insn
	switched := false
	for off := 0; off < len(code) && in.Decode(code[off:]); {
		off += in.Len
		switched = switched || movesToSP(&in)
		if switched && in.IsCall() {
			return uint64(off), true
		}
	}
	return 0, false
}
