package vdso

import (
	"bytes"
	std "debug/elf"
	"testing"

	"unspool/dwarfcfi/elf"
)

// TestOwn32IsAnELFImage asks the kernel for the vDSO of 32-bit processes.
func TestOwn32IsAnELFImage(t *testing.T) {
	image, err := Own32()
	if err != nil {
		t.Skip(err)
	}
	layout, err := elf.ReadLayout(bytes.NewReader(image), int64(len(image)))
	if err != nil || layout.Machine != elf.EM_386 || len(layout.Text) == 0 || len(layout.BuildID) == 0 {
		t.Errorf("%+v, %v", layout, err)
	}
	if again, err := Own32(); err != nil || &again[0] != &image[0] {
		t.Errorf("read again: %v", err)
	}
}

// TestProgram32IsOneSegment reads the headers of the program that asks for the vDSO.
func TestProgram32IsOneSegment(t *testing.T) {
	program := program32()
	f, err := std.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	size := uint64(len(program))
	want := std.ProgHeader{Type: std.PT_LOAD, Flags: std.PF_R | std.PF_X, Vaddr: base, Paddr: base, Filesz: size,
		Memsz: size, Align: 4096}
	if len(f.Progs) != 1 {
		t.Fatalf("%d segments", len(f.Progs))
	}
	if got := f.Progs[0].ProgHeader; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if at := f.Entry - base; f.Machine != std.EM_386 || at >= size || !bytes.Equal(program[at:], code32) {
		t.Errorf("the code does not begin at %#x", f.Entry)
	}
}
