package firefox

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"

	"unspool/capture/output/human"
)

// encoder writes JSON piece by piece. Errors of the writer are returned by its Flush.
type encoder struct {
	w     *bufio.Writer
	comma bool // before the next key or value
}

func newEncoder(w io.Writer) *encoder { return &encoder{w: bufio.NewWriterSize(human.JSON(w), 64<<10)} }

func (e *encoder) open(bracket byte) {
	e.separate()
	e.w.WriteByte(bracket)
	e.comma = false
}

func (e *encoder) close(bracket byte) {
	e.w.WriteByte(bracket)
	e.comma = true
}

func (e *encoder) separate() {
	if e.comma {
		e.w.WriteByte(',')
	}
	e.comma = true
}

func (e *encoder) key(name string) {
	e.text(name)
	e.w.WriteByte(':')
	e.comma = false
}

// text writes a string. Bytes that are not UTF-8 become U+FFFD.
func (e *encoder) text(s string) {
	b, _ := json.Marshal(s) // a string can be marshalled
	e.raw(string(b))
}

func (e *encoder) raw(s string) {
	e.separate()
	e.w.WriteString(s)
}

func (e *encoder) null() { e.raw("null") }

func (e *encoder) bool(v bool) { e.raw(strconv.FormatBool(v)) }

func (e *encoder) number(v int64) {
	e.separate()
	e.w.Write(strconv.AppendInt(e.w.AvailableBuffer(), v, 10))
}

// index writes an index in a table, null for -1.
func (e *encoder) index(v int32) {
	if v < 0 {
		e.null()
		return
	}
	e.number(int64(v))
}

// milliseconds writes nanoseconds in the unit of all times of the format.
func (e *encoder) milliseconds(ns uint64) {
	e.separate()
	b := strconv.AppendUint(e.w.AvailableBuffer(), ns/1e6, 10)
	if rest := ns % 1e6; rest != 0 {
		b = append(b, '.')
		for digit := uint64(1e5); rest > 0; digit /= 10 {
			b = append(b, '0'+byte(rest/digit))
			rest %= digit
		}
	}
	e.w.Write(b)
}

// column writes one column of a table.
func (e *encoder) column(name string, n int, value func(i int)) {
	e.key(name)
	e.open('[')
	for i := range n {
		value(i)
	}
	e.close(']')
}

// same writes a column that has one value in all rows.
func (e *encoder) same(name string, n int, value string) {
	e.column(name, n, func(int) { e.raw(value) })
}
