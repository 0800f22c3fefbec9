package unwind

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unspool/dwarfcfi"
	"unspool/dwarfcfi/elf"
	"unspool/testdata/programs"
	"unspool/unwind/image"
	"unspool/unwind/rule"
	"unspool/vmas"
)

// asImage opens a file as if it were mapped whole at base.
func asImage(t testing.TB, path string, base uint64) (*vmas.Space, *image.Store) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	table := vmas.NewTable("")
	table.Comm(1, 1, []byte("test"), true)
	table.Mmap(1, vmas.Map{
		Addr: base, Len: uint64(info.Size()+4095) &^ 4095, Prot: vmas.ProtExec | vmas.ProtRead, Name: []byte(path),
	})
	return table.Space(1), image.NewStore("/proc")
}

// TestFastRulesAgreeWithGeneralEvaluator compares the two evaluators on
// every row of the system's libraries, on random registers and a stack copy
// whose words are addresses within it, so that what is read can be followed.
func TestFastRulesAgreeWithGeneralEvaluator(t *testing.T) {
	const base, size = 0x7ffc_0000_0000, 1 << 16
	rng := rand.New(rand.NewPCG(1, 2))
	stack := Stack{Base: base, Data: make([]byte, size), Asked: size}
	for i := 0; i < size; i += 8 {
		binary.LittleEndian.PutUint64(stack.Data[i:], base+rng.Uint64N(size/8)*8)
	}
	for _, path := range programs.System(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			space, images := asImage(t, path, 0x7f00_0000_0000)
			m := firstMapping(space)
			im := images.Lookup(1, m)
			p := placeIn(im, m)
			if err := im.Parse(); err != nil {
				t.Fatal(err)
			}
			file := contentsOf(t, path)
			fast, slow := NewUnwinder(images), NewUnwinder(images)
			slow.slow = true
			kinds := make(map[rule.Rule]int)
			for fde, err := range file.cfi.FDEs() {
				if err != nil {
					t.Fatal(err)
				}
				for row, err := range fde.Rows() {
					if err != nil {
						t.Fatal(err)
					}
					off, ok := file.offset(row.Start)
					if !ok {
						continue
					}
					var regs Regs
					for n := range regs.Value {
						regs.set(n, base+rng.Uint64N(size/16)*8)
					}
					pc := m.Start + off
					regs.set(rule.IP, pc)
					regs.set(rule.SP, base)
					kinds[p.rule(pc).Kind()]++
					a, aend := oneStep(fast, space, &regs, &stack)
					b, bend := oneStep(slow, space, &regs, &stack)
					if a != b || aend != bend {
						t.Fatalf("%#x: fast %+v %v, general %+v %v", row.Start, a, aend, b, bend)
					}
				}
			}
			t.Logf("rows by rule: %v from SP, %v from BP, %v realigned, %v signal frame, %v end, %v local, %v general",
				kinds[rule.FromSP], kinds[rule.FromBP], kinds[rule.Realigned], kinds[rule.Sigframe],
				kinds[rule.EndOfStack], kinds[rule.Local], kinds[rule.General])
			if kinds[rule.FromSP] == 0 {
				t.Error("no row got a fast rule")
			}
		})
	}
}

// contents are what a test reads from an ELF file by itself.
type contents struct {
	*elf.Layout
	cfi *dwarfcfi.Table
}

func contentsOf(t testing.TB, path string) contents {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	c := contents{}
	if c.Layout, err = elf.ReadLayout(f, info.Size()); err != nil {
		t.Fatal(err)
	}
	sections, err := dwarfcfi.ReadSections(f, c.Layout)
	if err != nil {
		t.Fatal(err)
	}
	if c.cfi, err = dwarfcfi.New(sections); err != nil {
		t.Fatal(err)
	}
	return c
}

// offset is where the file has what is at an address of the image.
func (c contents) offset(addr uint64) (uint64, bool) {
	for _, l := range c.Loads {
		if addr >= l.Vaddr && addr-l.Vaddr < l.Filesz {
			return addr - l.Vaddr + l.Offset, true
		}
	}
	return 0, false
}

