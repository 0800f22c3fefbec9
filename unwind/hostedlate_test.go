package unwind

import (
	"encoding/binary"
	"slices"
	"testing"

	"unspool/testdata/lane"
	"unspool/unwind/image"
	"unspool/unwind/image/fusetest"
	"unspool/unwind/rule"
	"unspool/vmas"
	"unspool/vmas/process"
)

// A pointerIn is a process whose memory holds nothing but one pointer, at every address.
type pointerIn struct {
	process.Access
	value uint64
}

func (p pointerIn) ReadMemory(_ uint32, buf []byte, _ uint64) int {
	binary.LittleEndian.PutUint64(buf, p.value)
	return len(buf)
}

// TestHostBehindALateFile walks from generated code that runs on the frame of an interpreter whose file has
// not been read yet, or whose caller's has not. A farther interpreter, in a file that has been read, is not
// taken for it. The same from inside an interpreter's file.
func TestHostBehindALateFile(t *testing.T) {
	t.Parallel()
	const program = `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call interpreter
in_start:
	call *pointer(%rip)
by_pointer:
	nop
	.cfi_endproc
	.p2align 4
interpreter:
	.cfi_startproc
	.cfi_def_cfa_offset 48
	sub $40, %rsp
inside:
	nop
	add $40, %rsp
	ret
	.cfi_endproc
	.p2align 4
dispatcher:
	.cfi_startproc
	sub $40, %rsp
	.cfi_def_cfa_offset 48
	jmp *8(%rsp)
	.cfi_endproc
	.data
pointer:
	.quad 0
	.section .note.GNU-stack,"",@progbits
`
	known, _, at := labelledProgram(t, program)
	other, _, _ := labelledProgram(t, program+"\t.ident \"another file\"\n")
	const (
		base, far = 0x400000, 0x10000000 // the file that is late, and the same code in another file beyond it
		generated = 0x5000_0000_0000
	)
	inStart, byPointer := at["in_start"], at["by_pointer"]
	for _, c := range []struct {
		name   string
		pc     uint64
		nearer uint64 // the return address in the frame of the interpreter
		opened fusetest.Mode
	}{
		{"caller", generated + 16, inStart, fusetest.HangRead},
		{"caller's code", generated + 16, inStart, fusetest.HangClose},
		{"called through a pointer", generated + 16, byPointer + far, fusetest.HangRead},
		{"from an interpreter", at["inside"] + far, inStart, fusetest.HangRead},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server, space := lateFile(t, c.opened, known.Find(base), map[uint64]string{
				base + far: other.Find(base).File.Path,
				generated:  "//anon",
			})
			defer server.Be(t, fusetest.Answer)
			u := NewUnwinder(image.New(image.Config{Processes: pointerIn{process.Direct("/proc"), at["dispatcher"]},
				Hurried: true}))
			stack := madeCopy(true, 0, 0, 0, 0, 0, 0, c.nearer, 0, 0, 0, 0, 0, 0, inStart+far, 1)
			walk := func() Result {
				var regs Regs
				regs.set(rule.IP, c.pc)
				regs.set(rule.SP, madeSP)
				return u.Unwind(space, &regs, stack)
			}
			parsed := func(m *vmas.Mapping) func() bool {
				imagesOf(u).Open(1, m)
				return func() bool { return imagesOf(u).Lookup(1, m).Parse() == nil }
			}
			lane.Eventually(t, "the other file", parsed(space.Find(base+far)))
			if c.opened == fusetest.HangClose {
				lane.Eventually(t, "the file", parsed(space.Find(base)))
				server.Be(t, fusetest.HangRead)
			}
			// Going on behind frames that are not known finds a call through a pointer.
			if got := walk(); got.End == Root || slices.Contains(got.IPs, inStart+far) {
				t.Errorf("%#x, %v", got.IPs, got.End)
			}
			server.Be(t, fusetest.Answer)
			want := []uint64{c.pc, c.nearer}
			lane.Eventually(t, "a walk through the file that is there", func() bool {
				got := walk()
				return slices.Equal(got.IPs, want) && got.End == Root
			})
		})
	}
}
