package asm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"

	"unspool/unwind/rule"
	"unspool/unwind/x86"
)

// This file has what is x86-64: what instructions do to registers and to the stack, where they lead, and the code of
// C libraries, linkers and runtimes that is known by its bytes. Another machine gets a file beside it.

// An insn is an instruction, with the questions that paths ask about it.
type insn struct{ x86.Insn }

// isSubSP reports whether the instruction lowers SP by a constant.
func (in *insn) isSubSP() bool {
	return in.IsOneByte() && (in.Op == 0x83 || in.Op == 0x81) && in.Mod == 3 && in.Reg == 5 && in.RM == x86.SP
}

// movesStack reports whether the instruction pushes or pops.
func (in *insn) movesStack() bool {
	if !in.IsOneByte() {
		return false
	}
	switch in.Op {
	case 0x8f, 0x9c, 0x9d, 0xc8, 0xc9: // pop to memory, pushf, popf, enter, leave
		return true
	}
	return in.pushes() != 0
}

// pushes is how many words the instruction pushes, negative for a pop.
func (in *insn) pushes() int {
	switch op := in.Op; {
	case !in.IsOneByte():
		return 0
	case op >= 0x50 && op < 0x58, op == 0x68, op == 0x6a, op == 0xff && in.Reg&7 == 6:
		return 1
	case op >= 0x58 && op < 0x60:
		return -1
	}
	return 0
}

// setsReturn reports whether the instruction pushes a word, or replaces the one that SP points to.
func (in *insn) setsReturn() bool {
	return in.pushes() > 0 || in.IsOneByte() && (in.Op == 0x87 || in.Op == 0x89) &&
		in.Mod == 0 && in.Base == x86.SP && !in.HasIndex
}

// turn classifies an instruction; target is the image address that it names.
func (in *insn) turn(addr uint64) (t turn, target uint64) {
	if in.Encoding != x86.Legacy {
		return onwards, 0
	}
	target = addr + uint64(in.Len) + uint64(in.Imm)
	switch in.Map {
	case 0:
		switch op := in.Op; {
		case op >= 0x70 && op < 0x80, op >= 0xe0 && op < 0xe4:
			return branches, target
		case op == 0xe9, op == 0xeb:
			return jumps, target
		case op == 0xe8:
			return calls, target
		case op == 0xc2, op == 0xc3:
			return returns, 0
		case op == 0xf4, op == 0xcc, op == 0xca, op == 0xcb, op == 0xcf, op == 0xf1:
			return stops, 0
		case op == 0xc7 && in.Mod == 3 && in.Reg&7 == 7: // xbegin
			return branches, target
		case op == 0xff:
			switch in.Reg & 7 {
			case 2:
				return callsFar, 0
			case 4:
				return jumpsFar, 0
			case 3, 5, 7:
				return stops, 0
			}
		}
	case 1:
		switch op := in.Op; {
		case op >= 0x80 && op < 0x90:
			return branches, target
		case op == 0x0b, op == 0xb9 || op == 0xff, op == 0x07, op == 0x35: // ud0 to ud2, sysret, sysexit
			return stops, 0
		}
	}
	return onwards, 0
}

// beginsFunction reports whether the instruction is endbr64, a push, or one that
// makes room on the stack.
func (in *insn) beginsFunction() bool {
	endbr := in.Encoding == x86.Legacy && in.Map == 1 && in.Op == 0x1e && in.Prefix == 0xf3
	push := in.IsOneByte() && in.Op >= 0x50 && in.Op < 0x58
	return endbr || push || in.isSubSP()
}

// setsConstant reports whether the instruction puts a 32-bit constant, which may
// be an address of a program that is not relocated, into a register, an
// argument or a variable.
func (in *insn) setsConstant() bool {
	return in.IsOneByte() && !in.Narrow &&
		(in.Op >= 0xb8 && in.Op < 0xc0 || in.Op == 0xc7 && in.Reg&7 == 0 || in.Op == 0x68)
}

// isPadding reports whether the instruction does nothing, or is never reached.
func (in *insn) isPadding() bool {
	return in.Encoding == x86.Legacy &&
		(in.Map == 0 && (in.Op == 0x90 || in.Op == 0xcc) || in.Map == 1 && in.Op == 0x1f)
}

