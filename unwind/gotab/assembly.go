package gotab

import (
	"bytes"
	"io"
	"strings"

	"unspool/dwarfcfi/elf"
	"unspool/unwind/x86"
)

// asmFunc is what a Go function that is written in assembly does to the stack and
// its pcsp table does not show.
type asmFunc struct {
	kind asmKind
	// savesBP: the frame begins with the caller's BP, which the assembler saves
	// unless the function is marked NOFRAME.
	savesBP bool
	// spWritten is the offset behind the first instruction that gives SP a value
	// that no table can describe; 0 if there is none.
	spWritten uint32
	// spBack is the same for the second one, with which cgocallback goes back to its first stack.
	spBack uint32
	// called is the offset behind the first system call; 0 if there is none.
	called uint32
	// aligns: that instruction rounds SP down. SP stays on its stack.
	aligns bool
	// bpWritten: BP is used as a general register somewhere.
	bpWritten bool
	// popped is the DWARF number of the register into which the function pops its
	// return address, and which holds it as long as SP is above the place on the
	// stack; 0 for none. rawVforkSyscall does so because its child has the same stack.
	popped uint8
	// held is the DWARF number of the register that has the SP of entry from the offset heldFrom on, and up to
	// heldTo, where it is SP again; 0 for none. racecall and its like keep it for a call of C, on the stack that
	// C needs.
	held             uint8
	heldFrom, heldTo uint32
}

type asmKind uint8

const (
	plain    asmKind = iota
	root             // nothing called it: goexit, mstart, rt0_go, the process entry
	newStack         // a root once it has switched stacks: mcall, the child in clone
	callback         // cgocallback: its frame is on both stacks
	onward           // systemstack: its frame stays on the old stack, and BP leads to it
	grow             // morestack: its caller is noted in the goroutine's g
	injected         // the runtime made a call to it at the instruction that a signal interrupted
	restorer         // the return address of signal handlers
)

// asmKinds are the functions of the runtime whose code does not show what they do.
var asmKinds = map[string]asmKind{
	"runtime.goexit":              root,
	"runtime.mstart":              root,
	"runtime.rt0_go":              root,
	"_rt0_amd64":                  root,
	"_rt0_amd64_linux":            root,
	"runtime.mcall":               newStack,
	"runtime.clone":               newStack,
	"runtime.switchToCrashStack0": newStack,
	"runtime.cgocallback":         callback,
	"runtime.systemstack":         onward,
	"runtime.morestack":           grow,
	"runtime.asyncPreempt":        injected,
	"runtime.sigpanic":            injected,
	"runtime.sigpanic0":           injected,
	"runtime.debugCallV2":         injected,
}

// sigreturnName is the runtime's signal return trampoline: the return address
// of its signal handlers. sigreturnCode is what it does:
//
//	mov $15 (rt_sigreturn), %rax; syscall
const sigreturnName = "runtime.sigreturn__sigaction"

var sigreturnCode = []byte{0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05}

// goCode reads a Go binary's instructions and function names.
type goCode struct {
	r               io.ReaderAt
	loads           []elf.Load
	names, namesEnd int64 // offsets in the file
	buf             [1 << 12]byte
	nameBuf         [64]byte
}

// at reads up to size bytes of code at addr. They are valid until the next call.
func (c *goCode) at(addr, size uint64) []byte {
	for i := range c.loads {
		l := &c.loads[i]
		if skip := addr - l.Vaddr; l.Flags&elf.PF_X != 0 && addr >= l.Vaddr && skip < l.Filesz {
			n, _ := c.r.ReadAt(c.buf[:min(size, l.Filesz-skip, uint64(len(c.buf)))], int64(l.Offset+skip))
			return c.buf[:n]
		}
	}
	return nil
}

// find searches all code for a pattern, until accept returns true for one of the
// first few addresses where it is.
func (c *goCode) find(pattern []byte, accept func(addr uint64) bool) bool {
	for _, l := range c.loads {
		if l.Flags&elf.PF_X == 0 || l.Offset+l.Filesz < l.Offset {
			continue
		}
		tries, accepted := 0, false
		search(c.r, l.Offset, l.Offset+l.Filesz, pattern, func(at uint64) bool {
			tries++
			accepted = accept(at - l.Offset + l.Vaddr)
			return accepted || tries == 16
		})
		if accepted {
			return true
		}
	}
	return false
}

// name reads a function name, cut to the length of the longest one that matters.
func (c *goCode) name(off uint32) string {
	at := c.names + int64(off)
	n, _ := c.r.ReadAt(c.nameBuf[:max(0, min(int64(len(c.nameBuf)), c.namesEnd-at))], at)
	b := c.nameBuf[:n]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return strings.TrimSuffix(string(b), ".abi0")
}

// savesBP reports whether code, a function's from its entry, saves BP where its
// frame begins: push %rbp, or since before Go 1.21 mov %rbp, n(%rsp).
func savesBP(code []byte, frameStart uint32) bool {
	k := int(frameStart)
	if k < 1 || k+4 > len(code) {
		return false
	}
	if code[k-1] == 0x55 {
		return true
	}
	store := code[k:]
	return store[0] == 0x48 && store[1] == 0x89 && (store[2] == 0x6c || store[2] == 0xac) && store[3] == 0x24
}

