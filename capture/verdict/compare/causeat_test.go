package compare

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
	"unspool/capture/symbols"
	"unspool/vmas"
)

// framed has one function that sets up a frame pointer and restores the caller's, and a second one with a
// frame pointer in its middle only. Each instruction that matters has a symbol.
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

// TestCauseAtAnAddress asks at each part of a function why frame pointers miss its caller there.
func TestCauseAtAnAddress(t *testing.T) {
	library := buildFramed(t)
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
		p := profiletest.New(&profile.Profile{
			Images: []profile.Image{{Name: "framed.so", Path: library}},
			Frames: []profile.Frame{{Name: "main"}, {Name: c.symbol, PC: address[c.symbol]}},
		})
		group := PairGroup{Class: LeafCaller, DWARF: p.Stack(0, 1), Parted: 1, Missed: 1, Count: 3}
		comparison := &Comparison{DWARF: p.Profile, FP: p.Profile, Groups: []PairGroup{group}}
		functions, _ := comparison.Blames(sym)
		if len(functions) != 1 || functions[0].Cause != c.want || functions[0].Cause.String() != c.words {
			t.Errorf("at %s (%#x): %+v, want %q", c.symbol, address[c.symbol], functions, c.words)
		}
	}
}

// buildFramed builds framed.so, which has no build ID.
func buildFramed(t *testing.T) (library string) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "framed.s"), filepath.Join(dir, "framed.so")
	if err := os.WriteFile(source, []byte(framed), 0o600); err != nil {
		t.Fatal(err)
	}
	gcc := exec.Command("gcc", "-shared", "-nostdlib", "-Wl,--build-id=none", "-o", library, source)
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return library
}

// TestFileReplacedSinceTheRecording replaces a mapped file that has no build ID by another one: the CFI of
// the new file must give no causes and no flaws. That of the mapped file still does.
func TestFileReplacedSinceTheRecording(t *testing.T) {
	library := buildFramed(t)
	pc := addressesOf(t, library)["framed"]
	const uncovered = 0x10 // in the ELF header
	for _, c := range []struct {
		name     string
		inode    uint64 // added to the file's
		cause    Cause
		findings int
	}{
		{"in its place", 0, Prologue, 1},
		{"replaced", 1, Unexplained, 0},
	} {
		var st unix.Stat_t
		if err := unix.Stat(library, &st); err != nil {
			t.Fatal(err)
		}
		mapped := vmas.FileID{Inode: st.Ino + c.inode}
		p := profiletest.New(&profile.Profile{
			Images: []profile.Image{{Name: "framed.so", Path: library, File: mapped}},
			Frames: []profile.Frame{{Name: "main", PC: uncovered}, {Name: "framed", PC: pc}},
			Events: []profile.Event{{Name: "cycles"}},
		})
		p.Add(profile.Thread{PID: 1, TID: 1}, 0, 3, 0, 1)
		group := PairGroup{Class: LeafCaller, DWARF: p.Stack(0, 1), Parted: 1, Missed: 1, Count: 3}
		comparison := &Comparison{DWARF: p.Profile, FP: p.Profile, Groups: []PairGroup{group}}
		sym := symbols.New(symbols.Options{})
		functions, _ := comparison.Blames(sym)
		if len(functions) != 1 || functions[0].Cause != c.cause {
			t.Errorf("%s: %+v, want %v", c.name, functions, c.cause)
		}
		if findings := comparison.Lint(sym); len(findings) != c.findings {
			t.Errorf("%s: flaws %+v, want %d", c.name, findings, c.findings)
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