// oneStep takes the first step of a walk.
func oneStep(u *Unwinder, space *vmas.Space, regs *Regs, stack *Stack) (frame, Reason) {
	f := frame{pc: regs.Value[rule.IP], sp: regs.Value[rule.SP], bp: regs.Value[rule.BP], exact: true}
	w := u.begin(space, stack)
	w.push(&f, BySample)
	w.regs = checkpoint{exact: true, regs: *regs}
	var p place
	w.locate(&p, f.pc)
	next, _, end := w.step(&p, &f)
	if end != stepped {
		next = frame{}
	}
	return next, end
}

// TestStackOfWords walks a stack that the reader can check by eye: main,
// which made a frame with a frame pointer, called work, which did not.
func TestStackOfWords(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped for want of gcc")
	}
	asm := filepath.Join(t.TempDir(), "words.s")
	prog := strings.TrimSuffix(asm, ".s")
	const source = `
	.text
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call main
	nop
	.cfi_endproc
main:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset rbp, -16
	mov %rsp, %rbp
	.cfi_def_cfa_register rbp
	call work
	pop %rbp
	.cfi_def_cfa rsp, 8
	ret
	.cfi_endproc
work:
	.cfi_startproc
	sub $16, %rsp
	.cfi_def_cfa_offset 24
	nop
	add $16, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.section .note.GNU-stack,"",@progbits
`
	if err := os.WriteFile(asm, []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-nostdlib", "-static", "-Wl,--eh-frame-hdr", "-o", prog,
		asm).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	space, images := asImage(t, prog, 0x400000)
	m := firstMapping(space)
	file := contentsOf(t, prog)
	var start uint64
	for fde := range file.cfi.FDEs() {
		if start == 0 || fde.Start < start {
			start = fde.Start
		}
	}
	off, ok := file.offset(start)
	if !ok {
		t.Fatal("no offset for _start")
	}
	text := m.Start + off
	inStart, inMain, inWork := text+5, text+6+4+5, text+6+11+4

	const sp = 0x7ffc_0000_1000
	words := []uint64{
		0, 0, // work's locals
		inMain,  // where work returns to
		0,       // main's saved RBP
		inStart, // where main returns to
		1,       // argc
	}
	data := make([]byte, 0, 8*len(words))
	for _, w := range words {
		data = binary.LittleEndian.AppendUint64(data, w)
	}
	var regs Regs
	regs.set(rule.IP, inWork)
	regs.set(rule.SP, sp)
	regs.set(rule.BP, sp+24)

	u := NewUnwinder(images)
	for _, c := range []struct {
		name  string
		words int
		want  []uint64
		end   Reason
	}{
		{"whole stack", 6, []uint64{inWork, inMain, inStart}, Root},
		{"cut below main's return address", 4, []uint64{inWork, inMain}, DumpTooShort},
		{"cut below work's return address", 2, []uint64{inWork}, DumpTooShort},
		{"nothing", 0, []uint64{inWork}, DumpTooShort},
	} {
		stack := Stack{Base: sp, Data: data[:8*c.words], Asked: uint64(8 * c.words)}
		got := u.Unwind(space, &regs, &stack)
		if !equal(got.IPs, c.want) || got.End != c.end {
			t.Errorf("%s: %#x %v, want %#x %v", c.name, got.IPs, got.End, c.want, c.end)
		}
	}

	stack := Stack{Base: sp, Data: data}
	if n := testing.AllocsPerRun(100, func() { u.Unwind(space, &regs, &stack) }); n != 0 {
		t.Errorf("%v allocations a sample", n)
	}
	u.MaxFrames = 2
	if got := u.Unwind(space, &regs, &stack); got.End != DepthLimit || len(got.IPs) != 2 {
		t.Errorf("limit of 2 frames: %d frames, %v", len(got.IPs), got.End)
	}
}

