package kallsyms

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReader(t *testing.T) {
	r := NewReader(strings.NewReader("ffffffff81000000 T _text\n" +
		"no symbol\n" +
		"\n" +
		"ffffffff81000000 \n" +
		"ffffffff81000000 T \n" +
		"ffffffff81000000 TT _text\n" +
		"0000000000000000 t hidden\n" +
		"what? W weak\n" +
		"ffffffffc0a01000 t xfs_bmap\t[xfs]\n" +
		"ffffffffc0a02000 t last"))
	for _, want := range []struct {
		address      uint64
		kind         byte
		name, module string
		bad          bool
	}{
		{0xffffffff81000000, 'T', "_text", "", false},
		{bad: true}, {bad: true}, {bad: true}, {bad: true}, {bad: true},
		{0, 't', "hidden", "", false},
		{0, 'W', "weak", "", true},
		{0xffffffffc0a01000, 't', "xfs_bmap", "[xfs]", false},
		{0xffffffffc0a02000, 't', "last", "", false},
	} {
		if !r.Next() {
			t.Fatalf("no %s: %v", want.name, r.Err())
		}
		address, err := r.Address()
		if address != want.address || (err != nil) != want.bad || r.Type != want.kind ||
			string(r.Name) != want.name || string(r.Module) != want.module {
			t.Errorf("%#x %v %c %q %q, want %+v", address, err, r.Type, r.Name, r.Module, want)
		}
	}
	if r.Next() || r.Err() != nil {
		t.Errorf("behind the last: %q, %v", r.Name, r.Err())
	}
}

func TestReaderOfAFailingFile(t *testing.T) {
	list := io.MultiReader(strings.NewReader("1 T a\n"), iotest.ErrReader(io.ErrUnexpectedEOF))
	r := NewReader(list)
	if !r.Next() || r.Next() || !errors.Is(r.Err(), io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", r.Name, r.Err())
	}
}

func TestReadingAllocatesNothing(t *testing.T) {
	r := NewReader(strings.NewReader(strings.Repeat("ffffffff81000000 T _text\n", 2000)))
	r.Next() // the scanner's buffer
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := r.Address(); !r.Next() || err != nil {
			t.Fatal("the list has ended")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a symbol", n)
	}
}
