package main

import (
	"debug/elf"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ianlancetaylor/demangle"
	"golang.org/x/arch/x86/x86asm"

	"unspool/capture/profile"
	"unspool/testdata/programs"
)

// A place is an instruction at which a program is sampled each time it is reached.
type place struct {
	addr     uint64
	function string // that it is in, "" in a PLT or a signal trampoline, of which the chain says nothing
	first    bool   // of its function
}

// TestChainsAtInstructions samples programs that print their call chain at the instructions that move SP or BP, behind
// these, at the first ones of their functions, in their PLTs, and in the trampoline by which a signal handler returns.
// Each stack is complete, and is what the chain says up to the sampled function.
//
// A place is left out if a function before has one like it: the same kind of instruction behind the same kind.
func TestChainsAtInstructions(t *testing.T) {
	t.Parallel()
	needBreakpoints(t)
	seen, recordings := make(map[string]bool), 0
	for _, c := range []struct {
		program string
		flags   []string
	}{
		{"pulse", nil},
		{"plain", nil},
		{"tail", nil},
		{"longjmp", nil},
		{"alloca", nil},
		{"realign", nil},
		{"exception", nil},
		{"plt", []string{"-Wl,-z,lazy"}},
		{"plt", []string{"-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,lazy"}},
		{"lazy", nil},
		{"signal", []string{"-static"}},
	} {
		p := programs.Program{Name: c.program}
		path := programs.Build(t, c.program, append([]string{"-no-pie", "-fno-pie"}, c.flags...)...)
		chain := programs.StartCounted(t, path, 1).Chain
		places := placesIn(t, path, chain, c.program == "plt" || c.program == "lazy", seen)
		recordings += (len(places) + 3) / 4
		t.Run(strings.ReplaceAll(strings.Join(append([]string{p.Name}, c.flags...), " "), ",", " "), func(t *testing.T) {
			t.Parallel()
			for four := range slices.Chunk(places, 4) {
				sampleAt(t, path, chain, four)
			}
		})
	}
	t.Logf("%d recordings", recordings)
}

// sampleAt records a program at up to four places, of as many as there are registers for them.
func sampleAt(t *testing.T, path string, chain programs.Chain, at []place) {
	t.Helper()
	var events []string
	for _, p := range at {
		events = append(events, fmt.Sprintf("mem:%#x:x:u", p.addr))
	}
	r := record(t, "--stack-size", "8192", "-e", strings.Join(events, ","), "--", path, programs.Times(3))
	own := ownProfile(t, r.path)
	hits := make([]int, len(at))
	for _, s := range own.Samples {
		p := at[s.Event]
		hits[s.Event] += int(s.Count)
		stack := userStack(own, s.Node)
		if pc := own.Frames[own.Nodes[s.Node].Frame].PC; pc != p.addr {
			t.Errorf("%#x: a sample is at %#x", p.addr, pc)
		}
		called := stack
		if p.function == "" {
			called = stack[1:]
		} else if function(stack[0]) != p.function {
			t.Errorf("%#x: a sample is in %s, not in %s", p.addr, stack[0], p.function)
		}
		if err := chain.Match(called); err != nil || s.End != profile.Complete {
			t.Errorf("%#x: %d samples, ended %v, %v: %s", p.addr, s.Count, s.End, err, describe(own, s.Node))
		}
	}
	for i, p := range at {
		if p.first && hits[i] == 0 {
			t.Errorf("%s at %#x was not sampled", p.function, p.addr)
		}
	}
	if lost := r.stats.Samples.Lost; lost > 0 {
		t.Errorf("%d samples lost", lost)
	}
}

