package unwind

import (
	"debug/elf"
	"os"
	"testing"

	"unspool/testdata/programs"
	"unspool/unwind/image"
	"unspool/vmas"
)

// A goBinary is a Go program that is walked over, mapped as its file is.
type goBinary struct {
	t       *testing.T
	data    []byte
	file    contents
	symbols map[string]elf.Symbol
	space   *vmas.Space
	images  *image.Store
}

const goBinaryBase = 0x7f00_0000_0000

func openGoBinary(t *testing.T) *goBinary {
	t.Helper()
	name := programs.BuildGo(t, "package main\n\nfunc main() {}\n", []string{"CGO_ENABLED=0", "GOFLAGS="})
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	b := &goBinary{t: t, file: contentsOf(t, name), symbols: make(map[string]elf.Symbol)}
	if b.data, err = os.ReadFile(name); err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		b.symbols[s.Name] = s
	}
	b.space, b.images = asImage(t, name, goBinaryBase)
	return b
}

// function is where a function is mapped, and its code.
func (b *goBinary) function(name string) (at uint64, code []byte) {
	b.t.Helper()
	s := b.symbols[name]
	off, ok := b.file.offset(s.Value)
	if !ok {
		b.t.Fatalf("no %s", name)
	}
	return goBinaryBase + off, b.data[off:][:s.Size]
}
