package unwind

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/unwind/image"
	"unspool/unwind/rule"
	"unspool/vmas"
	"unspool/vmas/process"
)

// TestResumeOverRemnants walks from generated code whose caller is not known to an address that is left over
// on the stack, above which is one behind a call that leads elsewhere, by a procedure linkage table.
func TestResumeOverRemnants(t *testing.T) {
	const program = `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call stub
in_start:
	nop
	call remnant
also_in_start:
	nop
	call elsewhere
last_in_start:
	nop
	.cfi_endproc
	.p2align 4
stub:
	endbr64
	jmp *slot(%rip)
	.p2align 4
slot:
	.quad 0
remnant:
	.cfi_startproc
	push %rax
	.cfi_def_cfa_offset 16
	call *%rax
in_remnant:
	pop %rax
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
elsewhere:
	.cfi_startproc
	ret
	.cfi_endproc
onwards:
	.cfi_startproc
	jmp remnant
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`
	labels, _, at := labelledProgram(t, program)
	path := labels.Find(0x400000).File.Path
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The pointer is read from the process, which is this one.
	size := uintptr(len(data)+4095) &^ 4095
	const anonymous = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	memory, err := unix.MmapPtr(-1, 0, nil, 2*size, unix.PROT_READ|unix.PROT_WRITE, anonymous)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.MunmapPtr(memory, 2*size) }()
	base, pid := uint64(uintptr(memory)), uint32(os.Getpid())
	for name := range at {
		at[name] += base - 0x400000
	}
	generated := base + uint64(size)
	for _, c := range []struct {
		name           string
		caller, called string
		want           bool
	}{
		{"it calls it", "in_start", "remnant", true},
		{"it calls something else", "in_start", "elsewhere", false},
		{"it calls what jumps there", "in_start", "onwards", true},
		{"what it calls is not known", "in_start", "", true},
		{"it calls it directly", "also_in_start", "", true},
		{"it calls something else directly", "last_in_start", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			slot := unsafe.Slice((*byte)(memory), size)[at["slot"]-base:]
			binary.LittleEndian.PutUint64(slot, at[c.called]) // 0 for none
			table := vmas.NewTable("")
			table.Comm(pid, pid, []byte("test"), true)
			for addr, name := range map[uint64]string{base: path, generated: "//anon"} {
				table.Mmap(pid, vmas.Map{Addr: addr, Len: uint64(size), Prot: vmas.ProtExec | vmas.ProtRead,
					Name: []byte(name)})
			}
			u := NewUnwinder(image.New(image.Config{Processes: process.Direct("/proc")}))
			var regs Regs
			regs.set(rule.IP, generated+16)
			regs.set(rule.SP, madeSP)
			res := u.Unwind(table.Space(pid), &regs, madeCopy(true, 1, at["in_remnant"], 0, at[c.caller]))
			if resumed := len(res.IPs) == 3; resumed != c.want {
				t.Errorf("%#x, %v; in_remnant is %#x", res.IPs, res.End, at["in_remnant"])
			}
		})
	}
}
