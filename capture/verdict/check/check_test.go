package check

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/recorded"
	"unspool/capture/session"
	"unspool/capture/symbols"
	"unspool/testdata/programs"
	"unspool/unwind"
)

// recordingOf is a recording of the page faults of a program, made by perf with raw stacks.
func recordingOf(t *testing.T, command ...string) string {
	t.Helper()
	perf, err := exec.LookPath("perf")
	if err != nil {
		t.Skip("skipped for want of perf")
	}
	path := filepath.Join(t.TempDir(), "perf.data")
	args := append([]string{"record", "-q", "-B", "-N", "--call-graph", "dwarf,8192", "-o", path}, programs.Faults()...)
	if os.Geteuid() == 0 {
		args = append(args, "-m", "16M") // room for all of the samples
	}
	args = append(append(args, "--"), command...)
	if out, err := exec.Command(perf, args...).CombinedOutput(); err != nil {
		t.Fatalf("perf: %v\n%s", err, out)
	}
	return path
}

func walk(t *testing.T, path string, to session.Watcher) {
	t.Helper()
	o := recorded.Options{Input: path, MaxStack: 512}
	if _, err := recorded.Walk(context.Background(), o, to); err != nil {
		t.Fatal(err)
	}
}

// TestStacksOfProgramsAreRight checks what the walk makes of programs that meet every exception.
func TestStacksOfProgramsAreRight(t *testing.T) {
	t.Parallel()
	for _, p := range programs.Chains() {
		switch p.String() {
		case "signal-other", "fault", "realign", "pulse", "vdso", "alloca", "backtrace",
			"noreturn", "terminate", "plt":
			continue // what stands on these stacks stands on others', too
		}
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			c := New(symbols.New(symbols.Options{}))
			walk(t, recordingOf(t, append([]string{programs.Build(t, p.Name), programs.Times(60)}, p.Args...)...), c)
			r := c.Result(p.Name, 0, nil)
			all := r.All()
			if c.Stacks < 60 || all.Wrong() > 0 || all.Checked() < all.Edges()*9/10 {
				r.WriteText(os.Stderr)
				t.Errorf("%d stacks, %+v", c.Stacks, all)
			}
		})
	}
}

// TestJumpsByATableIntoAnotherPart checks a function that gets to a part of its own by a table, as those do
// that BOLT has split.
func TestJumpsByATableIntoAnotherPart(t *testing.T) {
	t.Parallel()
	for part, wrong := range map[string]bool{"work.warm": false, "work.cold": false, "other": true} {
		c := New(symbols.New(symbols.Options{}))
		walk(t, recordingOf(t, assembled(t, `
	.text
	.globl _start
	.type _start, @function
	.type work, @function
	.type `+part+`, @function
_start:
	.cfi_startproc
	.cfi_undefined rip
	call work
	hlt
	.cfi_endproc
	.size _start, .-_start
	.p2align 4
work:
	.cfi_startproc
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset rbx, -16
	mov table(%rip), %rax
	jmp *%rax
	.cfi_endproc
	.size work, .-work
	.p2align 4
`+part+`:
	.cfi_startproc
	.cfi_def_cfa_offset 16
	.cfi_offset rbx, -16
	lea pages(%rip), %rax
	mov $60, %ecx
1:	movb $1, (%rax)
	add $4096, %rax
	dec %ecx
	jnz 1b
	mov $60, %eax
	xor %edi, %edi
	syscall
	.cfi_endproc
	.size `+part+`, .-`+part+`
	.data
table:
	.quad `+part+`
	.lcomm pages, 61*4096
	.section .note.GNU-stack,"",@progbits
`)), c)
		all := c.Result(part, 0, nil).All()
		if c.Stacks < 50 || (all.Wrong() > 0) != wrong {
			t.Errorf("%s: %d stacks, %+v", part, c.Stacks, all)
		}
	}
}

// assembled is a program in assembly.
func assembled(t *testing.T, source string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped for want of gcc")
	}
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path+".s", []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"-nostdlib", "-static", "-Wl,--eh-frame-hdr", "-o", path, path + ".s"}
	if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// A change makes a stack, leaf first, one that cannot be, at the i-th caller.
type change struct {
	name  string
	apply func(ips []uint64, i int) []uint64
}

var changes = []change{
	{"a frame is dropped", func(ips []uint64, i int) []uint64 { return slices.Delete(ips, i, i+1) }},
	{"two callers are swapped", func(ips []uint64, i int) []uint64 {
		ips[i], ips[i+1] = ips[i+1], ips[i]
		return ips
	}},
	{"an address is one byte too high", func(ips []uint64, i int) []uint64 {
		ips[i]++
		return ips
	}},
	{"an address is one byte too low", func(ips []uint64, i int) []uint64 {
		ips[i]--
		return ips
	}},
}

// changing hands a checker stacks that are changed at each of their callers, and counts which it finds.
type changing struct {
	*Checker
	change         change
	stacks, missed int
}

func (c *changing) WriteSample(w *perfdata.Walked) error {
	user := userPart(w.Chain)
	space := c.table.Space(w.Sample.PID)
	if space == nil || w.Result == nil || w.Result.End != unwind.Root {
		return nil
	}
	for i := 1; i < len(user)-1; i++ {
		before := c.All()
		c.stack(space, c.change.apply(slices.Clone(user), i), nil)
		after := c.All()
		c.stacks++
		if after.Wrong() == before.Wrong() {
			c.missed++
		}
	}
	return nil
}

// TestChangedFramesAreFound changes the frames of a recording on purpose. Calls through pointers and of
// functions that jump through them could have led elsewhere, so that not every frame is missed.
func TestChangedFramesAreFound(t *testing.T) {
	t.Parallel()
	path := recordingOf(t, programs.Build(t, "plain"), programs.Times(60))
	for i, ch := range changes {
		c := &changing{Checker: New(symbols.New(symbols.Options{})), change: ch}
		walk(t, path, c)
		t.Logf("%s: %d of %d changed stacks are not found", ch.name, c.missed, c.stacks)
		most := c.stacks / 100
		if i == 0 {
			most = c.stacks / 2
		}
		if c.stacks < 100 || c.missed > most {
			t.Errorf("%s: %d of %d changed stacks are not found", ch.name, c.missed, c.stacks)
		}
	}
}
