package jsontext

import (
	"bytes"
	"math"
	"testing"
)

func TestWriter(t *testing.T) {
	var out bytes.Buffer
	w := New(&out)
	w.OpenLines('{')
	w.Field("a <b>", "<c>\u202e\xff")
	w.Key("list")
	w.OpenLines('[')
	w.Value(struct{ A, B int }{1, 2})
	w.Open('[')
	for _, n := range []uint64{0, 7, 70, 7_000_000, 1_000_001, math.MaxUint64} {
		w.Fixed(n, 6)
	}
	w.Int(-1)
	w.Uint(math.MaxUint64)
	w.Raw("null")
	w.Close()
	w.Open('{')
	w.Close()
	w.Close()
	w.Key("none")
	w.Open('[')
	w.Close()
	w.Close()
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := `{
"a <b>":"<c>\u202e\ufffd",
"list":[
{"A":1,"B":2},
[0,0.000007,0.00007,7,1.000001,18446744073709.551615,-1,18446744073709551615,null],
{}
],
"none":[]
}
`
	if got := out.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestValueWithoutForm(t *testing.T) {
	w := New(&bytes.Buffer{})
	w.Value(math.NaN())
	w.Value(1)
	if w.Flush() == nil {
		t.Error("a number that JSON does not have is no error")
	}
}