func equal(a, b []uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestEveryReasonHasNameAndWords(t *testing.T) {
	said := map[string]Reason{}
	for r := range Reason(NumReasons) {
		for _, text := range []string{r.String(), r.Words()} {
			if other, twice := said[text]; twice && other != r || text == "" {
				t.Errorf("reason %d: %q, as reason %d has", r, text, other)
			}
			said[text] = r
		}
	}
	if r := Reason(NumReasons); r.String() != "unknown" || r.Words() != "unknown" || r.MayBeBroken() {
		t.Errorf("an unknown reason: %q, %q, %v", r, r.Words(), r.MayBeBroken())
	}
}

func TestSplice(t *testing.T) {
	const kernel, guest = ^uint64(127), ^uint64(2047) // PERF_CONTEXT_KERNEL, _GUEST
	for _, c := range []struct {
		name        string
		chain, user []uint64
		want        []uint64
	}{
		{"user only", nil, []uint64{1, 2}, []uint64{contextUser, 1, 2}},
		{"kernel above user", []uint64{kernel, 8, 9}, []uint64{1}, []uint64{kernel, 8, 9, contextUser, 1}},
		{"kernel only", []uint64{kernel, 8}, nil, []uint64{kernel, 8}},
		{"the kernel's own user part", []uint64{kernel, 8, contextUser, 7, 7}, []uint64{1},
			[]uint64{kernel, 8, contextUser, 1}},
		{"stack words that look like markers",
			[]uint64{kernel, 8, contextUser, 7, ^uint64(0), 7, kernel, 7, contextUser, 7},
			[]uint64{1}, []uint64{kernel, 8, contextUser, 1}},
		{"user part without an unwound one", []uint64{kernel, 8, contextUser, 7}, nil, []uint64{kernel, 8}},
		{"deferred user part", []uint64{kernel, 8, contextDeferred, 5}, []uint64{1},
			[]uint64{kernel, 8, contextUser, 1}},
		{"guest's part", []uint64{guest, 3, contextUser, 7}, []uint64{1}, []uint64{guest, 3, contextUser, 1}},
		{"cut off behind the marker", []uint64{kernel, 8, contextUser}, []uint64{1},
			[]uint64{kernel, 8, contextUser, 1}},
		{"nothing", nil, nil, nil},
	} {
		got := Splice(nil, len(c.chain), func(i int) uint64 { return c.chain[i] }, c.user)
		if !equal(got, c.want) {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}

func TestUnreadableFileIsNamedOnce(t *testing.T) {
	table := vmas.NewTable("")
	table.Comm(1, 1, []byte("test"), true)
	table.Mmap(1, vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte("/no/such/file")})
	var failed []string
	hooks := image.Hooks{Failed: func(path string, err error) {
		if !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		failed = append(failed, path)
	}}
	images := image.New(image.Config{Proc: t.TempDir(), Hooks: hooks})
	u := NewUnwinder(images)
	var regs Regs
	regs.set(rule.IP, 0x1234)
	regs.set(rule.SP, 0x7000)
	for range 3 {
		if got := u.Unwind(table.Space(1), &regs, &Stack{Base: 0x7000}); got.End != NoImage || len(got.IPs) != 1 {
			t.Errorf("%d frames, %v", len(got.IPs), got.End)
		}
	}
	if len(failed) != 1 {
		t.Errorf("named %d times: %v", len(failed), failed)
	}
}

// sources are how the frames of a walk were found.
func sources(r Result) []Source {
	var all []Source
	for _, f := range r.Frames {
		all = append(all, f.Source)
	}
	return all
}

// imagesOf are the images of an Unwinder.
func imagesOf(u *Unwinder) *image.Store { return u.modules.(*image.Store) }

// placeIn is a place in an image that is mapped at m.
func placeIn(im *image.Image, m *vmas.Mapping) place {
	return place{m: m, module: im, rules: im.Rules(), bias: m.Start - m.Offset}
}

func firstMapping(s *vmas.Space) *vmas.Mapping {
	for m := range s.Mappings() {
		return m
	}
	return nil
}
