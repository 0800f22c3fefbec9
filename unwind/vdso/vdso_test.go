package vdso

import (
	"bytes"
	"testing"

	"unspool/dwarfcfi/elf"
)

func TestOwnIsAnELFImage(t *testing.T) {
	image, err := Own()
	if err != nil {
		t.Skip(err)
	}
	layout, err := elf.ReadLayout(bytes.NewReader(image), int64(len(image)))
	if err != nil || len(layout.Loads) == 0 || len(layout.Text) == 0 || len(layout.BuildID) == 0 {
		t.Errorf("%+v, %v", layout, err)
	}
	again, err := Own()
	if err != nil || &again[0] != &image[0] {
		t.Errorf("read again: %v", err)
	}
}
