// Package jsontext writes JSON piece by piece, so that a long list is never in memory as a whole. A Writer belongs to
// its caller.
package jsontext

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strconv"

	"unspool/capture/output/human"
)

// Writer writes one JSON value. It puts the commas; who calls it puts keys before the fields of objects. The first
// error is kept, and returned by Flush.
type Writer struct {
	w       *bufio.Writer
	err     error // of a value that JSON has no form for
	open    []container
	keyed   bool // the next value is a field's, whose key has been written
	value   bytes.Buffer
	encoder *json.Encoder // to value
}

// container is an object or a list that is not complete.
type container struct {
	end   byte
	lines bool // each element is on a line of its own
	some  bool // has elements
}

// New returns a writer to w, whose strings are as human.JSON leaves them.
func New(w io.Writer) *Writer {
	out := &Writer{w: bufio.NewWriterSize(human.JSON(w), 64<<10)}
	out.encoder = json.NewEncoder(&out.value)
	out.encoder.SetEscapeHTML(false) // names of functions are full of < and >
	return out
}

// Open begins an object ('{') or a list ('[').
func (w *Writer) Open(bracket byte) { w.begin(bracket, false) }

// OpenLines is Open for an object or a list whose elements are on lines of their own.
func (w *Writer) OpenLines(bracket byte) { w.begin(bracket, true) }

func (w *Writer) begin(bracket byte, lines bool) {
	w.separate()
	w.w.WriteByte(bracket)
	w.open = append(w.open, container{end: bracket + 2, lines: lines}) // as in ASCII
}

// Close ends the object or list that was opened last.
func (w *Writer) Close() {
	last := w.open[len(w.open)-1]
	w.open = w.open[:len(w.open)-1]
	if last.lines {
		w.w.WriteByte('\n')
	}
	w.w.WriteByte(last.end)
}

// separate writes what is before an element.
func (w *Writer) separate() {
	if w.keyed || len(w.open) == 0 {
		w.keyed = false
		return
	}
	in := &w.open[len(w.open)-1]
	if in.some {
		w.w.WriteByte(',')
	}
	if in.some = true; in.lines {
		w.w.WriteByte('\n')
	}
}

// Key writes the name of an object's next field, which is one without characters that need escapes.
func (w *Writer) Key(name string) {
	w.separate()
	w.w.WriteByte('"')
	w.w.WriteString(name)
	w.w.WriteString(`":`)
	w.keyed = true
}

// Value writes v as encoding/json has it. Bytes of strings that are not UTF-8 become U+FFFD.
func (w *Writer) Value(v any) {
	w.separate()
	w.value.Reset()
	if err := w.encoder.Encode(v); err != nil && w.err == nil {
		w.err = err
	}
	w.w.Write(bytes.TrimSuffix(w.value.Bytes(), []byte("\n")))
}

// Field writes a field and its value.
func (w *Writer) Field(name string, v any) {
	w.Key(name)
	w.Value(v)
}

// Raw writes JSON as it is.
func (w *Writer) Raw(text string) {
	w.separate()
	w.w.WriteString(text)
}

// Int writes a number.
func (w *Writer) Int(n int64) {
	w.separate()
	w.w.Write(strconv.AppendInt(w.w.AvailableBuffer(), n, 10))
}

// Uint writes a number.
func (w *Writer) Uint(n uint64) {
	w.separate()
	w.w.Write(strconv.AppendUint(w.w.AvailableBuffer(), n, 10))
}

// Fixed writes n / 10^digits, exactly.
func (w *Writer) Fixed(n uint64, digits int) {
	w.separate()
	unit := uint64(1)
	for range digits {
		unit *= 10
	}
	b := strconv.AppendUint(w.w.AvailableBuffer(), n/unit, 10)
	if rest := n % unit; rest != 0 {
		b = append(b, '.')
		for ; rest > 0; rest %= unit {
			unit /= 10
			b = append(b, '0'+byte(rest/unit))
		}
	}
	w.w.Write(b)
}

// Flush writes what is buffered, with a line feed behind it.
func (w *Writer) Flush() error {
	if w.err != nil {
		return w.err
	}
	w.w.WriteByte('\n')
	return w.w.Flush()
}
