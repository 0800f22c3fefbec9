package compare

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// framed has one function, whose frame pointer is set up and given up, and a second one that has it
// in its middle only. Each instruction that matters is a symbol.
const framed = `
	.text
	.globl framed, framed_up, framed_down, twice, twice_between, bare
	.type framed, @function
framed:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov %rsp, %rbp
	.cfi_def_cfa_register %rbp
framed_up:
	nop
	pop %rbp
	.cfi_def_cfa %rsp, 8
framed_down:
	ret
	.cfi_endproc
	.size framed, .-framed
	.type twice, @function
twice:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov %rsp, %rbp
	.cfi_remember_state
	.cfi_def_cfa_register %rbp
	pop %rbp
	.cfi_def_cfa %rsp, 8
	ret
twice_between:
	nop
	.cfi_restore_state
	.cfi_def_cfa_register %rbp
	pop %rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size twice, .-twice
	.type bare, @function
bare:
	.cfi_startproc
	ret
	.cfi_endproc
	.size bare, .-bare
`

// TestCauseAtAnAddress asks of each part of a function why its frame pointer does not lead to its caller.
func TestCauseAtAnAddress(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "framed.s"), filepath.Join(dir, "framed.so")
	if err := os.WriteFile(source, []byte(framed), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("gcc", "-shared", "-nostdlib", "-o", library, source).CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	address := addressesOf(t, library)
	sym := symbols.New(symbols.Options{})
	for _, c := range []struct {
		symbol string
		want   Cause
		words  string
	}{
		{"framed", Prologue, "prologue"},
		{"framed_up", Unexplained, "unexplained"},
		{"framed_down", Epilogue, "epilogue"},
		{"twice_between", ShrinkWrapped, "frame pointer on other paths only"},
		{"bare", NoFramePointer, "no frame pointer"},
	} {
		p := &profile.Profile{
			Images: []profile.Image{{Name: "framed.so", Path: library}},
			Frames: []profile.Frame{{Name: "main"}, {Name: c.symbol, PC: address[c.symbol]}},
			Nodes:  []profile.Node{{Parent: -1, Frame: -1}, {Parent: 0, Frame: 0}, {Parent: 1, Frame: 1}},
		}
		group := Group{Class: LeafCaller, DWARF: 2, Parted: 1, Lost: 1, Count: 3}
		comparison := &Comparison{DWARF: p, FP: p, Groups: []Group{group}}
		functions, _ := comparison.Blames(sym)
		if len(functions) != 1 || functions[0].Cause != c.want || functions[0].Cause.String() != c.words {
			t.Errorf("at %s (%#x): %+v, want %q", c.symbol, address[c.symbol], functions, c.words)
		}
	}
}

// addressesOf are the addresses of the symbols of a file.
func addressesOf(t *testing.T, path string) map[string]uint64 {
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
	address := make(map[string]uint64)
	for _, s := range symbols {
		address[s.Name] = s.Value
	}
	return address
}
