package vdso

import (
	"bytes"
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
