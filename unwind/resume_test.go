package unwind

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"unspool/testdata/lane"
	"unspool/unwind/image"
	"unspool/unwind/image/fusetest"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// TestResumeBehindALateFile walks from generated code whose caller is in a file that has not been read yet,
// or whose code has not. The next return address on the stack, in a file that has been read, is not taken for
// the caller instead.
func TestResumeBehindALateFile(t *testing.T) {
	t.Parallel()
	const program = `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call outer
in_start:
	nop
	call *%rax
also_in_start:
	nop
	.cfi_endproc
	.p2align 4
outer:
	.cfi_startproc
	push %rax
	.cfi_def_cfa_offset 16
	call *%rax
in_outer:
	nop
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`
	known, _, at := labelledProgram(t, program)
	other, _, _ := labelledProgram(t, program+"\t.ident \"another file\"\n")
	const (
		base, far = 0x400000, 0x10000000 // the file that is late, and the same code in another file beyond it
		generated = 0x5000_0000_0000
	)
	inOuter, inStart, alsoInStart := at["in_outer"], at["in_start"], at["also_in_start"]
	for _, c := range []struct {
		name   string
		opened fusetest.Mode // when it is
		parsed bool
	}{
		{"file", fusetest.HangRead, false},
		{"code", fusetest.HangClose, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server, space := lateFile(t, c.opened, known.Find(base), map[uint64]string{
				base + far: other.Find(base).File.Path,
				generated:  "//anon",
			})
			defer server.Be(t, fusetest.Answer)
			u := NewUnwinder(image.New(image.Config{Proc: "/proc", Hurried: true}))
			stack := madeCopy(true, 1, alsoInStart, inOuter+far, 2, inStart+far)
			walk := func() Result {
				var regs Regs
				regs.set(rule.IP, generated+16)
				regs.set(rule.SP, madeSP)
				return u.Unwind(space, &regs, stack)
			}
			parsed := func(m *vmas.Mapping) func() bool {
				imagesOf(u).Open(1, m)
				return func() bool { return imagesOf(u).Lookup(1, m).Parse() == nil }
			}
			lane.Eventually(t, "the other file", parsed(space.Find(base+far)))
			if c.parsed {
				lane.Eventually(t, "the file", parsed(space.Find(base)))
				server.Be(t, fusetest.HangRead)
				// Nothing else asks for the code before.
				w, f := u.begin(space, stack), frame{pc: generated + 16, sp: madeSP, exact: true}
				w.push(&f, BySample)
				if w.resume(&f); len(w.ips) > 1 {
					t.Errorf("%#x", w.ips)
				}
			}
			if got := walk(); len(got.IPs) > 1 || got.End != NoCFI {
				t.Errorf("%#x, %v", got.IPs, got.End)
			}
			server.Be(t, fusetest.Answer)
			want := []uint64{generated + 16, alsoInStart}
			lane.Eventually(t, "a walk through the file that is there", func() bool { return slices.Equal(walk().IPs, want) })
		})
	}
}