// givesBack reports whether the instruction adds so much to SP.
func (in *insn) givesBack(room uint32) bool {
	return in.IsOneByte() && (in.Op == 0x81 || in.Op == 0x83) && in.Mod == 3 && in.Reg&7 == 0 && in.RM == x86.SP &&
		in.Imm == int64(room)
}

// leaves reports whether the instruction at addr never goes on to the next one.
func (in *insn) leaves(addr uint64) bool {
	t, _ := in.turn(addr)
	return !t.goesOn()
}

func (in *insn) popsBP() bool {
	return in.IsOneByte() && in.Op == 0x58+x86.BP
}

// isNop reports whether an instruction is one that is used as padding.
func (in *insn) isNop() bool {
	switch {
	case in.Encoding != x86.Legacy:
		return false
	case in.Map == 0:
		return in.Op == 0x90 && in.REX == 0 && in.Prefix != 0xf3 // not xchg, nor pause
	}
	return in.Map == 1 && in.Op == 0x1f
}

// restores reports whether an instruction pops a register that calls leave alone.
func (in *insn) restores() bool {
	switch {
	case !in.IsOneByte():
		return false
	case in.Op == 0xc9: // leave
		return true
	}
	return in.Op >= 0x58 && in.Op < 0x60 && x86.CallerSaved>>in.Low()&1 == 0
}

// cloneChild is how musl's clone begins a thread: it clears the frame pointer,
// takes the argument from the new stack and calls the thread's function, above
// which there is no caller: xor %ebp, %ebp; pop %rdi; call *%r9.
var cloneChild = []byte{0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1}

// isThreadRoot reports whether addr follows the call by which a thread calls its first
// function, right after the system call that made the thread.
func (c *Code) isThreadRoot(addr uint64) bool {
	const near = 8 // bytes of the test and the branch behind the system call
	n := uint64(len(cloneChild))
	if addr < n+near || !bytes.HasPrefix(c.bytes(addr-n), cloneChild) {
		return false
	}
	syscallIn := func(b []byte) bool { return bytes.Contains(b[:min(near, len(b))], []byte{0x0f, 0x05}) }
	return syscallIn(c.bytes(addr-n-near)) && syscallIn(c.bytes(addr)) // the latter is exit
}

// clones are the system calls that make a thread, as in glibc, whose code behind
// them has no CFI: mov $n, %eax; syscall. The numbers are from
// arch/x86/entry/syscalls/syscall_64.tbl.
var clones = [][]byte{
	{0xb8, 0xb3, 0x01, 0, 0, 0x0f, 0x05}, // clone3
	{0xb8, 0x38, 0, 0, 0, 0x0f, 0x05},    // clone
}

// FollowsClone reports whether addr is where a thread begins: between the system
// call that made it and the branch that only the new thread takes.
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