// fits reports whether the functions begin at text: then those with a frame save BP
// exactly where their pcsp tables say. In that case it sets text.
func (t *Table) fits(text uint64) bool {
	const enough = 64
	n, bad := 0, 0
	step := max(1, t.count/(2*enough))
	for i := uint64(0); i < t.count && n < enough; i += step {
		f, ok := t.entry(uint32(i))
		if !ok {
			return false
		}
		if at, ok := t.frameStart(&f); ok && at < 256 {
			n++
			if !savesBP(t.code.at(text+t.start(uint32(i)), uint64(at)+4), at) {
				bad++
			}
		}
	}
	// A few may be assembly without a standard frame.
	if n == 0 || bad > n/8 {
		return false
	}
	t.text = text
	return true
}

// assembly gives what is known about a function in assembly, or one whose frame is not
// as the compiler makes it. It is nil for other functions.
func (t *Table) assembly(index uint32, f *goFunc) *asmFunc {
	// Go 1.16 to 1.19 do not mark all assembly.
	if f.flag == 0 && t.version == go120 {
		return nil
	}
	a, ok := t.asm[index]
	if !ok {
		a = t.look(index, f)
		t.asm[index] = a
	}
	return a
}

// look examines the name and the code of a function.
func (t *Table) look(index uint32, f *goFunc) *asmFunc {
	name := t.code.name(f.name)
	if f.flag == 0 && name != "gogo" && !strings.HasPrefix(name, "runtime.") &&
		!strings.HasPrefix(name, "_rt0_") {
		return nil
	}
	code := t.code.at(t.text+t.start(index), t.start(index+1)-t.start(index))
	a := t.examine(f, code)
	a.kind = asmKinds[name]
	if f.flag&flagTopFrame != 0 && !strings.Contains(name, "igtramp") {
		a.kind = root
	}
	if (name == sigreturnName || name == "runtime.sigreturn") && bytes.HasPrefix(code, sigreturnCode) {
		a.kind = restorer
	}
	if a.kind != plain || f.flag&flagAsm != 0 || a.spWritten != 0 || !a.savesBP {
		return &a
	}
	return nil
}

// isSigreturn reports whether addr is in the signal return trampoline, if that is the function
// at index.
func (t *Table) isSigreturn(index uint32, addr uint64) bool {
	if uint64(index) >= t.count || addr-t.text-t.start(index) >= uint64(len(sigreturnCode)) {
		return false
	}
	f, ok := t.entry(index)
	if !ok {
		return false
	}
	a := t.assembly(index, &f)
	return a != nil && a.kind == restorer
}

// examine decodes a function from its entry on.
func (t *Table) examine(f *goFunc, code []byte) (a asmFunc) {
	start, framed := t.frameStart(f)
	a.savesBP = framed && savesBP(code, start)
	popEnd := ^uint32(0)
	for s := t.deltas(f); s.next(); {
		if s.value == -8 {
			popEnd = s.from
			break
		}
	}
	var in x86.Insn
	for off := 0; off < len(code); {
		if !in.Decode(code[off:]) {
			// An instruction that the decoder does not know, or data.
			off++
			continue
		}
		off += in.Len
		next := uint32(off)
		if reg, ok := in.Pops(); ok && next == popEnd && reg >= 8 {
			a.popped = reg
		}
		if !framed && a.heldTo == 0 {
			a.hold(&in, next)
		}
		if in.IsSyscall() && a.called == 0 {
			a.called = next
		}
		switch written := in.Writes(); {
		case written&x86.Bit(x86.SP) != 0:
			switch {
			case in.AddsToSP():
			case a.spWritten == 0:
				a.spWritten = next
				a.aligns = in.IsAnd()
			case a.spBack == 0:
				a.spBack = next
			}
		case written&x86.Bit(x86.BP) != 0:
			if !isFramePointer(&in) {
				a.bpWritten = true
			}
		}
	}
	if a.heldTo == 0 {
		a.held = 0
	}
	return a
}

// hold follows the SP of entry into another register, and back. The instruction ends at next.
func (a *asmFunc) hold(in *x86.Insn, next uint32) {
	dst, src, moves := in.Moves()
	switch {
	case a.held == 0:
		if moves && src == x86.SP && a.spWritten == 0 && dst >= 12 { // calls keep these
			a.held, a.heldFrom = dst, next
		}
	case in.Writes()&x86.Bit(a.held) != 0:
		a.held = 0 // it gets something else
	case moves && dst == x86.SP && src == a.held:
		a.heldTo = next
	}
}

// isFramePointer reports whether an instruction that writes BP makes it a frame pointer: an address on the stack, or the
// value that was saved there.
func isFramePointer(in *x86.Insn) bool {
	if _, src, ok := in.Moves(); ok {
		return src == x86.SP
	}
	return (in.IsLoad() || in.IsLEA()) && in.Base == x86.SP
}
