package gotab

import (
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"

	"unspool/testdata/costs"

	"unspool/testdata/inputs"
)

// linesBytes is a table of Go 1.20 or later of a function f, of 16 bytes at 0x10: from line 11 on of f.go, with g of
// line 22 of g.go inlined in its second half; and what is inlined in it. f begins in line 10, g in line 20.
func linesBytes() (table, inlined []byte) {
	le := binary.LittleEndian
	const names, files = "f\x00g\x00", "f.go\x00g.go\x00"
	units := le.AppendUint32(le.AppendUint32(nil, 0), 5)
	// Pairs of the value's change, times two, from -1 on, and of the length.
	values := []byte{0, 2, 8, 2, 8, 0 /* files */, 24, 8, 22, 8, 0 /* lines */, 0, 8, 2, 8, 0 /* inlined */}
	table = le.AppendUint64(nil, uint64(go120)|1<<48|8<<56)
	at := uint64(72)
	for _, word := range []uint64{1, 2, 0, at, at + 4, at + 12, at + 22, at + 38} {
		table = le.AppendUint64(table, word)
	}
	table = slices.Concat(table, []byte(names), units, []byte(files), values)
	for _, word := range []uint32{0x10, 12, 0x20 /* f: */, 0x10, 0, 0, 0, 0, 1, 6, 3, 0, 10, 4 << 24,
		/* pcdata: */ 0, 0, 11 /* funcdata: */, noData, noData, noData, 16} {
		table = le.AppendUint32(table, word)
	}
	inlined = make([]byte, 16)
	for _, word := range []uint32{0, 2, 4, 20} { // g, called at f+4
		inlined = le.AppendUint32(inlined, word)
	}
	return table, inlined
}

func reader(b []byte) Reader {
	return func(offset, size uint64) ([]byte, error) {
		if offset > uint64(len(b)) || size > uint64(len(b))-offset {
			return nil, io.ErrUnexpectedEOF
		}
		return b[offset:][:size], nil
	}
}

// namesOf is ReadNames without a file.
func namesOf(b []byte) (*NameTable, error) {
	h, err := readHeader(b[:min(len(b), maxHeader)], uint64(len(b)), binary.LittleEndian)
	if err != nil {
		return nil, err
	}
	if h.names > h.namesEnd || h.namesEnd > uint64(len(b)) {
		return nil, io.ErrUnexpectedEOF
	}
	n := &NameTable{header: h, strings: b[h.names:h.namesEnd]}
	n.functions, err = newFunctions(&h, binary.LittleEndian, b[h.funcs:], nil)
	return n, err
}

func TestLines(t *testing.T) {
	table, inlined := linesBytes()
	f := Frame{"f", "f.go", 11, 10}
	for _, c := range []struct {
		name    string
		at      uint64
		inlined Reader
		want    []Frame
	}{
		{"before", 0xf, reader(inlined), nil},
		{"not inlined", 0x17, reader(inlined), []Frame{f}},
		{"inlined", 0x18, reader(inlined), []Frame{{"g", "g.go", 22, 20}, f}},
		{"behind", 0x20, reader(inlined), nil},
		{"without what is inlined", 0x18, nil, []Frame{{"f", "", 0, 10}}},
		{"not inlined, without what is", 0x17, nil, []Frame{f}},
		{"what is inlined is cut", 0x18, reader(inlined[:20]), []Frame{{"f", "", 0, 10}}},
		{"what is there is no call", 0x18, reader(append(slices.Repeat([]byte{1}, 20), inlined[20:]...)),
			[]Frame{{"f", "", 0, 10}}},
	} {
		n, err := namesOf(table)
		if err != nil {
			t.Fatal(err)
		}
		l, err := n.Lines(reader(table), c.inlined)
		if err != nil {
			t.Fatal(err)
		}
		l.Left = 1 << 10
		if have := l.At(c.at, nil); !slices.Equal(have, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, have, c.want)
		}
	}
	old := slices.Clone(table)
	binary.LittleEndian.PutUint32(old, uint32(go118))
	if n, err := namesOf(old); err != nil {
		t.Error(err)
	} else if _, err := n.Lines(reader(old), nil); err != ErrNoLines {
		t.Errorf("Go 1.18: %v", err)
	}
}

// FuzzLines reads damaged tables, which cost no more than is left.
func FuzzLines(f *testing.F) {
	table, inlined := linesBytes()
	f.Add(table, inlined)
	endless := slices.Clone(inlined)
	binary.LittleEndian.PutUint32(endless[24:], 8) // g is inlined in itself
	f.Add(table, endless)
	f.Add(table[:len(table)-8], inlined)
	f.Fuzz(inputs.Many(f, func(t *testing.T, table, inlined []byte) {
		defer costs.For(len(table) + len(inlined)).Check(t)()
		n, err := namesOf(table)
		if err != nil {
			return
		}
		l, err := n.Lines(reader(table), reader(inlined))
		if err != nil {
			return
		}
		l.Left = 1 << 16
		for i := range 64 {
			at, _, _, _ := n.Function(i % n.Len())
			for _, frame := range l.At(at+uint64(i), nil) {
				if strings.Contains(frame.Func+frame.File, "\x00") || frame.Line < 0 || frame.Start < 0 {
					t.Errorf("%+v", frame)
				}
			}
		}
	}))
}