// TestFileThatComesInAWalk walks from generated code whose caller is in a file that comes in the middle of
// the walk, at each time when it may: what was passed over before that may be the caller.
func TestFileThatComesInAWalk(t *testing.T) {
	t.Parallel()
	const program = `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call interpreter
in_start:
	call *%rax
also_in_start:
	nop
	.cfi_endproc
	.p2align 4
interpreter:
	.cfi_startproc
	.cfi_def_cfa_offset 48
	sub $40, %rsp
	nop
	add $40, %rsp
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`
	known, _, at := labelledProgram(t, program)
	other, _, _ := labelledProgram(t, program+"\t.ident \"another file\"\n")
	const (
		base, far = 0x400000, 0x10000000 // the file that comes, and the same code in another file beyond it
		generated = 0x5000_0000_0000
	)
	inStart, alsoInStart := at["in_start"], at["also_in_start"]
	calls := []uint64{1, alsoInStart, alsoInStart + far}
	hosts := []uint64{0, 0, 0, 0, 0, 0, inStart, 0, 0, 0, 0, 0, 0, inStart + far, 1}
	for _, c := range []struct {
		name   string
		opened fusetest.Mode
		stack  []uint64
		want   uint64
	}{
		{"caller", fusetest.HangRead, calls, alsoInStart},
		{"caller's code", fusetest.HangClose, calls, alsoInStart},
		{"host", fusetest.HangRead, hosts, inStart},
		{"host's code", fusetest.HangClose, hosts, inStart},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// walk has the file come in a wait, or some time behind its beginning.
			walk := func(wait int, inWait bool) (got Result, waits int) {
				server, space := lateFile(t, c.opened, known.Find(base), map[uint64]string{
					base + far: other.Find(base).File.Path,
					generated:  "//anon",
				})
				defer server.Be(t, fusetest.Answer)
				walking := false
				u := NewUnwinder(image.New(image.Config{
					Proc: "/proc", Hurried: true,
					Room: func() bool { return false }, // each question is waited for a little
					Waits: func() {
						if !walking {
							return
						}
						if waits++; waits == wait {
							server.Be(t, fusetest.Answer)
							if inWait {
								time.Sleep(100 * time.Millisecond) // until it is there
							}
						}
					},
				}))
				parsed := func(m *vmas.Mapping) func() bool {
					imagesOf(u).Open(1, m)
					return func() bool { return imagesOf(u).Lookup(1, m).Parse() == nil }
				}
				lane.Eventually(t, "the other file", parsed(space.Find(base+far)))
				if c.opened == fusetest.HangClose {
					lane.Eventually(t, "the file", parsed(space.Find(base)))
					server.Be(t, fusetest.HangRead)
				}
				var regs Regs
				regs.set(rule.IP, generated+16)
				regs.set(rule.SP, madeSP)
				walking = true
				got = u.Unwind(space, &regs, madeCopy(true, c.stack...))
				walking = false
				return got, waits
			}
			// On a busy machine it may come after the walk, each time.
			lane.Eventually(t, "a file that comes in the walk", func() bool {
				right := 0
				for n := 2; ; n++ {
					got, waits := walk(n/2, n%2 == 0)
					if waits < n/2 {
						return right > 0
					}
					switch {
					case slices.Equal(got.IPs, []uint64{generated + 16, c.want}):
						right++
					case len(got.IPs) > 1 || got.End == Root:
						t.Errorf("it came in wait %d: %#x, %v", n/2, got.IPs, got.End)
					}
				}
			})
		})
	}
}

// TestCallInLateCode asks about a return address before the code there is read, and again when it is.
func TestCallInLateCode(t *testing.T) {
	t.Parallel()
	const program = `
	.text
	.globl _start
_start:
	.cfi_startproc
	call _start
behind:
	nop
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`
	known, _, at := labelledProgram(t, program)
	server, space := lateFile(t, fusetest.HangClose, known.Find(0x400000), map[uint64]string{})
	defer server.Be(t, fusetest.Answer)
	u := NewUnwinder(image.New(image.Config{Proc: "/proc", Hurried: true}))
	m := space.Find(0x400000)
	imagesOf(u).Open(1, m)
	lane.Eventually(t, "the file", func() bool { return imagesOf(u).Lookup(1, m).Parse() == nil })
	server.Be(t, fusetest.HangRead)
	isCall := func() bool { return u.begin(space, nil).followsCall(at["behind"]) }
	if isCall() {
		t.Error("a call was seen in code that cannot be read")
	}
	server.Be(t, fusetest.Answer)
	lane.Eventually(t, "a call, once the code is there", isCall)
}

// lateFile maps the file of a mapping at the same place in process 1, on a server that is in a mode, and
// others beside it. With HangClose, nothing of the file stays in the page cache.
func lateFile(t *testing.T, mode fusetest.Mode, late *vmas.Mapping, others map[uint64]string) (
	*fusetest.Mount, *vmas.Space,
) {
	t.Helper()
	server := fusetest.Show(t, filepath.Dir(late.File.Path))
	server.Be(t, mode)
	table := vmas.NewTable("")
	table.Comm(1, 1, []byte("test"), true)
	others[late.Start] = filepath.Join(server.Dir, filepath.Base(late.File.Path))
	for addr, name := range others {
		table.Mmap(1, vmas.Map{Addr: addr, Len: late.End - late.Start, Prot: vmas.ProtExec | vmas.ProtRead,
			Name: []byte(name)})
	}
	return server, table.Space(1)
}