// pltRule is the rule in the procedure linkage table at table. The starts of its entries are
// known without reading: they are 16 bytes apart. Of the instructions that change SP, they only
// have pushes. The first entry of .plt runs after another entry has pushed a word.
func (c *Code) pltRule(table, addr uint64) (rule.Rule, bool) {
	const entry = 16
	first := table + (addr-table)&^(entry-1)
	words := uint32(1)
	if bytes.HasPrefix(c.bytes(first), []byte{0xff, 0x35}) { // push of the link map
		words++
	}
	var in insn
	for at := first; at <= addr; at += uint64(in.Len) {
		if at == addr {
			return rule.GuessSP.With(words, 0), true
		}
		if at-first >= entry || !in.Decode(c.bytes(at)) {
			break
		}
		switch {
		case !in.IsOneByte():
		case in.Op == 0x68, in.Op == 0xff && in.Reg&7 == 6:
			words++
		case in.Op >= 0x50 && in.Op < 0x60, in.Op == 0xe8, in.Op == 0x8d, in.Op == 0x83, in.Op == 0x81:
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

// loadedBefore gives the address from which the instruction at from, with the opcode load, loads a
// register that no instruction between it and end changes.
func (c *Code) loadedBefore(from, end uint64, load byte, reg uint8) (addr uint64, ok bool) {
	var in insn
	if !in.Decode(c.bytes(from)) || in.Map != 0 || in.Op != load || in.Base != x86.RIP || in.Reg != reg {
		return 0, false
	}
	at := from + uint64(in.Len)
	addr = at + uint64(in.Disp)
	for at < end {
		if !in.Decode(c.bytes(at)) || in.Writes()&x86.Bit(reg) != 0 {
			return 0, false
		}
		if t, _ := in.turn(at); t != onwards {
			return 0, false
		}
		at += uint64(in.Len)
	}
	return addr, at == end
}

// contextEnds are the first bytes of that code: __start_context on x86-64
// (sysdeps/unix/sysv/linux/x86_64/__start_context.S), and a part of makecontext on i386
// (sysdeps/unix/sysv/linux/i386/makecontext.S). No function that is called can begin like this.
var contextEnds = map[elf.Machine][][]byte{
	elf.EM_X86_64: {
		// mov %rbx,%rsp; mov (%rsp),%rdi; test %rdi,%rdi
		{0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff},
		// Older versions: mov %rbx,%rsp; pop %rdi; test %rdi,%rdi
		{0x48, 0x89, 0xdc, 0x5f, 0x48, 0x85, 0xff},
	},
	elf.EM_386: {
		{0x8d, 0x24, 0x9c, 0x83, 0x3c, 0x24, 0x00}, // lea (%esp,%ebx,4),%esp; cmpl $0,(%esp)
	},
}

// endbr64 and endbr32 may come first.
var endbr = map[elf.Machine][]byte{
	elf.EM_X86_64: {0xf3, 0x0f, 0x1e, 0xfa},
	elf.EM_386:    {0xf3, 0x0f, 0x1e, 0xfb},
}

// finishes are the first bytes of the code that a coroutine of Boost.Context returns to: finish in
// libs/context/src/asm/make_x86_64_sysv_elf_gas.S. A call of _exit and hlt follow, as they do in
// the start code of programs behind the call of main.
var finishes = [...][]byte{{0x48, 0x31, 0xff}, {0x31, 0xff}} // xor %rdi,%rdi; xor %edi,%edi

func isFinish(b []byte) bool {
	const call, hlt = 0xe8, 0xf4
	for _, want := range finishes {
		rest, ok := bytes.CutPrefix(b, want)
		if ok && len(rest) > CallSize && rest[0] == call && rest[CallSize] == hlt {
			return true
		}
	}
	return false
}

// IsRet reports whether a ret is at addr.
func (c *Code) IsRet(addr uint64) bool { return bytes.HasPrefix(c.bytes(addr), []byte{0xc3}) }

// isPadded reports whether there is only int3 from addr up to the next multiple of 16.
func (c *Code) isPadded(addr uint64) bool {
	n := int(-addr % alignment)
	b := c.bytes(addr)
	if n == 0 || len(b) < n+2 {
		return false
	}
	for _, x := range b[:n] {
		if x != int3 {
			return false
		}
	}
	return b[n] != 0x0f || b[n+1] != 0x0b // int3; ud2 is code by which a program stops itself
}

const int3 = 0xcc

// step applies the instruction at addr to the state.
func (s *state) step(in *insn, addr uint64) {
	s.compare(in)
	if !in.IsOneByte() {
		if in.Encoding == x86.Legacy && in.Map == 1 {
			switch in.Op {
			case 0xa0, 0xa8: // push fs, gs
				s.push(value{})
				return
			case 0xa1, 0xa9:
				s.pop()
				return
			}
		}
		s.forget(in.Writes())
		return
	}
	wide := in.REX&x86.RexW != 0
	switch op := in.Op; {
	case op >= 0x50 && op < 0x60 && in.Narrow:
		s.regs[x86.SP] = value{}
	case op >= 0x50 && op < 0x58:
		s.push(s.regs[in.Low()])
	case op >= 0x58 && op < 0x60:
		v := s.pop()
		s.regs[in.Low()] = v
	case op == 0x68, op == 0x6a, op == 0x9c, op == 0xff && in.Reg&7 == 6:
		if in.Narrow {
			s.regs[x86.SP] = value{}
			return
		}
		s.push(value{})
	case op == 0x9d:
		s.pop()
	case op == 0x8f:
		s.pop()
		if in.Mod == 3 {
			s.regs[in.RM] = value{}
		}
	case op == 0x89 && wide:
		if in.Mod == 3 {
			s.regs[in.RM] = s.regs[in.Reg]
		} else {
			s.store(s.address(in), s.regs[in.Reg])
		}
	case op == 0x8b && wide:
		if in.Mod == 3 {
			s.regs[in.Reg] = s.regs[in.RM]
		} else {
			v := s.load(s.address(in))
			if v.kind == unknown {
				v = s.tableWord(in, 8, caseWord)
			}
			s.regs[in.Reg] = v
		}
	case op == 0x8d && wide && in.Base == x86.RIP:
		s.regs[in.Reg] = imageAddr(addr + uint64(in.Len) + uint64(in.Disp))
	case op >= 0xb8 && op < 0xc0 && !in.Narrow:
		s.regs[in.Low()] = imageAddr(uint64(in.Imm))
	case op == 0x63 && wide && in.Mod != 3:
		s.regs[in.Reg] = s.tableWord(in, 4, caseDistance)
	case op == 0x01 && wide && in.Mod == 3:
		s.regs[in.RM] = addRegs(s.regs[in.RM], s.regs[in.Reg])
	case op == 0x03 && wide && in.Mod == 3:
		s.regs[in.Reg] = addRegs(s.regs[in.Reg], s.regs[in.RM])
	case op == 0x8d && wide && in.Mod != 3:
		s.regs[in.Reg] = s.address(in)
	case op == 0x87 && wide && in.Mod == 3:
		s.regs[in.RM], s.regs[in.Reg] = s.regs[in.Reg], s.regs[in.RM]
	case (op == 0x81 || op == 0x83) && wide && in.Mod == 3 && (in.Reg&7 == 0 || in.Reg&7 == 5):
		n := in.Imm
		if in.Reg&7 == 5 {
			n = -n
		}
		s.regs[in.RM] = s.regs[in.RM].add(n)
	case (op == 0x81 || op == 0x83) && wide && in.Mod == 3 && in.Reg&7 == 4:
		if s.regs[in.RM].kind != unknown {
			s.regs[in.RM] = value{kind: aligned, at: int32(addr)}
		}
	case op == 0xc8: // enter
		if in.Imm>>16 != 0 {
			s.forget(x86.Bit(x86.SP) | x86.Bit(x86.BP))
			return
		}
		s.push(s.regs[x86.BP])
		s.regs[x86.BP] = s.regs[x86.SP]
		s.regs[x86.SP] = s.regs[x86.SP].add(-(in.Imm & 0xffff))
	case op == 0xc9: // leave
		s.regs[x86.SP] = s.regs[x86.BP]
		s.regs[x86.BP] = s.pop()
	case op == 0xe8 && in.Imm == 0: // call of the next instruction, which pushes its address
		s.push(value{})
	case op == 0xe8, op == 0xff && in.Reg&7 == 2:
		s.forget(x86.CallerSaved)
		s.cases, s.compared = 0, 0
	default:
		s.forget(in.Writes())
		return
	}
	if s.regs[x86.SP].kind != unknown {
		s.popped()
	}
}

var (
	pushBP = []byte{0x55}
	popBP  = []byte{0x5d}
	// copyOfReturn is push -8(%r10): in a function that has aligned its stack, gcc pushes a copy of
	// the return address before it saves BP.
	copyOfReturn = []byte{0x41, 0xff, 0x72, 0xf8}
	// setBP is mov %rsp, %rbp, in both encodings.
	setBP = [...][]byte{{0x48, 0x89, 0xe5}, {0x48, 0x8b, 0xec}}
)

// followsEnd reports whether the code before addr ends a function: a return, a
// jump, or padding.
func (c *Code) followsEnd(addr uint64) bool {
	const most = 8 // bytes of the longest padding
	if addr < most || !c.executable(addr) {
		return false
	}
	b := c.bytes(addr - most)
	if len(b) < most {
		return false
	}
	switch b = b[:most]; {
	case b[7] == 0xc3, b[7] == 0x90, b[7] == 0xcc, b[6] == 0xeb, b[3] == 0xe9:
		return true
	case b[7] == 0:
		for _, nop := range paddings {
			if bytes.HasSuffix(b, nop) {
				return true
			}
		}
	}
	return false
}

// paddings are the nops that assemblers use to align, as far as they end in zero. Longer ones
// are the last of these with prefixes.
var paddings = [][]byte{
	{0x0f, 0x1f, 0},
	{0x0f, 0x1f, 0x40, 0},
	{0x0f, 0x1f, 0x44, 0, 0},
	{0x0f, 0x1f, 0x80, 0, 0, 0, 0},
	{0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0},
}

// readsReturn reports whether the function at start begins with a pop of its return address and
// pushes it again at addr, as Free Pascal's main does to save it.
func (c *Code) readsReturn(start, addr uint64) bool {
	const pop, push, registers = 0x58, 0x50, 8
	b := c.bytes(start)
	return addr == start+1 && len(b) > 1 && b[0]-pop < registers && b[1]-push == b[0]-pop
}

// stackBang is mov %eax,disp32(%rsp): methods that call others touch the end of the stack first
// (MacroAssembler::verified_entry).
var stackBang = []byte{0x89, 0x84, 0x24}

// prologueAt reads the prologue of a method at the beginning of code: how long it is, how many bytes it takes from SP,
// and how many lie between SP and the CFA behind it. BP is saved below the return address.
func prologueAt(code []byte) (size int, room, frame uint32, ok bool) {
	const page = 4096
	b, banged := bytes.CutPrefix(code, stackBang)
	if banged {
		if len(b) < 5 {
			return 0, 0, 0, false
		}
		if at := int32(binary.LittleEndian.Uint32(b)); at%page != 0 || at >= 0 || b[4] != 0x55 {
			return 0, 0, 0, false
		}
		b = b[5:] // and push %rbp
	}
	switch {
	case len(b) >= 7 && b[0] == 0x48 && b[1] == 0x81 && b[2] == 0xec: // sub $imm32,%rsp
		room, b = binary.LittleEndian.Uint32(b[3:]), b[7:]
	case len(b) >= 4 && b[0] == 0x48 && b[1] == 0x83 && b[2] == 0xec && b[3] < 0x80: // sub $imm8,%rsp
		room, b = uint32(b[3]), b[4:]
	default:
		return 0, 0, 0, false
	}
	if frame = room + 16; !banged { // mov %rbp,room-8(%rsp)
		frame = room + 8
		var at uint32
		switch {
		case len(b) >= 5 && b[0] == 0x48 && b[1] == 0x89 && b[2] == 0x6c && b[3] == 0x24:
			at, b = uint32(int8(b[4])), b[5:]
		case len(b) >= 8 && b[0] == 0x48 && b[1] == 0x89 && b[2] == 0xac && b[3] == 0x24:
			at, b = binary.LittleEndian.Uint32(b[4:]), b[8:]
		default:
			return 0, 0, 0, false
		}
		if at != room-8 {
			return 0, 0, 0, false
		}
	}
	return len(code) - len(b), room, frame, room%8 == 0 && room < 1<<20
}

// compare notes what bounds an index: the constant that the instruction
// compares it with, or the mask that it applies.
func (s *state) compare(in *insn) {
	if !in.IsOneByte() {
		return
	}
	switch op := in.Op; {
	case op >= 0x80 && op <= 0x83 && in.Reg&7 == 7, op == 0x3c, op == 0x3d:
		s.compared, s.cases = 0, 0
		if in.Imm >= 0 && in.Imm < maxCases {
			s.compared = int32(in.Imm) + 1
		}
	case (op == 0x81 || op == 0x83) && in.Reg&7 == 4 && in.Mod == 3, op == 0x25, op == 0x24:
		s.compared, s.cases = 0, 0
		if in.Imm > 0 && in.Imm < maxCases && in.Imm&(in.Imm+1) == 0 {
			s.cases = int32(in.Imm) + 1
		}
	case op >= 0x38 && op < 0x3c, op == 0x84, op == 0x85, op == 0xa8, op == 0xa9: // cmp and test of other things
		s.compared = 0
	}
}

// bounds gives how many cases there are if a branch is taken and if it is not,
// from the comparison before it.
func (s *state) bounds(in *insn) (taken, not int32) {
	if s.compared == 0 {
		return s.cases, s.cases
	}
	switch op := in.Op & 0xf; {
	case in.Map == 0 && in.Op >= 0xe0: // loop
	case op == 0x7: // ja
		return 0, s.compared
	case op == 0x6: // jbe
		return s.compared, 0
	case op == 0x3: // jae
		return 0, s.compared - 1
	case op == 0x2: // jb
		return s.compared - 1, 0
	}
	return s.cases, s.cases
}
