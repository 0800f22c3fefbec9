package firefox

import (
	"io"

	"unspool/capture/output/jsontext"
)

// encoder writes the tables of the format.
type encoder struct{ *jsontext.Writer }

func newEncoder(w io.Writer) *encoder { return &encoder{jsontext.New(w)} }

func (e *encoder) null() { e.Raw("null") }

// index writes an index in a table, null for -1.
func (e *encoder) index(v int32) {
	if v < 0 {
		e.null()
		return
	}
	e.Int(int64(v))
}

// milliseconds writes nanoseconds in the unit of all times of the format.
func (e *encoder) milliseconds(ns uint64) { e.Fixed(ns, 6) }

// table begins a table.
func (e *encoder) table(name string, n int) {
	e.Key(name)
	e.Open('{')
	e.Field("length", n)
}

// column writes one column of a table.
func (e *encoder) column(name string, n int, value func(i int)) {
	e.Key(name)
	e.Open('[')
	for i := range n {
		value(i)
	}
	e.Close()
}

// same writes a column that has one value in all rows.
func (e *encoder) same(name string, n int, value string) {
	e.column(name, n, func(int) { e.Raw(value) })
}
