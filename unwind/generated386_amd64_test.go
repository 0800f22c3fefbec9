package unwind

import (
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"unspool/unwind/image"
	"unspool/unwind/jit"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// TestGeneratedCodeAboutToReturn386 has generated code with EBP as its frame pointer, and at both ends, where
// EBP is its caller's; and a function that uses EBP for something else.
func TestGeneratedCodeAboutToReturn386(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_32BIT)
	if err != nil {
		t.Skipf("no executable memory: %v", err)
	}
	code := uint64(uintptr(unsafe.Pointer(&mem[0])))
	for i := range mem {
		mem[i] = 0xcc
	}
	const (
		sp     = 0xffc01000
		other  = 0x80
		caller = 0x100
	)
	// push %ebp; mov %esp, %ebp; nop; pop %ebp; ret
	copy(mem, []byte{0x55, 0x89, 0xe5, 0x90, 0x5d, 0xc3})
	copy(mem[other:], []byte{0x55, 0x8b, 0x6c, 0x24, 8, 0x0f, 0x0b}) // push %ebp; mov 8(%esp), %ebp; ud2
	copy(mem[caller:], []byte{0xff, 0xd1, 0xff, 0xd2, 0x90, 0x5d})   // call *%ecx; call *%edx; nop; pop %ebp
	a, b := code+caller+2, code+caller+4
	table := vmas.NewTable("")
	pid := uint32(os.Getpid())
	table.Comm(pid, pid, []byte("test"), true)
	table.Mmap(pid, vmas.Map{Addr: code, Len: 4096, Prot: vmas.ProtExec | vmas.ProtRead, Name: []byte("//anon")})
	space := table.Space(pid)
	u := NewUnwinder(image.NewStore("/proc"))
	look := func() {
		t.Helper()
		for _, c := range []struct {
			at, bp uint64
			stack  []uint64
		}{
			{0, sp + 8, []uint64{a, 0, 0, b}}, // EBP is the caller's
			{1, sp + 12, []uint64{sp + 12, a, 0, 0, b}},
			{3, sp, []uint64{sp + 12, a, 0, 0, b}}, // it is that of this function
			{5, sp + 8, []uint64{a, 0, 0, b}},
			{other, sp + 8, []uint64{a, 0, 0, b}},
			{other + 1, sp + 12, []uint64{sp + 12, a, 0, 0, b}},
		} {
			var regs Regs
			regs.set(rule.IP386, code+c.at)
			regs.set(rule.SP386, sp)
			regs.set(rule.BP386, c.bp)
			got := u.UnwindByRows(rule.I386, space, &regs, &Stack{Base: sp, Data: words(c.stack...)})
			if want := []uint64{code + c.at, a, b}; !slices.Equal(got.IPs, want) {
				t.Errorf("at +%d: %#x, %v; want %#x", c.at, got.IPs, got.End, want)
			}
		}
	}
	look()
	unix.Munmap(mem) // what was known stays when the process is gone
	space.Generated.(*jit.ProcessCode).Due = time.Time{}
	look()
}