// placesIn finds the places in a program's file.
func placesIn(t *testing.T, path string, chain programs.Chain, throughPLT bool, seen map[string]bool) (places []place) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	var plt []uint64 // entries that the chain's functions call
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 && s.Name != "__restore_rt" {
			continue
		}
		name := demangle.Filter(s.Name, demangle.NoParams)
		if name == "__restore_rt" {
			code := codeAt(t, f, s.Value, 9)
			for _, in := range decode(code, s.Value)[:2] { // mov $15, %rax; syscall
				places = append(places, place{addr: in.addr})
			}
			continue
		}
		if strings.Contains(name, ".") || !slices.Contains(chain.Frames, name) {
			continue
		}
		found, calls := placesInFunction(decode(codeAt(t, f, s.Value, s.Size), s.Value), name)
		for _, p := range found {
			if seen[p.kind] && !p.first || slices.ContainsFunc(places, func(o place) bool { return o.addr == p.addr }) {
				continue
			}
			places = append(places, p.place)
		}
		for _, p := range found {
			seen[p.kind] = true
		}
		plt = append(plt, calls...)
	}
	if !throughPLT {
		return places
	}
	for _, name := range []string{".plt", ".plt.sec"} {
		section := f.Section(name)
		if section == nil {
			continue
		}
		var entries []uint64
		for _, to := range plt {
			if to >= section.Addr && to < section.Addr+section.Size && !slices.Contains(entries, to) {
				entries = append(entries, to)
			}
		}
		if name == ".plt" { // the one that calls the dynamic linker, and one that jumps to it
			entries = slices.Compact(append([]uint64{section.Addr, section.Addr + 16}, entries...))
			if f.Section(".plt.sec") != nil {
				// The check of edges does not see how calls by the other section lead to the first one.
				entries = entries[1:]
			}
		}
		for _, entry := range entries[:min(2, len(entries))] {
			for _, in := range decode(codeAt(t, f, entry, 16), entry) {
				if in.Op != x86asm.NOP || in.entry {
					places = append(places, place{addr: in.addr})
				}
			}
		}
	}
	return places
}

// An instruction is one with its address.
type instruction struct {
	x86asm.Inst
	addr  uint64
	entry bool // ENDBR64
}

// decode decodes code up to the first instruction that the decoder does not know.
func decode(code []byte, addr uint64) (found []instruction) {
	for len(code) > 0 {
		in := instruction{addr: addr}
		if strings.HasPrefix(string(code), "\xf3\x0f\x1e\xfa") {
			in.Inst, in.entry = x86asm.Inst{Op: x86asm.NOP, Len: 4}, true
		} else {
			var err error
			if in.Inst, err = x86asm.Decode(code, 64); err != nil {
				break
			}
		}
		found = append(found, in)
		code, addr = code[in.Len:], addr+uint64(in.Len)
	}
	return found
}

// movesStack reports whether an instruction changes SP or BP, other than for a call.
func (in instruction) movesStack() bool {
	switch in.Op {
	case x86asm.PUSH, x86asm.POP, x86asm.LEAVE, x86asm.RET:
		return true
	case x86asm.CMP, x86asm.TEST, x86asm.CALL:
		return false
	}
	return in.Args[0] == x86asm.RSP || in.Args[0] == x86asm.RBP
}

// A placeOfKind is a place with the kind of its instruction and of the last one before that moves the stack.
type placeOfKind struct {
	place
	kind string
}

// placesInFunction finds the places in a function, whose entry is the first, and what the function calls.
func placesInFunction(code []instruction, name string) (found []placeOfKind, calls []uint64) {
	last := ""
	for i, in := range code {
		if i == 0 || in.movesStack() || code[i-1].movesStack() && code[i-1].Op != x86asm.RET && in.Op != x86asm.NOP {
			found = append(found, placeOfKind{place{in.addr, name, i == 0}, last + "; " + in.kind()})
		}
		if in.movesStack() {
			last = in.kind()
		}
		if to, ok := in.Args[0].(x86asm.Rel); ok && (in.Op == x86asm.CALL || in.Op == x86asm.JMP) {
			calls = append(calls, in.addr+uint64(in.Len)+uint64(int64(to)))
		}
	}
	return found, calls
}

// kind is the instruction without numbers, if it moves the stack.
func (in instruction) kind() string {
	if !in.movesStack() {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, x86asm.GNUSyntax(in.Inst, 0, nil))
}

// codeAt reads code of an ELF file.
func codeAt(t *testing.T, f *elf.File, addr, size uint64) []byte {
	t.Helper()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr+size <= p.Vaddr+p.Filesz {
			code := make([]byte, size)
			if _, err := p.ReadAt(code, int64(addr-p.Vaddr)); err != nil {
				t.Fatal(err)
			}
			return code
		}
	}
	t.Fatalf("no code at %#x", addr)
	return nil
}
