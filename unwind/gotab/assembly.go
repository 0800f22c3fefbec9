package gotab

import (
	"bytes"
	"io"
	"strings"

	"unspool/dwarfcfi/elf"
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
